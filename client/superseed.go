package client

import (
	"time"

	"braid/client/wire"
	"braid/pathsel"
)

// superSeeder shows peers the pieces that a revelation chooses. All connections of a peer show the
// same pieces.
type superSeeder struct {
	*core
	mode SuperSeeding
	seed uint64
	plan *revelation // nil: not begun
}

// view is the input of the next step, and the connections of each peer in it.
func (s *superSeeder) view() (there []viewing, links map[pathsel.PeerID][]*link) {
	links = map[pathsel.PeerID][]*link{}
	at := map[pathsel.PeerID]int{} // in there
	for r := range s.peers.connected() {
		l, id := r.link, r.remoteID()
		i, known := at[id]
		if !known {
			i = len(there)
			at[id] = i
			there = append(there, viewing{id: id})
		}
		v := &there[i]
		v.served = v.served || !l.barred
		v.wants = v.wants || l.Filter.PeerInterested()
		v.rate += r.out.rate / 8
		v.rtt = max(v.rtt, r.seen.RTT)
		links[id] = append(links[id], l)
		v.news = append(v.news, l.gauge.Load().takeNews())
	}
	return there, links
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
	there, links := s.view()
	show := s.plan.step(time.Now(), there)
	if s.mode == AutoSuperSeeding && s.plan.complete() {
		s.log.Info("another peer has everything: all peers see all pieces from now on")
		s.conceals.Store(false)
		s.showAll()
		return
	}
	for _, v := range there {
		for _, l := range links[v.id] {
			if !l.shown {
				l.shown = true
				l.Filter.RevealAll(s.plan.shown(v.id))
			} else if pieces := show[v.id]; len(pieces) > 0 {
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
