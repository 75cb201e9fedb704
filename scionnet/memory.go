package scionnet

import (
	"net/netip"
	"sync"
	"time"

	"braid/pathsel"
)

// hostPath is a path and the host at its end, whose own network may be the narrowest part. All
// connections along it share what is known of it.
type hostPath struct {
	ia    pathsel.IA
	host  netip.Addr
	trail trail
}

func (r *route) hostPath() hostPath { return hostPath{r.remote.IA, r.remote.Host, r.trail} }

// memory is what connections have found out about their paths, for the next ones.
type memory struct {
	mu sync.Mutex
	of map[hostPath]*remembered

	hints map[pathsel.Fingerprint]hint // of paths from here
}

type remembered struct {
	rate  float64 // carried lately, in bytes a second
	full  bool    // the path carried no more; else the application may have had no more to send
	rtt   time.Duration
	at    time.Time // of that measurement
	users int       // live connections

	largePass time.Time // when larger packets than the least were last known to pass

	mtu      int // less than announced; believed until then
	mtuUntil time.Time
}

const (
	// rememberFor is how long what a path has carried is worth a try. What a start at it does if
	// that is not true any more is the congestion controller's concern, but it costs losses.
	rememberFor = 2 * time.Minute
	// mtuHolds is how long the host believes that a path's MTU is below the announced one. Then it
	// tries larger packets again.
	mtuHolds = 10 * time.Minute
	// maxRemembered bounds the table.
	maxRemembered = 4096
)

// get returns the entry of a path, which it adds if there is none. The caller holds m.mu.
func (m *memory) get(k hostPath) *remembered {
	if c := m.of[k]; c != nil {
		return c
	}
	if m.of == nil {
		m.of = map[hostPath]*remembered{}
	}
	for old, o := range m.of {
		if len(m.of) < maxRemembered {
			break
		}
		if o.users == 0 {
			delete(m.of, old)
		}
	}
	c := &remembered{}
	m.of[k] = c
	return c
}

// begin counts a connection, and is what its path is remembered to carry. That is nothing while
// another connection uses it, since it has only shown what both can share.
func (m *memory) begin(k hostPath, now time.Time) (remembered, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.get(k)
	c.users++
	return *c, c.users == 1 && c.rate > 0 && now.Sub(c.at) < rememberFor
}

func (m *memory) end(k hostPath) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.of[k]; c != nil {
		c.users--
	}
}

// note takes in what a connection has just carried. The best of the time remembered counts: an
// application that asks for less does not make the path slower.
func (m *memory) note(k hostPath, rate float64, full bool, rtt time.Duration, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.of[k]; c != nil && rtt > 0 && (rate >= c.rate || now.Sub(c.at) >= rememberFor) {
		c.rate, c.full, c.rtt, c.at = rate, full, rtt, now
	}
}

// heeds tells whether a connection along the path follows a hint: it is the only one, and no
// earlier one has filled the path lately.
func (m *memory) heeds(k hostPath, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.of[k]
	return c != nil && c.users == 1 && (!c.full || now.Sub(c.at) >= rememberFor)
}

// fullPass records that larger packets than the least have passed.
func (m *memory) fullPass(k hostPath, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.get(k).largePass = now
}

// passesFull tells whether they did lately.
func (m *memory) passesFull(k hostPath, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.of[k]
	return c != nil && now.Sub(c.largePass) < fullHolds
}

// mtu returns the MTU of a path if it is known to be less than announced.
func (m *memory) mtu(k hostPath, now time.Time) (mtu int, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.of[k]
	if c == nil || !now.Before(c.mtuUntil) {
		return 0, false
	}
	return c.mtu, true
}

// lowerMTU records an MTU, and tells whether it is less than the known one.
func (m *memory) lowerMTU(k hostPath, mtu int, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.get(k)
	if c.mtu <= mtu && now.Before(c.mtuUntil) {
		return false
	}
	c.mtu, c.mtuUntil = mtu, now.Add(mtuHolds)
	return true
}
