package scionnet

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scionproto/scion/private/topology"

	"braid/pathsel"
)

// A route is one way to one remote port: what a UDP address is to plain QUIC. quic-go knows a route
// by a pseudo address, so that it takes two paths to one host for two remote addresses.
//
//	(remote address, trail)  <->  pseudo address  ->  dataplane path and next hop of now
//
// The pseudo address is a digest of remote and trail. A route that was dropped and comes back
// therefore has the same pseudo address again, and a connection goes on as if nothing had happened.
type route struct {
	remote Addr
	trail  trail
	pseudo *net.UDPAddr // never written after creation

	// way is how packets leave just now. It is swapped when hop fields are renewed, under live
	// connections.
	way      atomic.Pointer[way]
	previous atomic.Pointer[way] // the one before
	// template is what packets along the way of now begin with; see templateNow.
	template atomic.Pointer[template]
	// initial is the size of the last first packet that has arrived. The dialler pads it to what
	// its path's MTU allows, which is how the acceptor learns that.
	initial atomic.Int32
	large   largePackets
	// full is when a handshake of more than the least packets has last succeeded here, in
	// nanoseconds of Unix time.
	fullPassed atomic.Int64
	// gone says that the route has been pushed out of the table, for those who remember it.
	dropped atomic.Bool
	// proven says that the trail leads to the remote's AS (proof.go). It stays so: links do not
	// move.
	proven atomic.Bool

	pins      int           // connections that use it; guarded by routes.mu
	idle      *list.Element // in routes.loose if pins is 0; guarded by routes.mu
	replyKeys []string      // its keys in routes.byArrival; guarded by routes.mu
}

// way is the part of a route that hop fields make up. It is never changed, only replaced.
type way struct {
	raw     []byte // dataplane path; empty inside one AS
	nextHop netip.AddrPort
	expiry  time.Time // zero: does not end
	source  source
}

// source is where a way comes from, the most trustworthy first.
type source uint8

const (
	fromControlPlane source = iota // from the control plane, or inside the AS
	fromRouter                     // from a packet that a router of the AS has handed over, which has checked its own hop field
	fromNeighbour                  // from a packet that somebody else in the AS has handed over
	fromUnknown                    // the same, and our AS has no such interface: answers go to whoever handed the packet over
)

// outlasts tells whether w ends later than v.
func (w *way) outlasts(v *way) bool {
	return !v.expiry.IsZero() && (w.expiry.IsZero() || w.expiry.After(v.expiry))
}

// beats tells whether w is worth replacing v with. The lifetime that a packet's hop fields claim is
// its sender's word: it counts only against ways of the same source, or against the control plane's
// when that has ended.
func (w *way) beats(v *way, now time.Time) bool {
	if ended := !v.expiry.IsZero() && !now.Before(v.expiry); w.source == v.source || w.source == fromRouter && ended {
		return w.outlasts(v)
	}
	return w.source < v.source
}

type routeKey struct {
	remote Addr
	trail  trail
}

// maxLoose is the number of routes kept that no connection uses: those of handshakes under way and
// of connections just closed. A sender of packets from invented addresses fills it and pushes the
// oldest out; without a limit it would fill the memory.
const maxIdle = 4096

// shimPort is where a shim dispatcher listens on a host, which hands packets on to ports that the
// AS's routers do not reach, and where routers deliver SCMP requests.
const shimPort = topology.EndhostPort

// maxArrivals is how many raw paths a route remembers: the one in use, and the one before it while
// packets are still on their way. More would let a sender who varies unused bits fill the table.
const maxReplyKeys = 2

// routes holds the routes of a host. All its packet connections share it.
type routes struct {
	local pathsel.IA
	ip    netip.Addr // of the host
	// nextHop is the internal address of the local AS's router that has the interface.
	nextHop func(interfaceID uint16) (netip.AddrPort, bool)
	// hostPort is the underlay port for a port of a host in the local AS.
	hostPort func(port uint16) uint16

	mu         sync.RWMutex
	byKey      map[routeKey]*route
	byPseudo   map[netip.Addr]*route
	byReplyKey map[string]*route // by source address, port and raw path of a packet; see arrivalKey
	idle       list.List         // of *route without connections, the oldest first
}

func newRoutes(local pathsel.IA, ip netip.Addr, nextHop func(uint16) (netip.AddrPort, bool), hostPort func(uint16) uint16) *routes {
	return &routes{
		local: local, ip: ip, nextHop: nextHop, hostPort: hostPort,
		byKey:      map[routeKey]*route{},
		byPseudo:   map[netip.Addr]*route{},
		byReplyKey: map[string]*route{},
	}
}

