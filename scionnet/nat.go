package scionnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/scionproto/scion/pkg/stun"

	"braid/scionnet/quic"
)

// A router of the AS delivers to the underlay address that the SCION header names. Behind a NAT
// that must be the address at which the router sees this host. Routers tell it: they answer STUN
// requests (RFC 8489) at their internal address. All packets from other ASes come from these
// routers. So one mapping for each router is enough, however strict the NAT is, and every peer can
// reach the host as long as the mappings live.

// NAT says whether a host asks its AS's routers for the address at which they see it.
type NAT string

const (
	NATAuto NAT = ""    // each router once; as long as a port is open if there is a NAT
	NATOn   NAT = "on"  // as long as a port is open
	NATOff  NAT = "off" // never: the host is reached at its own address
)

// ParseNAT reads auto, on or off.
func ParseNAT(s string) (NAT, error) {
	switch s {
	case "auto", "":
		return NATAuto, nil
	case "on", "off":
		return NAT(s), nil
	}
	return "", errors.New("want auto, on or off")
}

const (
	// natRenew is the time between requests while nothing changes. NATs forget a mapping after 30
	// seconds at the earliest (nf_conntrack_udp_timeout of Linux).
	natRenew = 20 * time.Second
	// natLook is how often a host behind a NAT looks whether routers have fallen silent, and
	// natSilence is the silence, while packets are sent, after which it asks whether the mapping is
	// the same. A needless question costs 48 bytes.
	natLook    = 500 * time.Millisecond
	natSilence = time.Second
	// natRetry is the pause before an unanswered request is repeated; it doubles each time.
	natRetry = 500 * time.Millisecond
	// natWait is how long the opening of a port waits for routers, each of them once in the life of
	// the host: routers before version 0.15 of scionproto do not answer.
	natWait = 500 * time.Millisecond
	// maxRouters bounds the routers that are asked.
	maxRouters = 64
)

// natView is what the ports of a host have learned about a router.
type natView uint8

const (
	natUnknown natView = iota // or at another address
	natNone                   // it sees this host at its own address
	natMute                   // it has not answered
)

// mapper knows under which addresses the AS's routers see one socket. It is nil in mode off.
type mapper struct {
	host       *Host
	local      Addr
	socket     *net.UDPConn
	mappings   atomic.Pointer[[]*mapping] // sorted by router; the slice is never changed, only replaced
	of         *map[uint16]netip.AddrPort // the AS's interfaces from which they were made
	translated atomic.Bool                // some router sees another address than the local one
	onMove     atomic.Pointer[func(router netip.AddrPort, now Addr)]

	answers chan natAnswer
	poke    chan struct{} // another port of the host has a new address, or the AS other routers
	stop    context.CancelFunc
	done    chan struct{}
}

// mapping is the address at which one router sees the socket.
type mapping struct {
	router      netip.AddrPort
	seen        atomic.Pointer[Addr] // nil: the router has not answered
	sent, heard atomic.Bool          // packets since the last look
	question                         // belongs to the goroutine of mapper.run
}

type natAnswer struct {
	of *mapping
	tx stun.TxID
	at netip.AddrPort
}

// question decides when to ask a router.
type question struct {
	tx     stun.TxID
	open   bool      // the request with that ID has no answer yet
	tries  int       // requests without an answer, after the first moments
	next   time.Time // when to ask again
	silent time.Time // since when nothing has come back; zero: something has
}

func unanswered(x *mapping) bool { return x.seen.Load() == nil }

// due tells whether to ask now. sent and heard tell whether packets went to the router, and came
// from it, since the last call.
func (q *question) due(now time.Time, sent, heard bool) bool {
	switch {
	case heard:
		q.silent = time.Time{}
	case sent && q.silent.IsZero():
		q.silent = now
	}
	if !q.silent.IsZero() && now.Sub(q.silent) >= natSilence && q.tries == 0 {
		q.next = now
	}
	if now.Before(q.next) {
		return false
	}
	q.next = now.Add(min(natRetry<<min(q.tries, 10), natRenew))
	q.tries++
	return true
}

func (q *question) answered(now time.Time) {
	*q = question{next: now.Add(natRenew)}
}

