package scionnet

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"braid/pathsel"
)

// Whose connection it is. The ISD-AS in a packet is written by its sender, and no router far from
// the sender checks it. What cannot be invented is the trail: packets that we send along it are
// checked and passed on by each AS on it, link by link. So a remote's ISD-AS is proven once two
// things are known:
//
//   - somebody has finished a handshake, and so has received what we sent along the trail, through the routers of our AS;
//   - the trail leads to that AS: the control plane has told us of each link on it, in paths to the AS, and the last
//     link ends there.
//
// It proves nothing against our own AS's routers and control plane, which are trusted, nor against
// an AS on the trail, which carries the packets and can answer in the name of whoever is behind it.
// Inside our AS, where there is no trail, it proves that the remote receives at its IP address:
// whoever the AS lets exchange IP packets with us counts as a host of the AS. Which host or port of
// a remote AS it is, that AS alone decides.

// links are the links of the network that some paths use, from each end in the direction of travel.
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

// walk lists the interfaces on the trail, if it goes from one AS to the other over these links. The
// path as a whole need not be known: the two ends may combine the same segments in different ways,
// or each know paths that the other does not.
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

// lead tells whether the trail goes from one AS to the other over these links.
func (l links) leadTo(from, to pathsel.IA, t trail) bool {
	_, ok := l.walk(from, to, t)
	return ok
}

const (
	// claimLookups bounds the questions about strangers that the control plane has at once; our own
	// lookups do not wait for them.
	claimLookups = 2
	// maxClaims bounds the trails remembered that strangers have come along. Each took a handshake
	// over real links.
	maxClaims = 512
	// claimFirst and claimMost are the pauses before the same is asked about a trail again that did
	// not lead to the AS claimed: short at first, as the control plane may just have started, then
	// longer, so that a lie that is kept up costs it one question in two minutes. Other claims
	// about the trail wait for trailRest: a liar who ever claims another AS costs two questions a
	// second for each path that he has.
	claimFirst, claimMost = 2 * time.Second, 2 * time.Minute
	trailPause            = 500 * time.Millisecond
	// claimWaiting and trailWaiting bound the requests that wait for an answer, in all and along
	// one trail: each holds a stream and its memory.
	maxWaiting, maxWaitingTrail = 1024, 256
)

// claims has the ISD-ASes checked that strangers claim. A trail leads to one AS, so there is one
// question at a time for each trail, however many connections, and claims, come along it: a liar
// waits for his own lies.
type claims struct {
	query func(context.Context, pathsel.IA) ([]found, error)
	spawn func(func())
	// proved takes in what has shown that the trail leads where it was claimed to.
	onProven func(dst pathsel.IA, answer []found)
	local    pathsel.IA

	mu      sync.Mutex
	byKey   map[claimKey]*claim
	trails  map[trail]*trailClaims
	queue   []*claim
	workers int
	waiting int
}

type claimKey struct {
	ia    pathsel.IA
	trail trail
}

// claim is the question whether a trail leads to an AS. Its fields are guarded by claims.mu.
type claim struct {
	claimKey
	done  chan struct{} // closed with the answer; nil while there is no question
	pause time.Duration
	again time.Time // not asked before
}

// trailClaims is what all claims about one trail share. Its fields are guarded by claims.mu.
type trailClaims struct {
	asking  *claim
	again   time.Time // nothing is asked before
	waiting int
}

// ask has the claim of the route's remote checked in the background, unless its trail was asked
// about a moment ago. It returns the question, nil if there is none.
func (c *claims) ask(r *route, now time.Time) *claim {
	if len(r.trail) == 0 {
		return nil // from a neighbour who claims to be in another AS
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
	c.queue = append(c.queue, k)
	if c.workers < claimLookups {
		c.workers++
		c.spawn(c.work)
	}
	return k
}

// refuted tells whether the last answer to the route's claim was no.
func (c *claims) refuted(r *route) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.byKey[claimKey{r.remote.IA, r.trail}]
	return k != nil && k.pause > 0
}

// room makes room for one more claim. What is forgotten may be asked once more.
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

// work answers questions until there are none.
func (c *claims) work() {
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.workers--
			c.mu.Unlock()
			return
		}
		k := c.queue[0]
		c.queue = c.queue[1:]
		c.mu.Unlock()

		ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
		answer, _ := c.query(ctx, k.ia) // no answer is no proof
		cancel()
		proven := linksOf(answer).leadTo(c.local, k.ia, k.trail)
		if proven {
			c.onProven(k.ia, answer)
		}
		c.answered(k, proven, time.Now())
	}
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

// wait waits for the answer to a question of ask, for that long, unless too many wait already.
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

// newClaims has the claims of a host's strangers checked. A destination is remembered, and kept
// fresh, only once somebody has proven to be there: strangers cannot fill the table of paths.
func (h *Host) newClaims() *claims {
	return &claims{
		query:    func(ctx context.Context, dst pathsel.IA) ([]found, error) { return h.lookup.query(ctx, dst, false) },
		spawn:    h.lookup.spawn,
		onProven: h.lookup.add,
		local:    h.ia,
		byKey:    map[claimKey]*claim{},
		trails:   map[trail]*trailClaims{},
	}
}

// recognise takes in what is already known of the AS that the route's remote claims. It asks
// nobody.
func (h *Host) checkKnownLinks(r *route) {
	if r.proven.Load() {
		return
	}
	if _, ok := h.lookup.walk(h.ia, r.remote.IA, r.trail); ok {
		r.proven.Store(true)
	}
}

// stranger is who is at the other end of a connection that somebody else has begun.
type remoteAS struct {
	host  *Host
	route *route
	// reached says that what the remote has received to finish its handshake went through a router
	// of our AS, or, inside the AS, to the address itself.
	reached bool
}

// meeting is called before anything is sent to the remote.
func (h *Host) remoteAS(r *route) remoteAS {
	h.checkKnownLinks(r)
	return remoteAS{h, r, r.way.Load().source != fromUnknown}
}

// known tells whether the remote's ISD-AS is proven by now. On IP, where there is none, nothing is
// left to prove.
func (s remoteAS) isProven() bool { return s.host == nil || s.reached && s.route.proven.Load() }

// doubtful tells whether the remote's claim has been looked into, in vain.
func (s remoteAS) refuted() bool {
	return !s.isProven() && (s.trail() == "" || s.host.claims.refuted(s.route))
}

// trail is along which links the remote has received something; empty where those that it names
// mean nothing.
func (s remoteAS) trail() trail {
	if !s.reached {
		return ""
	}
	return s.route.trail
}

// proven tells whether the remote's ISD-AS is proven. If that is not known yet it is asked for in
// the background, and the answer is waited for at most so long.
func (s remoteAS) prove(ctx context.Context, wait time.Duration) bool {
	if s.isProven() || !s.reached {
		return s.isProven()
	}
	if k := s.host.claims.ask(s.route, time.Now()); k != nil && wait > 0 {
		s.host.claims.wait(ctx, k, wait)
	}
	return s.route.proven.Load()
}
