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

	epicpath "github.com/scionproto/scion/pkg/slayers/path/epic"
	"github.com/scionproto/scion/pkg/snet"
	snetpath "github.com/scionproto/scion/pkg/snet/path"
	"github.com/scionproto/scion/private/topology"

	"braid/pathsel"
)

// route is one path to one remote port, with the role that a UDP address has in plain QUIC. quic-go
// knows a route by a pseudo address, so two paths to one host are two remote addresses to it.
//
//	(remote address, trail)  <->  pseudo address  ->  current dataplane path and next hop
//
// The pseudo address is a digest of remote and trail. If a route is dropped and comes back, it has
// the same pseudo address, and its connections go on as if nothing had happened.
type route struct {
	remote Addr
	trail  trail
	pseudo *net.UDPAddr // never written after creation

	// way is the current dataplane path and next hop. It is replaced under live connections when
	// hop fields are renewed.
	way      atomic.Pointer[way]
	previous atomic.Pointer[way] // the way before that one
	// template is the header of packets along the current way; see templateFor.
	template atomic.Pointer[template]
	// initial is the size of the last Initial packet that has arrived. A dialler pads it to the
	// size that its path's MTU allows, so the acceptor learns that size.
	initial atomic.Int32
	large   largePackets
	// epic says that a connection was opened with EPIC.
	epic atomic.Bool
	// dropped says that the route is no longer in the table, for those who still hold it.
	dropped atomic.Bool
	// proven says that the trail leads to the remote's AS (proof.go). That stays true, since links
	// do not move.
	proven atomic.Bool

	spare     *way          // of the peer's packets, for when the current one expires; guarded by routes.mu
	pins      int           // number of connections that use it; guarded by routes.mu
	idle      *list.Element // its place in routes.idle if pins is 0; guarded by routes.mu
	replyKeys []string      // its keys in routes.byReplyKey; guarded by routes.mu
}

// way is the part of a route that depends on hop fields. It is never changed, only replaced.
type way struct {
	raw     []byte    // dataplane path, of the SCION type; empty inside one AS
	epic    *epicKeys // nil: packets are sent without EPIC
	nextHop netip.AddrPort
	expiry  time.Time // zero: never
	source  source
}

// source is where a way comes from, the most trustworthy first.
type source uint8

const (
	fromControlPlane source = iota // or inside the AS
	fromRouter                     // from a packet through a router of our AS, which has checked its own hop field
	fromNeighbour                  // from a packet that another host in our AS has passed on
	fromUnknown                    // the same, and our AS has no such interface: answers go back to that host
)

// dataplane is the path for snet. raw is a copy of the way's, which snet will modify.
func (w *way) dataplane(raw []byte) snet.DataplanePath {
	switch {
	case len(raw) == 0:
		return snetpath.Empty{}
	case w.epic != nil:
		return epicDataplane{w.epic, raw}
	default:
		return snetpath.SCION{Raw: raw}
	}
}

// headerLen is the length of the SCION and UDP headers of packets between two hosts along the way.
func (w *way) headerLen(a, b Addr) int {
	n := commonAndIAs + len(a.Host.AsSlice()) + len(b.Host.AsSlice()) + len(w.raw) + udpHeader
	if w.epic != nil {
		n += epicpath.MetadataLen
	}
	return n
}

// headerLen is that of packets from local along the route.
func (r *route) headerLen(local Addr) int { return r.way.Load().headerLen(local, r.remote) }

// through is the way through another address of the first router.
func (w *way) through(nextHop netip.AddrPort) *way {
	moved := *w
	moved.nextHop = nextHop
	return &moved
}

// outlasts tells whether w expires later than v.
func (w *way) outlasts(v *way) bool {
	return !v.expiry.IsZero() && (w.expiry.IsZero() || w.expiry.After(v.expiry))
}

// beats tells whether w should replace v. A sender can invent the lifetime of a packet's hop
// fields. Therefore it counts only among ways of the same source, or once the control plane's way
// has expired.
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