// newMapper asks the routers at which address they see the socket, which nobody reads yet. In mode
// auto, it does not ask those that have seen another port at its own address.
func (h *Host) newMapper(ctx context.Context, socket *net.UDPConn) (*mapper, error) {
	if h.cfg.NAT == NATOff {
		return nil, nil
	}
	m := h.mapperFor(socket)
	for _, x := range m.all() {
		if h.cfg.NAT == NATAuto && h.natView(x.router) == natNone {
			x.seen.Store(&m.local)
		}
	}
	return m, m.discover(ctx)
}

func (h *Host) mapperFor(socket *net.UDPConn) *mapper {
	m := &mapper{
		host: h, local: h.addrOf(socket), socket: socket,
		answers: make(chan natAnswer, 2*maxRouters), poke: make(chan struct{}, 1),
	}
	m.mappings.Store(new([]*mapping))
	m.follow()
	return m
}

// follow notices routers that the AS has added, and forgets those that it has removed.
func (m *mapper) follow() {
	now := m.host.interfaces.Load()
	if now == m.of {
		return
	}
	m.of = now
	var mappings []*mapping
	for _, r := range m.host.routers() {
		x := m.mapping(r)
		if x == nil {
			x = &mapping{router: r}
		}
		mappings = append(mappings, x)
	}
	m.mappings.Store(&mappings)
}

func (m *mapper) all() []*mapping { return *m.mappings.Load() }

// mapping is that of a router; nil if there is no such router.
func (m *mapper) mapping(router netip.AddrPort) *mapping {
	all := m.all()
	i, ok := slices.BinarySearchFunc(all, router, func(x *mapping, r netip.AddrPort) int {
		return x.router.Compare(r)
	})
	if !ok {
		return nil
	}
	return all[i]
}

// discover waits for the first answers.
func (m *mapper) discover(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = m.socket.SetReadDeadline(time.Unix(1, 0)) })
	err := m.awaitAnswers(ctx)
	if !stop() && err == nil {
		err = ctx.Err() // the deadline may come at any moment, and nobody could read from the socket
	}
	return errors.Join(err, m.socket.SetReadDeadline(time.Time{}))
}

func (m *mapper) awaitAnswers(ctx context.Context) error {
	start := time.Now()
	var awaited []*mapping
	for _, x := range m.all() {
		if m.host.natView(x.router) != natMute {
			awaited = append(awaited, x)
		}
	}
	open := func() bool { return slices.ContainsFunc(awaited, unanswered) }
	b := make([]byte, 2048)
	for again := range 3 {
		m.ask(unanswered)
		if err := m.socket.SetReadDeadline(start.Add(m.host.natWait * time.Duration(again+1) / 3)); err != nil {
			return err
		}
		for open() {
			n, from, err := m.socket.ReadFromUDPAddrPort(b)
			if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
				return errors.Join(err, ctx.Err())
			}
			if err != nil {
				break // the deadline, or a router that is down
			}
			from = unmapped(from)
			if a, ok := m.parse(b[:n], from); ok {
				m.accept(a, time.Now())
			}
		}
		if !open() {
			break
		}
	}
	for _, x := range m.all() {
		if unanswered(x) {
			m.host.setNATView(x.router, natMute)
		}
	}
	return nil
}

// start begins to renew the mappings. Somebody reads the socket now, and calls handle.
func (m *mapper) start() {
	if m == nil {
		return
	}
	var ctx context.Context
	ctx, m.stop = context.WithCancel(context.Background())
	m.done = make(chan struct{})
	m.host.mu.Lock()
	m.host.mappers[m] = struct{}{}
	m.host.mu.Unlock()
	go m.run(ctx)
}

// close waits until nothing is asked any more. The socket is closed by then.
func (m *mapper) close() {
	if m != nil && m.stop != nil {
		m.stop()
		<-m.done
	}
}

