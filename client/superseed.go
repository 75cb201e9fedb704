package client

import (
	"time"

	"braid/client/wire"
)

// superSeeder shows peers the pieces that a revelation chooses. All connections of a peer show the
// same pieces.
type superSeeder struct {
	*core
	mode SuperSeeding
	seed uint64
	plan *revelation // nil: not begun
}

// viewOf is the input of the next step about a peer with these connections.
func viewOf(rows []*row) (v viewing) {
	v.id = rows[0].remoteID()
	for _, r := range rows {
		v.served = v.served || !r.link.barred
		v.wants = v.wants || r.link.Filter.PeerInterested()
		v.rate += r.out.rate / 8
		v.rtt = max(v.rtt, r.seen.RTT)
		v.news = append(v.news, &r.link.gauge.Load().news)
	}
	return v
}

// reveal shows peers their next pieces.
func (s *superSeeder) reveal() {
	switch {
	case s.mode == NoSuperSeeding || !s.isDone || s.err != nil:
		return
	case !s.conceals.Load():
		s.showAll()
		return
	}
	if s.plan == nil {
		pieces, _ := s.torrent.Size()
		s.plan = newRevelation(pieces, s.described.Load().Layout.PieceLength, s.seed)
	}
	peers := s.peers.connectedPeers()
	var there []viewing
	for _, rows := range peers {
		there = append(there, viewOf(rows))
	}
	show := s.plan.step(time.Now(), there)
	if s.mode == AutoSuperSeeding && s.plan.complete() {
		s.log.Info("another peer has everything: all peers see all pieces from now on")
		s.conceals.Store(false)
		s.showAll()
		return
	}
	for i, rows := range peers {
		id := there[i].id
		for _, r := range rows {
			if l := r.link; !l.shown {
				l.shown = true
				l.Filter.RevealAll(s.plan.shown(id))
			} else if pieces := show[id]; len(pieces) > 0 {
				l.Filter.Reveal(pieces...)
			}
		}
	}
}

// showAll shows all pieces to the peers that were shown only some. Some handshakes end just when
// super-seeding does, so this is done again and again.
func (s *superSeeder) showAll() {
	for r := range s.peers.connected() {
		if l := r.link; !l.whole && l.Filter.Conceals() {
			l.whole = true
			pieces, _ := s.torrent.Size()
			l.Filter.RevealAll(wire.FullBitset(pieces))
		}
	}
}
