package scionnet

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"braid/pathsel"
)

// Whose connection it is. The ISD-AS in a packet is its sender's word, and no router far from the
// sender checks it. The trail cannot be invented: each AS on it checks our packets and passes them
// on, link by link. So a remote's ISD-AS is proven by two facts together:
//
//   - Somebody has finished a handshake, and so has received our packets along the trail, through
//     the routers of our AS.
//   - The trail leads to that AS: the control plane's paths to the AS contain each link of the
//     trail, and the last link ends there.
//
// It proves nothing against the routers and control plane of our own AS, which are trusted, nor
// against an AS on the trail, which carries the packets and can answer for anybody behind it.
// Inside our AS there is no trail. There it proves that the remote receives at its IP address:
// everybody who can exchange IP packets with us counts as a host of the AS. Only a remote AS
// itself can tell its hosts and ports apart.

// links maps the near end of each link that some paths use to its far end, in the direction of
// travel.
type links map[pathsel.Interface]pathsel.Interface

func linksOf(paths []found) links {
	l := links{}
	for _, f := range paths {
		for i := 0; i+1 < len(f.path.Interfaces); i += 2 {
			l[f.path.Interfaces[i]] = f.path.Interfaces[i+1]
		}
	}
	return l
}

// walk lists the interfaces on the trail, if these links lead along it from one AS to the other.
// The path as a whole need not be known: the two ends may combine the same segments differently, or
// each may know paths that the other does not.
func (l links) walk(from, to pathsel.IA, t trail) ([]pathsel.Interface, bool) {
	if len(t) == 0 || len(t)%4 != 0 {
		return nil, false
	}
	out := make([]pathsel.Interface, 0, len(t)/2)
	for i := 0; i < len(t); i += 4 {
		ids := []byte(t[i : i+4])
		near := pathsel.Interface{IA: from, ID: uint64(binary.BigEndian.Uint16(ids))}
		far, ok := l[near]
		if !ok || far.ID != uint64(binary.BigEndian.Uint16(ids[2:])) {
			return nil, false
		}
		out = append(out, near, far)
		from = far.IA
	}
	return out, from == to
}

// leadTo tells whether these links lead along the trail from one AS to the other.
func (l links) leadTo(from, to pathsel.IA, t trail) bool {
	_, ok := l.walk(from, to, t)
	return ok
}

const (
	// claimLookups bounds the concurrent questions to the control plane about claims. Our own
	// lookups do not wait for them.
	claimLookups = 2
	// maxClaims bounds the remembered trails of unproven peers. Each entry took a handshake over
	// real links.
	maxClaims = 512
	// After a negative answer, the same claim may be repeated after claimFirst, and later after up
	// to claimMost. The pause is short at first, since the control plane may just have started. It
	// grows, so that a repeated lie costs the control plane one question in two minutes. Other
	// claims along the trail wait for trailPause: a liar who always claims another AS costs two
	// questions a second per path.
	claimFirst, claimMost = 2 * time.Second, 2 * time.Minute
	trailPause            = 500 * time.Millisecond
	// maxWaiting and maxWaitingTrail bound the requests that wait for an answer, in all and along
	// one trail. Each holds a stream and its memory.
	maxWaiting, maxWaitingTrail = 1024, 256
)

// claims checks the ISD-ASes that peers claim. A trail leads to one AS. Therefore each trail has
// one question at a time, however many connections and claims come along it: a liar waits only for
// his own lies.
type claims struct {
	query func(context.Context, pathsel.IA) ([]found, error)
	spawn func(func(context.Context))
	// onProven receives the paths that prove a claim.
	onProven func(dst pathsel.IA, answer []found)
	local    pathsel.IA

	lookups chan struct{} // has room for the concurrent questions

	mu      sync.Mutex
	byKey   map[claimKey]*claim
	trails  map[trail]*trailClaims
	waiting int
}

type claimKey struct {
	ia    pathsel.IA
	trail trail
}

// claim is the claim that a trail leads to an AS. Its fields are guarded by claims.mu.
type claim struct {
	claimKey
	done  chan struct{} // closed with the answer; nil while no question is open
	pause time.Duration
	again time.Time // when it may be asked again
}

// trailClaims is shared by all claims about one trail. Its fields are guarded by claims.mu.
type trailClaims struct {
	asking  *claim
	again   time.Time // when any claim may be asked again
	waiting int
}

// ask starts to check the claim of the route's remote, unless its trail was checked a moment ago.
// It returns the claim if a question is open, otherwise nil.
func (c *claims) ask(r *route, now time.Time) *claim {
	if len(r.trail) == 0 {
		return nil // a neighbour that claims to be in another AS
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := claimKey{r.remote.IA, r.trail}
	k, t := c.byKey[key], c.trails[r.trail]
	switch {
	case k != nil && k.done != nil:
		return k
	case k != nil && now.Before(k.again), t != nil && (t.asking != nil || now.Before(t.again)):
		return nil
	case k == nil && !c.makeRoom(now):
		return nil
	case k == nil:
		k = &claim{claimKey: key}
		c.byKey[key] = k
	}
	if t == nil {
		t = &trailClaims{}
		c.trails[r.trail] = t
	}
	k.done, t.asking = make(chan struct{}), k
	c.spawn(func(ctx context.Context) { c.check(ctx, k) })
	return k
}

// refuted tells whether the last answer about the route's claim was negative.
func (c *claims) refuted(r *route) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.byKey[claimKey{r.remote.IA, r.trail}]
	return k != nil && k.pause > 0
}