func (m *mapper) run(ctx context.Context) {
	defer close(m.done)
	defer func() {
		m.host.mu.Lock()
		delete(m.host.mappers, m)
		m.host.mu.Unlock()
	}()
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-m.answers:
			m.accept(a, time.Now())
			continue
		case <-m.poke:
			for _, x := range m.all() {
				x.next = time.Time{}
			}
		case <-tick.C:
		}
		m.follow()
		now, wait, renew := time.Now(), natRenew, m.host.cfg.NAT == NATOn
		if m.translated.Load() {
			wait, renew = natLook, true
		}
		m.ask(func(x *mapping) bool {
			return (renew || unanswered(x)) && x.due(now, x.sent.Swap(false), x.heard.Swap(false))
		})
		tick.Reset(wait)
	}
}

func (m *mapper) ask(due func(*mapping) bool) {
	for _, x := range m.all() {
		if !due(x) {
			continue
		}
		x.tx, x.open = stun.NewTxID(), true
		if _, err := m.socket.WriteToUDPAddrPort(stun.Request(x.tx), x.router); err != nil {
			m.host.log.Debug("STUN request not sent", "router", x.router, "error", err)
		}
	}
}

// isSTUN tells whether a packet, which is not a SCION packet, may be a router's answer.
func isSTUN(b []byte) bool { return stun.Is(b) }

// handle takes a packet from a router for which isSTUN is true. It never waits.
func (m *mapper) handle(b []byte, from netip.AddrPort) {
	if m == nil {
		return
	}
	if a, ok := m.parse(b, from); ok {
		select {
		case m.answers <- a:
		default: // the router is asked again
		}
	}
}

func (m *mapper) parse(b []byte, from netip.AddrPort) (natAnswer, bool) {
	x := m.mapping(from)
	if x == nil || !isSTUN(b) {
		return natAnswer{}, false
	}
	tx, at, err := stun.ParseResponse(b)
	at = unmapped(at)
	if err != nil || at.Port() == 0 || at.Addr().IsUnspecified() || at.Addr().Is4() != m.local.Host.Is4() {
		return natAnswer{}, false
	}
	return natAnswer{x, tx, at}, true
}

// accept takes a router's answer to the last request.
func (m *mapper) accept(a natAnswer, now time.Time) {
	x := a.of
	if a.tx != x.tx || !x.open {
		return
	}
	x.answered(now)
	seen := Addr{IA: m.local.IA, Host: a.at.Addr(), Port: a.at.Port()}
	was := x.seen.Swap(&seen)
	if was != nil && *was == seen {
		return
	}
	if seen == m.local {
		m.host.setNATView(x.router, natNone)
	} else {
		level := slog.LevelDebug
		if !m.host.behindNAT.Load() || was != nil {
			level = slog.LevelInfo
		}
		m.host.log.Log(context.Background(), level, "the host is behind a NAT",
			"local", m.local, "seen_as", seen, "by_router", x.router)
		m.translated.Store(true)
		m.host.setNATView(x.router, natUnknown)
		m.host.behindNAT.Store(true)
	}
	if m.host.underlayPort(seen.Port) != seen.Port && seen != m.local && m.local.Port != shimPort {
		from, to := m.host.Ports()
		m.host.log.Warn((&NATPortError{m.local, seen, from, to}).Error())
	}
	if was == nil {
		return
	}
	m.host.askAgain(m)
	if f := m.onMove.Load(); f != nil {
		(*f)(x.router, seen)
	}
}

// NATPortError says that a NAT maps a port to one at which the AS does not deliver.
type NATPortError struct {
	Local, Seen Addr
	From, To    uint16 // the range to which the AS delivers
}

func (e *NATPortError) Error() string {
	return fmt.Sprintf("the NAT maps %s to port %d, and AS %s delivers packets to ports %d-%d only: "+
		"let the NAT use these ports (nftables: masquerade to :%[4]d-%[5]d), "+
		"or ask the AS for a wider dispatched_ports",
		netip.AddrPortFrom(e.Local.Host, e.Local.Port), e.Seen.Port, e.Local.IA, e.From, e.To)
}

// isOn tells whether some router sees another address than the local one.
func (m *mapper) isOn() bool { return m != nil && m.translated.Load() }

// source is the address for the headers of packets along w. Inside the AS, it is the local one.
func (m *mapper) source(local Addr, w *way) Addr {
	if !m.isOn() || len(w.raw) == 0 {
		return local
	}
	x := m.mapping(w.nextHop)
	if x != nil && !x.sent.Load() {
		x.sent.Store(true)
	}
	return x.seenOr(local)
}

