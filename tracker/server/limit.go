package server

import (
	"hash/maphash"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"braid/pathsel"
	"braid/tracker/wire"
)

// limiters bound how many requests one host and one AS may make, and all who only claim to be in an AS together.
type limiters struct{ hosts, ases, claimed limiter }

func (l *limiters) init() {
	l.hosts.init(limiterSlots)
	l.ases.init(limiterSlots)
	l.claimed.init(1)
}

// tooMany and tooManyClaimed ask for patience. A minute is the least that BEP 31 can say.
var (
	tooMany        = &wire.Failure{Reason: "too many requests from your address or network; slow down", RetryIn: time.Minute}
	tooManyClaimed = &wire.Failure{Reason: "the tracker cannot tell yet whether you are in the AS that you say, and has many such requests", RetryIn: time.Minute}
)

// claimedRate is how many requests a second are answered, all together, whose ISD-AS is only claimed. An honest peer makes one of
// them at the most; without the bound a liar could ask as often as all honest ones.
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

// block is the host, or for IPv6 on IP the /64 that belongs to one customer.
func block(a wire.Addr) [16]byte {
	b := a.Host.As16()
	if a.Host.Is6() && !a.IsSCION() {
		clear(b[8:])
	}
	return b
}

// limiterSlots is the number of buckets. Two hosts may fall on one and then share it; to make them by intent needs the
// seed. It is small, fixed memory, however many addresses ask.
const limiterSlots = 1 << 16

// burst is how many seconds' worth of requests may come at once: a client that starts with many torrents.
const burst = 10

// limiter is token buckets of which each is one number, the time until which it is used up (GCRA).
type limiter struct {
	seed  maphash.Seed
	slots []atomic.Int64
	epoch time.Time
}

func (l *limiter) init(slots int) {
	l.seed, l.slots, l.epoch = maphash.MakeSeed(), make([]atomic.Int64, slots), time.Now()
}

// take tells whether one more request of the key is within the rate, in requests per second; 0 is no limit.
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

// crowd is a listener with a bounded number of connections. When it is full the one that has waited longest without
// having sent anything makes room, and if there is none one of a host with many, for a host with fewer: those who hold
// connections to keep others out lose theirs.
type crowd struct {
	net.Listener
	most int

	mu    sync.Mutex
	conns map[*crowdConn]struct{}
	hosts map[limitKey]int // connections of each
	// silent are those that have sent nothing yet, the oldest first; closed ones are passed over.
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
			v := c.silent[0]
			c.silent = c.silent[1:]
			if _, open := c.conns[v]; open && !v.heard.Load() {
				victim = v
			}
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
		still := c.silent[:0]
		for _, s := range c.silent {
			if _, open := c.conns[s]; open && !s.heard.Load() {
				still = append(still, s)
			}
		}
		clear(c.silent[len(still):])
		c.silent = still
	}
	c.silent = append(c.silent, k)
	return victim, true
}

// crowdSample is how many connections are looked at for one of a host with many. Who has most of them is hardly missed.
const crowdSample = 16

// greedier is a connection of a host that has more of them than this one would have with one more; nil if none was found.
func (c *crowd) greedier(than limitKey) (out *crowdConn) {
	looked, most := 0, c.hosts[than]+1
	for k := range c.conns {
		if n := c.hosts[k.host]; n > most {
			out, most = k, n
		}
		if looked++; looked == crowdSample {
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
