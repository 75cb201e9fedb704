package client

import (
	"fmt"
	"slices"
	"strings"
)

// Strategy is the order in which pieces are requested. The three strategies are those of the
// system before braid, as far as the engine allows them: it requests each block from one
// connection, and moves a request if that connection is slow.
type Strategy int

const (
	// Fastest requests rare pieces first. A connection without requests takes half of those of the
	// connection that has most. In that system, faster connections chose their requests first.
	Fastest Strategy = iota
	// Strict requests strictly by priority, which is the order of the data. In that system, users
	// set the priorities, and a block was requested a second time after a while.
	Strict
	// Fuzzy requests by priority with some noise, so that connections overlap less: it puts off
	// some of the next pieces at random. In that system, each connection had an order of its own.
	Fuzzy
)

var strategyNames = []string{"fastest", "strict", "fuzzy"}

func (s Strategy) String() string { return strategyNames[s] }

// ParseStrategy reads a strategy's name.
func ParseStrategy(name string) (Strategy, error) {
	return parseName[Strategy]("request strategy", name, strategyNames)
}

// SuperSeeding says whether a seed decides itself which peer gets which piece: see reveal.go.
type SuperSeeding int

const (
	NoSuperSeeding SuperSeeding = iota
	// AutoSuperSeeding does so until another peer has every piece, and is a seed too.
	AutoSuperSeeding
	AlwaysSuperSeeding
)

var superSeedingNames = []string{"off", "auto", "on"}

func (s SuperSeeding) String() string { return superSeedingNames[s] }

// ParseSuperSeeding reads off, auto or on.
func ParseSuperSeeding(name string) (SuperSeeding, error) {
	return parseName[SuperSeeding]("super-seeding", name, superSeedingNames)
}

// parseName returns the place of a name among those of a type.
func parseName[T ~int](what, name string, names []string) (T, error) {
	i := slices.Index(names, name)
	if i < 0 {
		last := len(names) - 1
		others := strings.Join(names[:last], ", ")
		return 0, fmt.Errorf("%s %q: want %s or %s", what, name, others, names[last])
	}
	return T(i), nil
}
