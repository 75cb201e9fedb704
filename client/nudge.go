package client

import (
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// When a connection that has nothing to ask for takes a block that another one has asked for.
//
// The engine moves the request and cancels the one before. But what has been sent is not called back by a cancel, and arrives twice: where
// pieces are scarce, as in a swarm that waits for its seed, as much as there is of use. So a request is left alone for the time in
// which it would be answered at most distances. The engine does not come back to a connection that it has so left with nothing to do;
// nudge has it look again.

const (
	// stealGrace is how long a request is left alone: a round trip from one continent to another, and a block's time on the link.
	stealGrace = 300 * time.Millisecond
	// nudgedMost bounds what it costs to look again: each time all missing pieces are gone over.
	nudgedMost = 8
)

// nudge has the engine think again of connections that have nothing to ask for while others do.
func (t *Transfer) nudge() {
	if t.isDone || t.want == nil {
		return
	}
	var idle []*link
	waiting := false
	for x := range t.greetedRows() {
		switch g := t.session.gauges.find(x.link.face); {
		case g == nil:
		case g.outstanding.Load() > 0:
			waiting = true
		case g.unchoked.Load():
			idle = append(idle, x.link)
		}
	}
	if !waiting {
		return
	}
	rand.Shuffle(len(idle), func(i, j int) { idle[i], idle[j] = idle[j], idle[i] })
	for _, l := range idle[:min(len(idle), nudgedMost)] {
		l.gate.nudge()
	}
}

// nudge has the engine look for something to ask this peer for, by telling it that the peer suggests a piece (BEP 6), which means no
// more than that to it.
func (g *gate) nudge() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.works() && g.shown && len(g.forEngine) == 0 {
		g.giveLocked(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 5, msgSuggest}, 0))
	}
}
