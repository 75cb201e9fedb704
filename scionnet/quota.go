package scionnet

import (
	"context"
	"slices"
	"sync"

	"braid/pathsel"
)

// quota counts the accepted connections by network and host (pathsel.Origin). An unproven claim
// (proof.go) counts for no AS, since liars could otherwise use up the share of the AS that they
// claim. All unproven connections share one small part of the places. In it a newcomer replaces a
// connection whose claim was refuted or, failing that, the oldest one along the links with the most
// connections. Once proven, a connection moves to the share of its AS.
type quota struct {
	limits

	mu       sync.Mutex
	held     int
	counted  int            // connections that count for a network
	of       map[string]int // connections of each network and of each host
	unproven []*inbound     // oldest first
}

// limits are maximum numbers of connections: in all, for each network, for each host, and for all
// unproven ones.
type limits struct{ total, perNet, perHost, unproven int }

// inbound is an accepted connection. ctx ends with the connection, or when the connection is to
// end.
type inbound struct {
	who   pathsel.Origin // as it claims
	as    remoteAS
	ctx   context.Context
	evict context.CancelFunc

	counted bool // in the name of who; guarded by quota.mu
}

// newInbound is an inbound connection whose own context is ctx.
func newInbound(ctx context.Context, who pathsel.Origin, as remoteAS) *inbound {
	g := &inbound{who: who, as: as}
	g.ctx, g.evict = context.WithCancel(ctx)
	return g
}

// take gives a connection a place if there is one. verified says that the remote has proved to
// receive at its address; only then may it evict another connection.
func (q *quota) take(g *inbound, verified bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.countProven()
	if q.held >= q.total {
		return false
	}
	if g.as.isProven() {
		if q.of[g.who.Host] >= q.perHost || q.of[g.who.Net] >= q.perNet {
			return false
		}
		q.count(g)
	} else {
		// An evicted connection keeps its place until it ends, which a handshake does after some
		// seconds.
		full := q.held-q.counted >= 2*q.limits.unproven
		if full || len(q.unproven) >= q.limits.unproven && !(verified && q.evictUnproven(g)) {
			return false
		}
		q.unproven = append(q.unproven, g)
	}
	q.held++
	return true
}

func (q *quota) release(g *inbound) {
	g.evict()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held--
	if !g.counted {
		q.unproven = slices.DeleteFunc(q.unproven, func(s *inbound) bool { return s == g })
		return
	}
	q.counted--
	for _, k := range []string{g.who.Net, g.who.Host} {
		if q.of[k]--; q.of[k] == 0 {
			delete(q.of, k)
		}
	}
}

// unprovenFull tells whether an unproven newcomer would have to evict another, and so must prove
// that it receives at its address.
func (q *quota) unprovenFull() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.unproven) >= q.limits.unproven
}

func (q *quota) count(g *inbound) {
	if q.of == nil {
		q.of = map[string]int{}
	}
	g.counted = true
	q.counted++
	q.of[g.who.Net]++
	q.of[g.who.Host]++
}

// countProven moves connections that have been proven to the share of their AS. They may exceed the
// share, since from then on new ones are limited.
func (q *quota) countProven() {
	q.unproven = slices.DeleteFunc(q.unproven, func(g *inbound) bool {
		if !g.as.isProven() {
			return false
		}
		q.count(g)
		return true
	})
}

// evictUnproven evicts an unproven connection in favour of g: a refuted one if there is any,
// otherwise the oldest along the trail with the most connections. That trail must have at least two
// more than the trail of g.
func (q *quota) evictUnproven(g *inbound) bool {
	if g.as.refuted() {
		return false
	}
	along := map[trail]int{}
	var most trail
	for _, s := range q.unproven {
		t := s.as.trail()
		if along[t]++; along[t] > along[most] {
			most = t
		}
	}
	i := slices.IndexFunc(q.unproven, func(s *inbound) bool { return s.as.refuted() })
	if i < 0 {
		if along[most] < along[g.as.trail()]+2 {
			return false
		}
		i = slices.IndexFunc(q.unproven, func(s *inbound) bool { return s.as.trail() == most })
	}
	q.unproven[i].evict()
	q.unproven = slices.Delete(q.unproven, i, i+1)
	return true
}
