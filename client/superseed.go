package client

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"braid/client/wire"
	"braid/pathsel"
)

// SuperSeeding says whether a seed decides itself which piece goes to whom: see revelation.
type SuperSeeding int

const (
	NoSuperSeeding SuperSeeding = iota
	// AutoSuperSeeding does so until some peer has everything too: from then on the seed is one of several.
	AutoSuperSeeding
	AlwaysSuperSeeding
)

var superSeedingNames = []string{"off", "auto", "on"}

func (s SuperSeeding) String() string { return superSeedingNames[s] }

// ParseSuperSeeding reads off, auto or on.
func ParseSuperSeeding(name string) (SuperSeeding, error) {
	i := slices.Index(superSeedingNames, name)
	if i < 0 {
		return 0, fmt.Errorf("super-seeding %q: want auto, on or off", name)
	}
	return SuperSeeding(i), nil
}

// reveal tells peers of pieces. All connections of one peer are told the same.
func (t *Transfer) reveal() {
	switch {
	case t.options.SuperSeeding == NoSuperSeeding || !t.isDone || t.err != nil:
		return
	case !t.conceals.Load():
		t.showAll()
		return
	}
	now := time.Now()
	if t.revealed == nil {
		t.revealed = newRevelation(t.torrent.NumPieces(), t.torrent.Info().PieceLength, t.seed)
	}
	r := t.revealed
	links := map[pathsel.PeerID][]*link{}
	at := map[pathsel.PeerID]int{} // in there
	var there []beholding
	for x := range t.greetedRows() {
		l := x.link
		who := uploadPeer(x)
		i, known := at[who]
		if !known {
			i = len(there)
			at[who] = i
			there = append(there, beholding{id: who})
			r.join(who, now)
		}
		there[i].served = there[i].served || !l.barred
		there[i].wants = there[i].wants || l.Filter.PeerInterested()
		there[i].rate += x.out.rate / 8
		there[i].rtt = max(there[i].rtt, x.seen.RTT)
		links[who] = append(links[who], l)
		if g := t.session.gauges.find(l.face); g != nil {
			g.tell(r, who, now)
		}
	}
	if t.options.SuperSeeding == AutoSuperSeeding && r.complete() {
		t.log.Info("another peer has everything: all pieces are shown to all")
		t.session.gauges.unwatch(t.torrent)
		t.conceals.Store(false)
		t.showAll()
		return
	}
	show := r.step(now, there)
	for _, b := range there {
		for _, l := range links[b.id] {
			if !l.shown {
				l.shown = true
				l.Filter.RevealAll(r.shown(b.id))
			} else if pieces := show[b.id]; len(pieces) > 0 {
				l.Filter.Reveal(numbers(pieces))
			}
		}
	}
}

// greetedRows are the path-level peers with a connection whose handshake is done, whichever side opened it.
func (t *Transfer) greetedRows() iter.Seq[*row] {
	return func(yield func(*row) bool) {
		greeted := func(r *row) bool { return r.link != nil && r.link.Greeted() && !r.link.Closed() }
		for _, p := range t.peers {
			for _, s := range p.paths {
				if greeted(&s.row) && !yield(&s.row) {
					return
				}
			}
		}
		for _, r := range t.inbound {
			if greeted(r) && !yield(r) {
				return
			}
		}
	}
}

// showAll tells every peer that was told of some pieces only, or whose handshake was done while that was about to
// end, of all of them.
func (t *Transfer) showAll() {
	for x := range t.greetedRows() {
		if l := x.link; !l.whole && l.Filter.Conceals() {
			l.whole = true
			l.Filter.RevealAll(wire.FullBitset(t.torrent.NumPieces()))
		}
	}
}

func numbers(pieces []int) []uint32 {
	out := make([]uint32, len(pieces))
	for i, p := range pieces {
		out[i] = uint32(p)
	}
	return out
}
