package client

import (
	"fmt"
	"slices"
)

// Strategy is in which order pieces are asked for, and who is asked. The three are those of the original system, as far as
// today's engine lets them be made from outside: it has one owner for each block, no duplicate requests but those on
// their way when a block changes its owner, and a queue for each connection of twice what that has just fetched.
type Strategy int

const (
	// Fastest serves the fastest connection first: rare pieces first for all, and a connection that has nothing left to
	// fetch takes half of the queue of the one that has most. In the original a connection's speed decided the order
	// in which connections picked their requests.
	Fastest Strategy = iota
	// Strict asks strictly by piece priority, which is the order of the data. In the original priorities were the
	// user's, and all pieces had the same unless somebody read from the torrent; a block was then asked for a
	// second time after a while, which the engine does not do any more.
	Strict
	// Fuzzy asks by priority with some noise, so that connections overlap less: of the next pieces some are put off by
	// chance. In the original each connection had an order of its own; here all have the same.
	Fuzzy
)

var strategyNames = []string{"fastest", "strict", "fuzzy"}

func (s Strategy) String() string { return strategyNames[s] }

// ParseStrategy reads a strategy's name.
func ParseStrategy(name string) (Strategy, error) {
	i := slices.Index(strategyNames, name)
	if i < 0 {
		return 0, fmt.Errorf("request strategy %q: want fastest, strict or fuzzy", name)
	}
	return Strategy(i), nil
}