// makeRoom makes room for one more claim. A forgotten claim may be asked about again.
func (c *claims) makeRoom(now time.Time) bool {
	if len(c.trails) >= maxClaims {
		for key, t := range c.trails {
			if t.asking == nil && t.waiting == 0 && !now.Before(t.again) {
				delete(c.trails, key)
			}
		}
	}
	if len(c.byKey) >= maxClaims {
		for key, k := range c.byKey {
			if k.done == nil {
				delete(c.byKey, key)
				break
			}
		}
	}
	return len(c.byKey) < maxClaims && len(c.trails) < maxClaims
}

// check asks the control plane about a claim. When the context has ended, the answer is negative.
func (c *claims) check(ctx context.Context, k *claim) {
	c.lookups <- struct{}{}
	defer func() { <-c.lookups }()
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	answer, _ := c.query(ctx, k.ia) // no answer proves nothing
	proven := linksOf(answer).leadTo(c.local, k.ia, k.trail)
	if proven {
		c.onProven(k.ia, answer)
	}
	c.answered(k, proven, time.Now())
}

func (c *claims) answered(k *claim, proven bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(k.done)
	k.done = nil
	t := c.trails[k.trail]
	t.asking = nil
	if proven {
		delete(c.byKey, k.claimKey)
		return
	}
	k.pause = min(max(claimFirst, 2*k.pause), claimMost)
	k.again, t.again = now.Add(k.pause), now.Add(trailPause)
}

// wait waits up to that long for the answer about a claim, unless too many wait already.
func (c *claims) wait(ctx context.Context, k *claim, most time.Duration) {
	c.mu.Lock()
	done, t := k.done, c.trails[k.trail]
	if done == nil || c.waiting >= maxWaiting || t.waiting >= maxWaitingTrail {
		c.mu.Unlock()
		return
	}
	c.waiting++
	t.waiting++
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting--
	t.waiting--
}

// newClaims checks the claims of the host's peers. The table of paths gets a destination only once
// a peer has proved to be there, so that unproven peers cannot fill it.
func (h *Host) newClaims() *claims {
	return &claims{
		query:    func(ctx context.Context, dst pathsel.IA) ([]found, error) { return h.lookup.query(ctx, dst, false) },
		spawn:    h.lookup.spawn,
		onProven: h.lookup.add,
		local:    h.ia,
		lookups:  make(chan struct{}, claimLookups),
		byKey:    map[claimKey]*claim{},
		trails:   map[trail]*trailClaims{},
	}
}

// remoteAS is what is known of the AS of a peer that has connected to us.
type remoteAS struct {
	host  *Host
	route *route
	// reached says that the handshake's packets to the peer went through a router of our AS or,
	// inside the AS, to the claimed address itself.
	reached bool
}

// remoteAS must be called before anything is sent to the remote. It asks nobody.
func (h *Host) remoteAS(r *route) remoteAS {
	if !r.proven.Load() {
		if _, ok := h.lookup.walk(h.ia, r.remote.IA, r.trail); ok {
			r.proven.Store(true)
		}
	}
	return remoteAS{h, r, r.way.Load().source != fromUnknown}
}

// newInbound is the connection that begins with a packet just received. It pins the route to the
// sender.
func (h *Host) newInbound(ctx context.Context, pseudo net.Addr) (*inbound, error) {
	r := h.routes.forAddr(pseudo)
	if r == nil {
		return nil, errRouteDropped
	}
	r = h.routes.pin(r)
	h.routes.renew(r, time.Now())
	who := pathsel.OriginSCION(r.remote.IA, r.remote.Host, "")
	return newInbound(ctx, who, h.remoteAS(r)), nil
}

// isProven tells whether the ISD-AS is proven by now. On IP there is nothing to prove.
func (s remoteAS) isProven() bool { return s.host == nil || s.reached && s.route.proven.Load() }

// refuted tells whether the claim was checked without success.
func (s remoteAS) refuted() bool {
	return !s.isProven() && (s.trail() == "" || s.host.claims.refuted(s.route))
}

// trail is the sequence of links along which the remote has received packets; empty if its claimed
// links mean nothing.
func (s remoteAS) trail() trail {
	if !s.reached {
		return ""
	}
	return s.route.trail
}

// prove tells whether the ISD-AS is proven. If that is not known yet, it starts the check and waits
// up to that long for the answer.
func (s remoteAS) prove(ctx context.Context, wait time.Duration) bool {
	if s.isProven() || !s.reached {
		return s.isProven()
	}
	if k := s.host.claims.ask(s.route, time.Now()); k != nil && wait > 0 {
		s.host.claims.wait(ctx, k, wait)
	}
	return s.route.proven.Load()
}