// dial is the route to remote along t, pinned for the caller, who unpins it. The way is the control
// plane's, and is taken unless it has given one that lasts longer.
func (t *routes) dial(remote Addr, tr trail, w *way) *route {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.getOrAdd(routeKey{remote, tr}, w)
	if w.beats(r.way.Load(), time.Now()) {
		r.setWay(w)
	}
	r.proven.Store(true)
	return t.pinLocked(r)
}

// heard notes what a QUIC packet that has arrived tells of the route.
func (r *route) noteInitial(b []byte) {
	const longHeaderInitial = 0xc0 >> 4 // RFC 9000, section 17.2.2; the low bits are protected
	if len(b) >= leastPacket && b[0]>>4 == longHeaderInitial {
		r.initial.Store(int32(len(b)))
	}
}

// at is the route with that pseudo address, or nil.
func (t *routes) forAddr(pseudo net.Addr) *route {
	u, ok := pseudo.(*net.UDPAddr)
	if !ok {
		return nil
	}
	a, ok := netip.AddrFromSlice(u.IP)
	if !ok {
		return nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byPseudo[a]
}

// arrived is the route back to the sender of a packet that came over the raw dataplane path, from
// the underlay address that handed it to us. scratch is memory for a key; the result of appending
// to it is returned so that it can be used again. The error says why such a packet is foreign.
func (t *routes) replyRoute(src Addr, raw []byte, from netip.AddrPort, scratch []byte) (*route, []byte, error) {
	key := replyKey(scratch[:0], src, raw)
	t.mu.RLock()
	r := t.byReplyKey[string(key)]
	t.mu.RUnlock()
	if r != nil {
		return r, key, nil
	}
	r, err := t.addReplyRoute(src, raw, from, string(key))
	return r, key, err
}

func (t *routes) addReplyRoute(src Addr, raw []byte, from netip.AddrPort, key string) (*route, error) {
	back, h, err := reverseHops(raw)
	if err != nil {
		return nil, err
	}
	w := &way{raw: back, expiry: h.expiry, nextHop: from, source: fromUnknown}
	if len(back) == 0 {
		w.nextHop, w.source = netip.AddrPortFrom(src.Host, t.hostPort(src.Port)), fromControlPlane
	} else if hop, ok := t.nextHop(h.trail.first()); ok {
		// The topology knows where packets must go: what a shim on this host hands on comes from
		// elsewhere.
		w.nextHop, w.source = hop, fromNeighbour
		if from == hop || t.isShim(from) {
			w.source = fromRouter
		}
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.getOrAdd(routeKey{src, h.trail}, w)
	// The peer may have renewed its hop fields, or an old packet was late, or somebody beside us in
	// this AS sends invented ones to cut the way back.
	if v := r.way.Load(); v == w {
	} else if w.beats(v, time.Now()) {
		r.setWay(w)
	} else if w.source > fromRouter && w.source > v.source {
		return r, nil
	}
	if len(r.replyKeys) == maxReplyKeys {
		delete(t.byReplyKey, r.replyKeys[0])
		r.replyKeys = append(r.replyKeys[:0], r.replyKeys[1:]...)
	}
	r.replyKeys = append(r.replyKeys, key)
	t.byReplyKey[key] = r
	return r, nil
}

// renew gives the routes to ia that run along the trail the control plane's way.
func (t *routes) renew(ia pathsel.IA, ways map[trail]*way) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	now := time.Now()
	for k, r := range t.byKey {
		if w := ways[k.trail]; k.remote.IA == ia && w != nil && w.beats(r.way.Load(), now) {
			r.setWay(w)
		}
	}
}

// vouch takes in the links of paths to ia: routes along them do lead there.
func (t *routes) markProven(ia pathsel.IA, l links) {
	t.each(func(r *route) {
		if r.remote.IA == ia && !r.proven.Load() && l.leadTo(t.local, ia, r.trail) {
			r.proven.Store(true)
		}
	})
}

// inUse tells whether a connection to ia exists.
func (t *routes) inUse(ia pathsel.IA) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for k, r := range t.byKey {
		if k.remote.IA == ia && r.pins > 0 {
			return true
		}
	}
	return false
}