// maxIdle bounds the routes that no connection uses: those of handshakes under way and of
// connections just closed. Packets from invented addresses fill the table and push the oldest out;
// without a limit they would fill the memory.
const maxIdle = 4096

// shimPort is the port of a host's shim dispatcher, which passes packets on to ports that the AS
// does not reach. Routers deliver SCMP requests there, too.
const shimPort = topology.EndhostPort

// maxReplyKeys is the number of raw paths that a route remembers: the current one, and the one
// before while its packets may still arrive. With more, a sender could fill the table by varying
// unused bits.
const maxReplyKeys = 2

// routes holds the routes of a host, shared by all its packet connections.
type routes struct {
	local pathsel.IA
	ip    netip.Addr // of the host
	// nextHop is the internal address of our AS's router with that interface.
	nextHop func(interfaceID uint16) (netip.AddrPort, bool)
	// hostPort is the underlay port for a port of a host in our AS.
	hostPort func(port uint16) uint16

	mu         sync.RWMutex
	byKey      map[routeKey]*route
	byPseudo   map[netip.Addr]*route
	byReplyKey map[string]*route // by source address, port and raw path of a packet
	idle       list.List         // of *route without connections, oldest first
}

func newRoutes(
	local pathsel.IA, ip netip.Addr,
	nextHop func(uint16) (netip.AddrPort, bool), hostPort func(uint16) uint16,
) *routes {
	return &routes{
		local: local, ip: ip, nextHop: nextHop, hostPort: hostPort,
		byKey:      map[routeKey]*route{},
		byPseudo:   map[netip.Addr]*route{},
		byReplyKey: map[string]*route{},
	}
}

// dial returns the route to remote along tr, pinned; the caller unpins it. It uses the control
// plane's way w, unless an earlier one expires later.
func (t *routes) dial(remote Addr, tr trail, w *way) *route {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.getOrAdd(routeKey{remote, tr}, w)
	begins := w.epic != nil && r.epic.CompareAndSwap(false, true)
	if begins {
		r.large.shrink(epicpath.MetadataLen)
	}
	if begins || w.beats(r.way.Load(), time.Now()) {
		r.setWay(w)
	}
	r.proven.Store(true)
	return t.pinLocked(r)
}

// noteInitial records the size of a packet that has arrived, if it is an Initial packet.
func (r *route) noteInitial(b []byte) {
	const longHeaderInitial = 0xc0 >> 4 // RFC 9000, section 17.2.2; the low bits are protected
	if len(b) >= leastPacket && b[0]>>4 == longHeaderInitial {
		r.initial.Store(int32(len(b)))
	}
}

