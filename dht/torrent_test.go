package dht

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A host starts while all its first nodes are down. It searches for its torrents as soon as one of
// them answers, and does not wait for its next attempt.
func TestSearchWithFirstNode(t *testing.T) {
	n := newNode(t, "1-ff00:0:1,[10.9.9.9]:1", DefaultLimits)
	first := boundContact(2, 1, rand.New(rand.NewPCG(3, 4)))
	searched := func(out Out) (times int) {
		for _, p := range out.Packets {
			if p.Message.Query == GetPeers {
				times++
			}
		}
		return times
	}
	n.Bootstrap(start, []Addr{first.Addr})
	_, out := n.Follow(start, ID{7}, 6881)
	if searched(out) == 0 {
		t.Fatal("no search with a first node")
	}
	now, last := start, start
	for now.Sub(last) < 20*time.Second { // nobody answers
		now = n.NextWake()
		if searched(n.Wake(now)) > 0 {
			last = now
		}
	}
	n.table.answered(now, first)
	if next := n.NextWake(); next.After(now) {
		t.Fatalf("the next search is in %v", next.Sub(now))
	}
	if searched(n.Wake(now)) == 0 {
		t.Error("no search with the first node in the table")
	}
	// It does not answer after all: further searches have their time.
	searches := 0
	for end := now.Add(10 * time.Second); now.Before(end); now = n.NextWake() {
		searches += searched(n.Wake(now))
	}
	if searches > 10 {
		t.Errorf("%d questions in ten seconds", searches)
	}
}

// A node that has never known another one waits quietly, however long that takes.
func TestAloneIsQuiet(t *testing.T) {
	n := newNode(t, "1-ff00:0:1,[10.9.9.9]:1", DefaultLimits)
	n.Follow(start, ID{7}, 6881)
	wakes := 0
	for now := start; now.Sub(start) < 2*lookupEvery; now = n.NextWake() {
		if wakes++; wakes > 10_000 {
			t.Fatalf("the node wakes without a pause after %v", now.Sub(start))
		}
		n.Wake(now)
	}
}

// With more torrents than may be searched for at once, all get their turn.
func TestTorrentsTakeTurns(t *testing.T) {
	n := newNode(t, "1-ff00:0:1,[10.9.9.9]:1", DefaultLimits)
	n.table.answered(start, boundContact(2, 1, n.cfg.Rand))
	searched := map[ID]bool{}
	for i := range 3 * maxSearches {
		n.Follow(start, ID{1, byte(i)}, 7)
	}
	for round := range 4 { // in one of them, the node also looks for its neighbours
		for _, x := range n.torrents {
			if x.searching {
				searched[x.hash] = true
				x.searching = false
			}
			x.nextLookup = start
		}
		n.searches = nil
		n.Wake(start.Add(time.Duration(round)))
	}
	if len(searched) != len(n.torrents) {
		t.Errorf("%d of %d torrents are searched for", len(searched), len(n.torrents))
	}
}
