package scenario

import (
	"testing"

	"braid/node/event"
)

// Three leechers, 10, 20 and 40 ms from the seed. The first gets each piece by the shortest way,
// the others from each other.
func TestPropagation(t *testing.T) {
	// The swarm: four peers, of which each leecher knows the seed, and one another.
	r := &Record{feed: true}
	r.Scenario.Peers = []Peer{{Name: "s", Client: Braid, Role: Seed}, {Name: "a", Client: Braid, Role: Leech}, {Name: "b", Client: Braid, Role: Leech, From: []string{everybody}}, {Name: "c", Client: Braid, Role: Leech}}
	for i, late := range []float64{0, .04, .1} {
		l := &Leecher{Name: string(rune('a' + i)), Complete: true, delay: []float64{.01, .02, .04}[i]}
		l.pieces = append(l.pieces, event.Piece{T: float64(3 * i)}) // it has only just started
		for p := 1; p <= 10; p++ {
			l.pieces = append(l.pieces, event.Piece{T: 9 + float64(p) + .01 + late, Piece: p})
		}
		r.Leechers = append(r.Leechers, l)
	}
	gone := &Leecher{Name: "gone", pieces: []event.Piece{{T: 100, Piece: 1}}, delay: .01}
	r.Leechers = append(r.Leechers, gone)
	m := map[string]float64{}
	r.addPropagation(m)
	for name, want := range map[string]float64{
		"propagation": .05, "propagation-95": .11, "delay-penalty": 2.5, "delay-penalty-95": 2.75, "last-penalty": 2.75, "degree": 2,
	} {
		if !near(m[name], want) {
			t.Errorf("%s: %v, want %v", name, m[name], want)
		}
	}
	if n := len(r.spreadings()); n != 10 {
		t.Errorf("%d pieces count, not 10", n)
	}
	r.Leechers = r.Leechers[:1]
	if s := r.spreadings(); len(s) != 0 {
		t.Errorf("one leecher: %v", s)
	}
}