// forAddr returns the route with that pseudo address, or nil.
func (t *routes) forAddr(pseudo net.Addr) *route {
	u, ok := pseudo.(*net.UDPAddr)
	if !ok {
		return nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byPseudo[u.AddrPort().Addr()]
}

// replyRoute returns the route back to the sender of a packet that came over a raw dataplane path,
// from an underlay address. It builds a key in scratch and returns that memory for the next call.
// The error says why the packet is not accepted.
func (t *routes) replyRoute(src Addr, raw []byte, from netip.AddrPort, scratch []byte) (*route, []byte, error) {
	key := append(appendAddr(scratch[:0], src), raw...)
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
		if from.Addr() == src.Host && from.Port() == src.Port {
			w.nextHop = from // it has just come from there, whatever the AS's routers deliver to
		}
	} else if hop, ok := t.nextHop(h.trail.first()); ok {
		// The topology knows the next hop: a shim on this host only passes packets on.
		w.nextHop, w.source = hop, fromNeighbour
		if from == hop || t.isShim(from) {
			w.source = fromRouter
		}
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.getOrAdd(routeKey{src, h.trail}, w)
	// The peer may have renewed its hop fields, the packet may be old, or another host in this AS
	// may send invented hop fields to cut the way back.
	if v := r.way.Load(); v == w {
	} else if w.beats(v, time.Now()) {
		r.setWay(w)
	} else if w.source > fromRouter && w.source > v.source {
		return r, nil
	} else if w.source == fromRouter && (r.spare == nil || w.outlasts(r.spare)) {
		r.spare = w
	}
	if len(r.replyKeys) == maxReplyKeys {
		delete(t.byReplyKey, r.replyKeys[0])
		r.replyKeys = append(r.replyKeys[:0], r.replyKeys[1:]...)
	}
	r.replyKeys = append(r.replyKeys, key)
	t.byReplyKey[key] = r
	return r, nil
}

// learn takes in the control plane's paths to ia: it replaces the ways of the routes there, and
// marks those as proven along which the links of the paths lead.
func (t *routes) learn(ia pathsel.IA, paths []found) {
	now, links := time.Now(), linksOf(paths)
	ways := make(map[trail]*way, len(paths))
	for _, f := range paths {
		ways[f.trail] = f.way
	}
	t.each(func(r *route) {
		if r.remote.IA != ia {
			return
		}
		if w := ways[r.trail]; w != nil && w.beats(r.way.Load(), now) {
			r.setWay(w)
		}
		if !r.proven.Load() && links.leadTo(t.local, ia, r.trail) {
			r.proven.Store(true)
		}
	})
}

// renew makes the spare way the current one if that has expired.
func (t *routes) renew(r *route, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.spare != nil && r.spare.beats(r.way.Load(), now) {
		r.setWay(r.spare)
	}
}

// replaceWays replaces each way by what f returns for it.
func (t *routes) replaceWays(f func(trail, *way) *way) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.byKey {
		was := r.way.Load()
		if now := f(r.trail, was); now != was {
			r.setWay(now)
		}
		if r.spare != nil {
			r.spare = f(r.trail, r.spare)
		}
	}
}

// inUse tells whether there is a connection to ia.
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

func (t *routes) each(f func(*route)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, r := range t.byKey {
		f(r)
	}
}

// live returns the route to remote along the trail, or nil if no connection uses it.
func (t *routes) live(remote Addr, tr trail) *route {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if r := t.byKey[routeKey{remote, tr}]; r != nil && r.pins > 0 {
		return r
	}
	return nil
}

// isNextHop tells whether an underlay address is that of the router to which the route's packets
// go, on any port, or that of this host's shim, which passes on packets from others.
func (t *routes) isNextHop(r *route, from netip.AddrPort) bool {
	return from.Addr().Unmap() == r.way.Load().nextHop.Addr() || t.isShim(from)
}

func (t *routes) isShim(from netip.AddrPort) bool {
	// A shim on a loopback address may send from another one.
	a := from.Addr().Unmap()
	return from.Port() == shimPort && (a == t.ip || a.IsLoopback() && t.ip.IsLoopback())
}

// setWay makes w the current way.
func (r *route) setWay(w *way) {
	if w.epic != nil && !r.epic.Load() {
		plain := *w
		plain.epic, w = nil, &plain
	}
	r.previous.Store(r.way.Swap(w))
}

// hasSent tells whether packets use the raw path that a router has quoted, or did before hop fields
// were renewed.
func (r *route) hasSent(quoted []byte) bool {
	was := r.previous.Load()
	return sameSent(r.way.Load().raw, quoted) || was != nil && sameSent(was.raw, quoted)
}

// pin keeps r in the table until it is unpinned. It returns the route to use: another one with the
// same remote and trail, if r was dropped and the peer has sent again.
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

// pseudoAddr is a unique local IPv6 address (RFC 4193) with 120 bits of a digest. If two routes had
// the same one, two peers would be mixed up.
func pseudoAddr(k routeKey) *net.UDPAddr {
	b := appendAddr(nil, k.remote)
	sum := sha256.Sum256(append(b, k.trail...))
	ip := make(net.IP, net.IPv6len)
	ip[0] = 0xfd
	copy(ip[1:], sum[:])
	return &net.UDPAddr{IP: ip, Port: int(k.remote.Port)}
}

func appendAddr(b []byte, a Addr) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(a.IA))
	ip := a.Host.As16()
	b = append(b, ip[:]...)
	return binary.BigEndian.AppendUint16(b, a.Port)
}