// each calls f for every route.
func (t *routes) each(f func(*route)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, r := range t.byKey {
		f(r)
	}
}

// live is the route to remote along the trail, nil unless a connection uses it.
func (t *routes) live(remote Addr, tr trail) *route {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if r := t.byKey[routeKey{remote, tr}]; r != nil && r.pins > 0 {
		return r
	}
	return nil
}

// fromRouter tells whether an underlay address is that of the router to which the route's packets
// go. Its port does not matter. A shim on this host hands on what others send.
func (t *routes) isNextHop(r *route, from netip.AddrPort) bool {
	return from.Addr().Unmap() == r.way.Load().nextHop.Addr() || t.isShim(from)
}

func (t *routes) isShim(from netip.AddrPort) bool {
	// A shim on a loopback address may send from another one.
	a := from.Addr().Unmap()
	return from.Port() == shimPort && (a == t.ip || a.IsLoopback() && t.ip.IsLoopback())
}

// take has packets leave along w from now on.
func (r *route) setWay(w *way) { r.previous.Store(r.way.Swap(w)) }

// sentAlong tells whether packets leave along the raw path that a router has quoted, or did before
// hop fields were renewed.
func (r *route) hasSent(quoted []byte) bool {
	was := r.previous.Load()
	return sameSent(r.way.Load().raw, quoted) || was != nil && sameSent(was.raw, quoted)
}

// pin keeps r until it is unpinned. It returns the route to use, another one with the same remote
// and trail if r has been pushed out of the table since the caller got it and the peer has sent
// again.
func (t *routes) pin(r *route) *route {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pinLocked(r)
}

func (t *routes) pinLocked(r *route) *route {
	k := routeKey{r.remote, r.trail}
	if now := t.byKey[k]; now != nil {
		r = now
	}
	t.byKey[k] = r
	t.byPseudo[r.pseudo.AddrPort().Addr()] = r
	r.dropped.Store(false)
	if r.pins++; r.idle != nil {
		t.idle.Remove(r.idle)
		r.idle = nil
	}
	return r
}

var errRouteDropped = errors.New("the route to the sender was dropped")

// pinInbound pins the route to the sender of a packet that has just arrived.
func (t *routes) pinInbound(pseudo net.Addr) (*route, error) {
	r := t.forAddr(pseudo)
	if r == nil {
		return nil, errRouteDropped
	}
	return t.pin(r), nil
}

func (t *routes) unpin(r *route) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.pins--; r.pins == 0 {
		r.large.reset() // the next peer at the address may be another program
		t.addIdle(r)
	}
}

func (t *routes) getOrAdd(k routeKey, w *way) *route {
	if r := t.byKey[k]; r != nil {
		return r
	}
	r := &route{remote: k.remote, trail: k.trail, pseudo: pseudoAddr(k)}
	r.way.Store(w)
	r.proven.Store(k.remote.IA == t.local && k.trail == "")
	t.byKey[k] = r
	t.byPseudo[r.pseudo.AddrPort().Addr()] = r
	t.addIdle(r)
	return r
}

func (t *routes) addIdle(r *route) {
	r.idle = t.idle.PushBack(r)
	if t.idle.Len() > maxIdle {
		t.drop(t.idle.Remove(t.idle.Front()).(*route))
	}
}

func (t *routes) drop(r *route) {
	r.idle = nil
	r.dropped.Store(true)
	delete(t.byKey, routeKey{r.remote, r.trail})
	delete(t.byPseudo, r.pseudo.AddrPort().Addr())
	for _, a := range r.replyKeys {
		delete(t.byReplyKey, a)
	}
	r.replyKeys = nil
}

// pseudoAddr is a unique local IPv6 address (RFC 4193) of 120 bits of digest: two routes that fell
// on one would mix up two peers.
func pseudoAddr(k routeKey) *net.UDPAddr {
	b := appendAddr(nil, k.remote)
	sum := sha256.Sum256(append(b, k.trail...))
	ip := make(net.IP, net.IPv6len)
	ip[0] = 0xfd
	copy(ip[1:], sum[:])
	return &net.UDPAddr{IP: ip, Port: int(k.remote.Port)}
}

func replyKey(b []byte, src Addr, raw []byte) []byte {
	return append(appendAddr(b, src), raw...)
}

func appendAddr(b []byte, a Addr) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(a.IA))
	ip := a.Host.As16()
	b = append(b, ip[:]...)
	return binary.BigEndian.AppendUint16(b, a.Port)
}
