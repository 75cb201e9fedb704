package client

import (
	"cmp"
	"time"

	"braid/pathsel"
)

// Admission: which connections that others have opened get a place.
//
// There are few places and any number of strangers. So a newcomer may replace a connection that
// contributes nothing, and no network gets all places: see pathsel.Origin for what a network is.

// place is a connection that has a place.
type place struct {
	origin pathsel.Origin
	worth  worth
	since  time.Time // when it last carried data or, if never, when it began
}

// worth is what a connection contributes.
type worth int

const (
	silent worth = iota // no handshake, although there was time for one
	idle                // no data lately
	busy                // data; such a connection is not replaced
)

// quota is the number of places: in all, for one network, for one host, and for all unproven peers
// together.
type quota struct{ total, net, host, unproven int }

func (q quota) of(o pathsel.Origin) (net, host int) {
	if o.Net == pathsel.Unproven {
		return q.unproven, q.unproven
	}
	return q.net, q.host
}

// noPlace means that no connection has to be replaced.
const noPlace = -1

// admit tells whether a newcomer gets a place, and which connection it replaces, if one has to go.
//
// Silent connections go first, whatever their network, then idle ones. Among equals, a connection
// of the network with the most connections goes, and within it of the host with the most, so that a
// flood replaces itself. An idle connection makes room only for a network with fewer places, or
// within its own network for a host with no more, so that a crowd cannot push others out. Last, the
// connection goes that has carried no data for longest.
func (q quota) admit(taken []place, newcomer pathsel.Origin) (victim int, ok bool) {
	nets, hosts := map[string]int{}, map[string]int{}
	for _, p := range taken {
		nets[p.origin.Net]++
		hosts[p.origin.Host]++
	}
	ofNet, ofHost := nets[newcomer.Net], hosts[newcomer.Host]
	mostNet, mostHost := q.of(newcomer)
	full, fullNet, fullHost := len(taken) >= q.total, ofNet >= mostNet, ofHost >= mostHost
	if !full && !fullNet && !fullHost {
		return noPlace, true
	}
	yields := func(p place) bool {
		switch {
		case p.worth == busy:
			return false
		case fullHost && p.origin.Host != newcomer.Host, fullNet && p.origin.Net != newcomer.Net:
			return false // its place would be of no use to the newcomer
		case p.worth == silent:
			return true
		case p.origin.Net == newcomer.Net:
			return hosts[p.origin.Host] >= ofHost
		}
		return nets[p.origin.Net] > ofNet
	}
	before := func(a, b place) bool {
		return cmp.Or(int(a.worth-b.worth),
			nets[b.origin.Net]-nets[a.origin.Net], hosts[b.origin.Host]-hosts[a.origin.Host],
			a.since.Compare(b.since)) < 0
	}
	victim = noPlace
	for i, p := range taken {
		if yields(p) && (victim == noPlace || before(p, taken[victim])) {
			victim = i
		}
	}
	return victim, victim != noPlace
}
