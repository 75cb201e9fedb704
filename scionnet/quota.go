package scionnet

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"braid/pathsel"
)

// quota counts the connections that others have begun, and in whose name. A claim that is not
// proven (proof.go) counts in nobody's: a liar would fill the part of the AS that he claims. All
// such connections share one small part, in which a newcomer takes the place of a liar, or of the
// oldest connection along the links from which the most have come. What is proven moves to its AS's
// part.
type quota struct {
	limits

	mu       sync.Mutex
	held     int
	hosts    map[hostKey]int
	ases     map[pathsel.IA]int
	unproven []*inbound // the oldest first
}

// limits are numbers of connections: in all, in the name of one AS and of one host, and of all
// whose AS is not proven.
type limits struct{ total, perAS, perHost, unproven int }

type hostKey struct {
	ia   pathsel.IA // 0 on IP, where nobody claims an AS
	host netip.Addr
}

// guest is a connection that somebody else has begun. The context ends with it, or when it is to
// end.
type inbound struct {
	who   hostKey
	as    remoteAS
	ctx   context.Context
	evict context.CancelFunc

	// Guarded by quota.mu.
	counted, evicted bool // in the name of who; without a place any more
}

// newGuest is one whose connection has that context.
func newInbound(ctx context.Context, who hostKey, met remoteAS) *inbound {
	g := &inbound{who: who, as: met}
	g.ctx, g.evict = context.WithCancel(ctx)
	return g
}

// enter gives a connection a place, if there is one. verified says that the remote has shown to
// receive at its address: no other may take somebody's place. Whose place it takes is evicted.
func (q *quota) take(g *inbound, verified bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.countProven()
	if q.held >= q.total {
		return false
	}
	if g.as.isProven() {
		if q.hosts[g.who] >= q.perHost || g.who.ia != 0 && q.ases[g.who.ia] >= q.perAS {
			return false
		}
		q.count(g)
	} else {
		if len(q.unproven) >= q.limits.unproven && !(verified && q.evictUnproven(g)) {
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
		if !g.evicted {
			q.remove(g)
		}
		return
	}
	if q.hosts[g.who]--; q.hosts[g.who] == 0 {
		delete(q.hosts, g.who)
	}
	if q.ases[g.who.ia]--; q.ases[g.who.ia] == 0 {
		delete(q.ases, g.who.ia)
	}
}

// crowded tells whether a newcomer may need somebody's place, and so has to show that it receives
// at its address.
func (q *quota) unprovenFull() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.unproven) >= q.limits.unproven
}

func (q *quota) count(g *inbound) {
	if q.hosts == nil {
		q.hosts, q.ases = map[hostKey]int{}, map[pathsel.IA]int{}
	}
	g.counted = true
	q.hosts[g.who]++
	q.ases[g.who.ia]++
}

// settle moves what has been proven. It may exceed the part of its AS by so much: from then on the
// AS is known.
func (q *quota) countProven() {
	q.unproven = slices.DeleteFunc(q.unproven, func(g *inbound) bool {
		if !g.as.isProven() {
			return false
		}
		q.count(g)
		return true
	})
}

// makeRoom takes a place for g from another stranger: one whose claim has been looked into in vain,
// else the oldest of those along the trail of most, if that is at least two more than along that of
// g.
func (q *quota) evictUnproven(g *inbound) bool {
	if g.as.refuted() {
		return false
	}
	along := map[trail]int{}
	var victim *inbound
	var most trail
	for _, s := range q.unproven {
		if victim == nil && s.as.refuted() {
			victim = s
		}
		t := s.as.trail()
		if along[t]++; along[t] > along[most] {
			most = t
		}
	}
	for i := 0; victim == nil; i++ {
		if along[most] < along[g.as.trail()]+2 {
			return false
		}
		if s := q.unproven[i]; s.as.trail() == most {
			victim = s
		}
	}
	victim.evicted = true
	victim.evict()
	q.remove(victim)
	return true
}

func (q *quota) remove(g *inbound) {
	q.unproven = slices.DeleteFunc(q.unproven, func(s *inbound) bool { return s == g })
}
