package client

import (
	"math/rand/v2"
	"time"

	"braid/client/wire"
)

const (
	// stealGrace is how long a request is left alone: a round trip from one continent to another, and a block's time on the link.
	stealGrace = 300 * time.Millisecond
	// nudgedMost and nudgedPieces bound what it costs to look again: each time all missing pieces are gone over.
	nudgedMost, nudgedPieces = 8, 100_000
)

// nudge takes back requests that have waited for too long, and has the engine think again of connections that have nothing to ask
// for.
func (t *Transfer) nudge() {
	if t.isDone || t.want == nil {
		return
	}
	var links []*link
	open, free := 0, 0 // connections that can be asked, and those of them that are not
	for x := range t.greetedRows() {
		links = append(links, x.link)
		if can, asked := x.link.Filter.CanAsk(); can {
			open++
			if !asked {
				free++
			}
		}
	}
	var idle []*link
	busy := false
	now := time.Now()
	for _, l := range links {
		g := t.session.gauges.find(l.face)
		if g == nil {
			continue
		}
		if free > 0 && l.Filter.Endless(now) {
			t.log.Debug("connection ended: a block takes too long", "peer", l.Peer(), "path", l.Path().Fingerprint.Short())
			l.Close()
			continue
		}
		l.Filter.EndSnub(open > 0, now)
		taken, snubbed := l.Filter.TakeBack(wire.Situation{Others: open > 1, Idle: free > 0, RTT: l.Measure().RTT, Now: now})
		if taken {
			t.log.Debug("requests taken back: the peer does not answer", "peer", l.Peer(), "path", l.Path().Fingerprint.Short(), "snubbed", snubbed)
		}
		if snubbed {
			open--
		}
		can, _ := l.Filter.CanAsk()
		switch {
		case g.outstanding.Load() > 0:
			busy = true
		case can:
			idle = append(idle, l)
		}
	}
	if len(idle) == 0 {
		return
	}
	rand.Shuffle(len(idle), func(i, j int) { idle[i], idle[j] = idle[j], idle[i] })
	most := 1 // it may be that no peer has what is missing
	if busy {
		missing := t.torrent.NumPieces() - t.torrent.Stats().PiecesComplete
		most = min(nudgedMost, 1+nudgedPieces/max(1, missing))
	}
	for _, l := range idle[:min(len(idle), most)] {
		l.Filter.Nudge()
	}
}

// tellPieces tells the gates how many pieces the torrent has, once that is known.
func (t *Transfer) tellPieces() {
	if t.torrent.Info() == nil {
		return
	}
	for x := range t.greetedRows() {
		l := x.link
		if l.described {
			continue
		}
		l.described = true
		if err := l.Filter.SetPieces(t.torrent.NumPieces()); err != nil {
			t.log.Debug("connection ended", "peer", x.peer, "error", err)
			l.Close()
		}
	}
}

func (t *Transfer) tellKept() {
	now := time.Now()
	for x := range t.greetedRows() {
		x.link.Filter.FlushKept(now)
	}
}
