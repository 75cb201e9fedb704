package server

import (
	"hash/maphash"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"braid/pathsel"
	"braid/tracker/wire"
)

// limiters bound the requests of each host and each AS, and of all hosts together whose AS is not
// proven.
type limiters struct{ hosts, ases, claimed limiter }

func (l *limiters) init() {
	l.hosts.init(limiterSlots)
	l.ases.init(limiterSlots)
	l.claimed.init(1)
}

// Refusals of too many requests. A minute is the shortest time that BEP 31 can express.
var (
	tooMany        = &wire.Failure{Reason: "too many requests from your address or network; slow down", RetryIn: time.Minute}
	tooManyClaimed = &wire.Failure{Reason: "the tracker has not verified your AS yet, and has too many such requests", RetryIn: time.Minute}
)

// claimedRate is how many requests without a proven ISD-AS are answered a second. An honest peer
// makes at most one of them. Without the bound a liar could make as many requests as all honest
// peers.
const claimedRate = 100

func (l *limiters) take(g *gate, r request) error {
	if r.claimed {
		if !l.claimed.take(limitKey{}, claimedRate, r.at) {
			return tooManyClaimed
		}
		return nil
	}
	if !l.hosts.take(limitKey{r.from.IA, block(r.from)}, g.cfg.PerHostRate, r.at) ||
		r.from.IsSCION() && !l.ases.take(limitKey{ia: r.from.IA}, g.cfg.PerASRate, r.at) {
		return tooMany
	}
	return nil
}

type limitKey struct {
	ia    pathsel.IA
	block [16]byte
}

// block is the host, or for IPv6 on IP the /64 of one customer.
func block(a wire.Addr) [16]byte {
	b := a.Host.As16()
	if a.Host.Is6() && !a.IsSCION() {
		clear(b[8:])
	}
	return b
}

// limiterSlots is the number of buckets, so memory is small and fixed. Two hosts may share a bucket
// by chance, but nobody can choose an address for it without the seed.
const limiterSlots = 1 << 16

// burst is how many seconds' worth of requests may come at once, as from a client that starts with
// many torrents.
const burst = 10

// limiter is a set of token buckets. Each is one number, the time until which its tokens are used
// up (GCRA).
type limiter struct {
	seed  maphash.Seed
	slots []atomic.Int64
	epoch time.Time
}

func (l *limiter) init(slots int) {
	l.seed, l.slots, l.epoch = maphash.MakeSeed(), make([]atomic.Int64, slots), time.Now()
}

// take counts one more request of the key, and reports whether it is within the rate in requests
// per second. A rate of 0 is no limit.
func (l *limiter) take(k limitKey, rate float64, at time.Time) bool {
	if rate <= 0 {
		return true
	}
	now := int64(at.Sub(l.epoch))
	step := int64(float64(time.Second) / rate)
	slot := &l.slots[maphash.Comparable(l.seed, k)%uint64(len(l.slots))]
	for {
		old := slot.Load()
		next := max(old, now) + step
		if next > now+burst*int64(time.Second)+step {
			return false
		}
		if slot.CompareAndSwap(old, next) {
			return true
		}
	}
}

// crowd is a listener with a bounded number of connections. When it is full, a new connection
// replaces the oldest one that has sent nothing. If there is none, it replaces one of a host with
// more connections than its own. So nobody can keep others out by holding connections open.
type crowd struct {
	net.Listener
	most int

	mu    sync.Mutex
	conns map[*crowdConn]struct{}
	hosts map[limitKey]int // number of connections
	// silent are connections that have sent nothing yet, the oldest first. It may contain closed
	// ones.
	silent []*crowdConn
}

type crowdConn struct {
	net.Conn
	crowd *crowd
	host  limitKey
	heard atomic.Bool
	once  sync.Once
}

func newCrowd(l net.Listener, most int) *crowd {
	return &crowd{Listener: l, most: most, conns: map[*crowdConn]struct{}{}, hosts: map[limitKey]int{}}
}

// Accept implements net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		k := &crowdConn{Conn: conn, crowd: c}
		if from, err := clientHost(conn.RemoteAddr().String()); err == nil {
			k.host = limitKey{block: block(from)}
		}
		victim, ok := c.enter(k)
		if victim != nil {
			victim.Close()
		}
		if ok {
			return k, nil
		}
		conn.Close()
	}
}

func (c *crowd) enter(k *crowdConn) (victim *crowdConn, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conns) >= c.most {
		for len(c.silent) > 0 && victim == nil {
			if c.isSilent(c.silent[0]) {
				victim = c.silent[0]
			}
			c.silent = c.silent[1:]
		}
		if victim == nil {
			victim = c.greedier(k.host)
		}
		if victim == nil {
			return nil, false
		}
		c.remove(victim)
	}
	c.conns[k] = struct{}{}
	c.hosts[k.host]++
	if len(c.silent) > 2*c.most {
		c.silent = slices.DeleteFunc(c.silent, func(s *crowdConn) bool { return !c.isSilent(s) })
	}
	c.silent = append(c.silent, k)
	return victim, true
}

// isSilent reports whether the connection is open and has sent nothing.
func (c *crowd) isSilent(k *crowdConn) bool {
	_, open := c.conns[k]
	return open && !k.heard.Load()
}

// crowdSample is how many connections are examined to find a greedy host. The host with most of
// them is hardly missed.
const crowdSample = 16

// greedier is a connection of a host that has more of them than the other host would have with one
// more, or nil.
func (c *crowd) greedier(than limitKey) (out *crowdConn) {
	examined, most := 0, c.hosts[than]+1
	for k := range c.conns {
		if n := c.hosts[k.host]; n > most {
			out, most = k, n
		}
		if examined++; examined == crowdSample {
			break
		}
	}
	return out
}

func (c *crowd) remove(k *crowdConn) {
	if _, there := c.conns[k]; !there {
		return
	}
	delete(c.conns, k)
	if c.hosts[k.host]--; c.hosts[k.host] == 0 {
		delete(c.hosts, k.host)
	}
}

func (k *crowdConn) Read(b []byte) (int, error) {
	n, err := k.Conn.Read(b)
	if n > 0 && !k.heard.Load() {
		k.heard.Store(true)
	}
	return n, err
}

func (k *crowdConn) Close() error {
	k.once.Do(func() {
		k.crowd.mu.Lock()
		defer k.crowd.mu.Unlock()
		k.crowd.remove(k)
	})
	return k.Conn.Close()
}
