package client

import (
	"math/rand/v2"
	"time"

	"braid/client/wire"
)

const (
	// nudgedMost and nudgedPieces bound the cost of nudges: for each, the engine goes over all
	// missing pieces.
	nudgedMost, nudgedPieces = 8, 100_000
	// deafPatience is how long nothing may come over any connection although peers serve us. Then
	// these connections end, and are dialled again: most likely our own address has changed, or
	// packets are dropped on the way. TCP alone notices that after a quarter of an hour. Peers that
	// have something for each other say something at least every two minutes.
	deafPatience = 3 * time.Minute
)

// nudger keeps connections at work: it takes back requests that a peer does not answer, and nudges
// connections without requests: the engine then looks for something to request from them. See
// wire/answers.go.
type nudger struct{ *core }

func (n *nudger) nudge() {
	if n.isDone || n.want == nil {
		return
	}
	now := time.Now()
	var links []*link
	open, free := 0, 0 // connections that can be asked, and those of them that are not asked
	var latest int64   // when something has come
	for r := range n.peers.connected() {
		links = append(links, r.link)
		_, last := r.link.Reads()
		latest = max(latest, last)
		if can, asked := r.link.Filter.CanAsk(); can {
			open++
			if !asked {
				free++
			}
		}
	}
	var idle []*link
	busy := false
	for _, l := range links {
		switch {
		case free > 0 && l.Filter.Endless(now):
			l.log(n.log).Debug("connection ended: a message takes too long")
			l.Close()
			continue
		case now.Sub(time.Unix(0, latest)) >= deafPatience && l.Filter.CouldAsk():
			l.log(n.log).Info("connection ended: nothing comes from any peer")
			l.Close()
			continue
		}
		l.Filter.EndSnub(open > 0, now)
		taken, snubbed := l.Filter.TakeBack(wire.Situation{
			Others: open > 1, Idle: free > 0, RTT: l.Measure().RTT, Now: now,
		})
		if taken {
			l.log(n.log).Debug("requests taken back: the peer does not answer", "snubbed", snubbed)
		}
		if snubbed {
			open--
		}
		can, _ := l.Filter.CanAsk()
		switch {
		case l.gauge.Load().pending() > 0:
			busy = true
		case can:
			idle = append(idle, l)
		}
	}
	pieces, _ := n.torrent.Size()
	for _, i := range chooseNudged(len(idle), busy, pieces-n.torrent.Stats().PiecesComplete) {
		idle[i].Filter.Nudge()
	}
}

// withdraw takes back all requests for pieces that are not wanted now. The next batches are small:
// with a large one, the first connection to ask would get all of the wanted piece, however slow it
// is.
func (n *nudger) withdraw(wanted func(piece int) bool) {
	for r := range n.peers.connected() {
		if r.link.Filter.Withdraw(wanted) {
			r.link.gauge.Load().restart.Store(true)
		}
	}
}

// chooseNudged picks the idle connections to nudge, at random. If no connection is busy, perhaps no
// peer has a missing piece: then one is enough.
func chooseNudged(idle int, busy bool, missing int) []int {
	most := 1
	if busy {
		most = min(nudgedMost, 1+nudgedPieces/max(1, missing))
	}
	return rand.Perm(idle)[:min(idle, most)]
}

// tell tells the filters how many pieces the torrent has, once that is known, and has them tell
// peers of pieces that were kept from them for too long.
func (n *nudger) tell() {
	pieces, _ := n.torrent.Size()
	now := time.Now()
	for r := range n.peers.connected() {
		l := r.link
		l.Filter.FlushKept(now)
		if pieces == 0 {
			continue
		}
		if err := l.Filter.SetPieces(pieces); err != nil {
			n.log.Debug("connection ended", "peer", r.peer, "error", err)
			l.Close()
		}
	}
}