// target is the address that packets from an underlay address name. It notes that one has arrived.
func (m *mapper) target(local Addr, from netip.AddrPort) Addr {
	if !m.isOn() {
		return local
	}
	x := m.mapping(unmapped(from))
	if x != nil && !x.heard.Load() {
		x.heard.Store(true)
	}
	return x.seenOr(local)
}

// seenOr is the address at which the router sees the socket, or the local one.
func (x *mapping) seenOr(local Addr) Addr {
	if x != nil {
		if a := x.seen.Load(); a != nil {
			return *a
		}
	}
	return local
}

// public is the address for peers in other ASes. If the routers see different addresses, it is that
// of most of them: packets through the others reach only a host that has dialled.
func (m *mapper) public(local Addr) Addr {
	if !m.isOn() {
		return local
	}
	best, most := local, 0
	count := map[Addr]int{}
	for _, x := range m.all() {
		a := x.seen.Load()
		if a == nil {
			continue
		}
		if count[*a]++; count[*a] > most {
			best, most = *a, count[*a]
		}
	}
	return best
}

// setOnMove has f called whenever a router sees the socket at another address than before.
func (m *mapper) setOnMove(f func(router netip.AddrPort, now Addr)) {
	if m != nil {
		m.onMove.Store(&f)
	}
}

func (h *Host) natView(router netip.AddrPort) natView {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.natViews[router]
}

func (h *Host) setNATView(router netip.AddrPort, v natView) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.natViews[router] = v
}

// askAgain has all ports but one ask for their addresses: the NAT has probably changed them, too.
func (h *Host) askAgain(but *mapper) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for m := range h.mappers {
		if m != but {
			notify(m.poke)
		}
	}
}

// MovedError is the end of a connection whose peer is seen at another address from now on.
type MovedError struct {
	To Addr // zero: unknown, or it was this host that has moved
}

func (e *MovedError) Error() string {
	if e.To == (Addr{}) {
		return "a NAT has given this host another address"
	}
	return "a NAT has given the peer the address " + e.To.String()
}

// movedTo reads the peer's new address.
func movedTo(e *quic.ApplicationError) *MovedError {
	a, err := ParseAddr(e.ErrorMessage)
	if !e.Remote || err != nil || a.Port == 0 {
		return &MovedError{}
	}
	return &MovedError{To: a}
}

// MovedTo is the peer's new address if the connection has ended because a NAT has given it one. It
// is in the AS in which the peer was proven to be, and not in ours: no router sees peers there.
func (c *Conn) MovedTo() (Addr, bool) {
	app, ok := errors.AsType[*quic.ApplicationError](context.Cause(c.quic.Context()))
	if !ok || app.ErrorCode != codeMoved {
		return Addr{}, false
	}
	to := movedTo(app).To
	return to, to.IA == c.route.remote.IA && to.IA != c.endpoint.host.ia && c.Proven()
}

// moved ends the connections whose packets to us come from that router. Their peers still send to
// the old address; the close tells them the new one.
func (e *Endpoint) moved(router netip.AddrPort, now Addr) {
	for _, c := range e.list() {
		if c.route.way.Load().nextHop == router {
			c.quic.CloseWithError(codeMoved, now.String())
		}
	}
}

// RouterView is what a border router of the AS says about the address of this host.
type RouterView struct {
	Router netip.AddrPort // its internal address
	Local  Addr           // of the port that has asked
	Seen   Addr           // the same port as the router sees it; zero: it has not answered
}

// AskRouters asks all border routers of the AS at which address they see a new port of this host.
func (h *Host) AskRouters(ctx context.Context) ([]RouterView, error) {
	socket, err := h.listenUDP(0)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	m := h.mapperFor(socket)
	if err := m.discover(ctx); err != nil {
		return nil, err
	}
	var out []RouterView
	for _, x := range m.all() {
		out = append(out, RouterView{Router: x.router, Local: m.local, Seen: x.seenOr(Addr{})})
	}
	return out, nil
}
