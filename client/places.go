package client

import (
	"time"

	"braid/pathsel"
)

// Who gets a place among the connections that others have opened.
//
// There are few places and any number of strangers. So a newcomer may replace a connection that contributes nothing, and
// no network takes all places: see pathsel.Origin for what a network is.

// place is a connection that has a place.
type place struct {
	origin pathsel.Origin
	worth  worth
	since  time.Time // it last carried data, or else began
}

// worth is what a connection contributes.
type worth int

const (
	silent worth = iota // no handshake, although there was time for one
	idle                // no data lately
	busy                // data; it is not replaced
)

// quota is how many places there are: in all, and of them for one network, one host, and everybody whose ISD-AS is only
// claimed.
type quota struct{ total, net, host, unproven int }

func (q quota) of(o pathsel.Origin) (net, host int) {
	if o.Net == pathsel.Unproven {
		return q.unproven, q.unproven
	}
	return q.net, q.host
}

// noPlace means that nobody has to go.
const noPlace = -1

// admit tells whether a newcomer gets a place, and which one of those taken becomes free for it, if one has to.
//
// Silent connections go first, whosesoever they are, then idle ones. Of equals one of the network with the most
// connections goes, and there of the host with the most: a flood replaces itself. An idle connection makes room only for
// somebody whose network has fewer places, or within its network whose host has no more, so that a crowd does not push
// others out. The one that has carried nothing for longest is the last criterion.
func (q quota) admit(taken []place, newcomer pathsel.Origin) (victim int, ok bool) {
	ofNet, ofHost := 0, 0
	for _, p := range taken {
		if p.origin.Net == newcomer.Net {
			ofNet++
		}
		if p.origin.Host == newcomer.Host {
			ofHost++
		}
	}
	mostNet, mostHost := q.of(newcomer)
	full, fullNet, fullHost := len(taken) >= q.total, ofNet >= mostNet, ofHost >= mostHost
	if !full && !fullNet && !fullHost {
		return noPlace, true
	}
	nets, hosts := map[string]int{}, map[string]int{}
	for _, p := range taken {
		nets[p.origin.Net]++
		hosts[p.origin.Host]++
	}
	yields := func(p place) bool {
		switch {
		case p.worth == busy, fullHost && p.origin.Host != newcomer.Host, fullNet && p.origin.Net != newcomer.Net:
			return false
		case p.worth == silent:
			return true
		case p.origin.Net == newcomer.Net:
			return hosts[p.origin.Host] >= ofHost
		}
		return nets[p.origin.Net] > ofNet
	}
	before := func(a, b place) bool {
		if as, bs := a.worth == silent, b.worth == silent; as != bs {
			return as
		}
		if x, y := nets[a.origin.Net], nets[b.origin.Net]; x != y {
			return x > y
		}
		if x, y := hosts[a.origin.Host], hosts[b.origin.Host]; x != y {
			return x > y
		}
		return a.since.Before(b.since)
	}
	victim = noPlace
	for i, p := range taken {
		if yields(p) && (victim == noPlace || before(p, taken[victim])) {
			victim = i
		}
	}
	return victim, victim != noPlace
}
