package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"braid/client/wire"
	"braid/pathsel"
	"braid/scionnet"
)

// offers holds the path-level peers that the engine may dial, by their engine addresses. The engine
// has no other way to the network. offers also keeps the slots of all engine addresses, their
// links, and the banned hosts and keys.
type offers struct {
	limits *wire.Limiter // of all connections
	mu     sync.Mutex
	byAddr map[string]*offer
	used   map[engineAddr]*link      // nil: there is none yet
	last   uint16                    // the slot that was taken last
	banned bounded[string, struct{}] // by a suspect's names
	// users are the peers that have lately used the host of an engine address. A ban of that host
	// by the engine is meant for them.
	users bounded[netip.Addr, []suspect]
	bans  int // the number of the engine's bans that were taken over
}

const (
	// maxBanned is the number of bans that are remembered. Each was paid for with wrong pieces.
	maxBanned = 4096
	// maxUsers is the number of engine addresses whose users are remembered. The engine bans within
	// about a second of a connection's end.
	maxUsers = 4096
	// maxUsersOfOne bounds the users that are remembered of one engine address.
	maxUsersOfOne = 64
)

// offer is one path-level peer of one transfer.
type offer struct {
	offers    *offers
	addr      engineAddr
	transport dialler
	peer      Peer
	path      pathsel.Path
	// obfuscate is the info hash with which the next connection is obfuscated; nil: it is not. Some
	// peers on TCP insist on obfuscation.
	obfuscate []byte
	// dialled is called after every attempt, and must not block.
	dialled func(*link, error)
	link    atomic.Pointer[link] // the last connection; nil: none yet
	ctx     context.Context      // ends when the offer is withdrawn
	cancel  context.CancelFunc
}

var (
	errNotOffered = errors.New("not an address that was offered")
	errKeyChanged = errors.New("the peer shows another key than on its other connections")
	errBanned     = errors.New("the host or its key is banned: it has sent wrong data")
	errSlots      = errors.New("too many connections with this host")
)

func newOffers() *offers {
	return &offers{
		byAddr: map[string]*offer{}, used: map[engineAddr]*link{},
		banned: bounded[string, struct{}]{most: maxBanned},
		users:  bounded[netip.Addr, []suspect]{most: maxUsers},
	}
}

// add makes an offer, which is valid until withdraw. It is for one transfer: if two transfers want
// the same path-level peer, they get two engine addresses.
func (t *offers) add(
	ctx context.Context, tr dialler, p Peer, path pathsel.Path, dialled func(*link, error),
) (*offer, error) {
	if t.isBanned(suspectOf(p.origin())) {
		return nil, errBanned
	}
	at, err := t.takeSlot(engineAddrOf(p))
	if err != nil {
		return nil, err
	}
	o := &offer{offers: t, addr: at, transport: tr, peer: p, path: path, dialled: dialled}
	o.ctx, o.cancel = context.WithCancel(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byAddr[at.String()] = o
	return o, nil
}

// withdraw ends the offer and an attempt under way. Connections stay, unless the peer's handshake
// is still to come: the engine would wait for it, even after the end of the torrent.
func (o *offer) withdraw() {
	o.cancel()
	if l := o.link.Load(); l != nil && !l.Greeted() {
		l.Close()
	}
	o.offers.mu.Lock()
	delete(o.offers.byAddr, o.addr.String())
	o.offers.mu.Unlock()
	o.offers.freeSlot(o.addr)
}

// takeSlot takes a free slot of the host. A slot is used again as late as possible: the engine
// could take a new connection for one that it has just lost.
func (t *offers) takeSlot(host netip.Addr) (engineAddr, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for range 1 << 16 {
		t.last++
		a := engineAddr{host, t.last}
		if _, taken := t.used[a]; a.slot != 0 && !taken {
			t.used[a] = nil
			return a, nil
		}
	}
	return engineAddr{}, errSlots
}

func (t *offers) freeSlot(a engineAddr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.used, a)
}

// attach notes the connection of an engine address, and who uses it. It refuses a connection with
// another key than the peer at its address has shown when it was dialled. An accepted connection
// only claims to come from that address.
func (t *offers) attach(l *link) error {
	s, at := suspectOf(l.Origin()), l.to
	if l.accepted {
		at = l.Peer()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if want, has := t.wantedLocked(at), l.Key(); want != nil && has != nil && *want != *has {
		return errKeyChanged
	}
	if _, taken := t.used[l.addr]; taken {
		t.used[l.addr] = l
	}
	users, _ := t.users.get(l.addr.host)
	if !slices.Contains(users, s) && len(users) < maxUsersOfOne {
		t.users.put(l.addr.host, append(slices.Clip(users), s))
	}
	return nil
}

// accepted are the connections that peers have opened.
func (t *offers) accepted() (out []*link) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.used {
		if l != nil && l.accepted {
			out = append(out, l)
		}
	}
	return out
}

// makeRoom tells whether there is a place for an accepted connection. Another one may have to end
// for it. It is called for one connection of a transport after another.
func (t *offers) makeRoom(l *link, log *slog.Logger) error {
	now := time.Now()
	var others []*link
	var taken []place
	for _, x := range t.accepted() {
		if x != l && x.transport == l.transport {
			others, taken = append(others, x), append(taken, x.place(now))
		}
	}
	victim, ok := inboundQuota.admit(taken, l.Origin())
	if !ok {
		return errBusy
	}
	if victim != noPlace {
		log.Debug("connection ended", "peer", others[victim].Peer(), "reason", errReplaced)
		others[victim].Close()
	}
	return nil
}

// linkAt is the connection behind an engine address; nil if there is none.
func (t *offers) linkAt(a engineAddr) *link {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.used[a]
}

func (t *offers) ban(names ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.banLocked(names)
}

func (t *offers) banLocked(names []string) {
	for _, n := range names {
		t.banned.put(n, struct{}{})
	}
}

// banAddrs bans the users of the engine addresses whose hosts the engine has banned: their keys,
// and their hosts if these are proven by now. hosts are all hosts that the engine has ever banned.
func (t *offers) banAddrs(hosts []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(hosts) == t.bans {
		return
	}
	t.bans = len(hosts)
	banned := map[netip.Addr]bool{}
	for _, h := range hosts {
		a, err := netip.ParseAddr(h)
		if err != nil {
			continue
		}
		banned[a] = true
		users, _ := t.users.get(a)
		for _, s := range users {
			t.banLocked(s.names())
		}
	}
	for at, l := range t.used {
		if l != nil && banned[at.host] {
			t.banLocked(suspectOf(l.Origin()).names())
		}
	}
}

func (t *offers) isBanned(s suspect) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range s.names() {
		if _, banned := t.banned.get(n); banned {
			return true
		}
	}
	return false
}

// wanted is the key that a peer must show: that of the open connections over which it was dialled.
// It is nil if any will do: after the last connection, the peer may come back with a new key.
func (t *offers) wanted(p Peer) *scionnet.PeerKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wantedLocked(p)
}

func (t *offers) wantedLocked(p Peer) *scionnet.PeerKey {
	for _, l := range t.used {
		if l != nil && !l.accepted && l.to == p && l.Key() != nil && !l.Closed() {
			return l.Key()
		}
	}
	return nil
}

// DialerNetwork implements the engine's Dialer.
func (t *offers) DialerNetwork() string { return engineAddr{}.Network() }

// Dial implements the engine's Dialer. It refuses addresses that were not offered. It returns a
// refusal not as an error but as a connection: see stillborn.
func (t *offers) Dial(ctx context.Context, addr string) (net.Conn, error) {
	l, err := t.connect(ctx, addr)
	if err == nil {
		return l, nil
	}
	return stillborn{err}, nil
}

func (t *offers) connect(ctx context.Context, addr string) (*link, error) {
	t.mu.Lock()
	o := t.byAddr[addr]
	t.mu.Unlock()
	if o == nil {
		return nil, errNotOffered
	}
	l, err := o.dial(ctx)
	o.dialled(l, err)
	return l, err
}

func (o *offer) dial(ctx context.Context) (*link, error) {
	if o.offers.isBanned(suspectOf(o.peer.origin())) {
		return nil, errBanned
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(o.ctx, cancel)()
	w, err := o.transport.Dial(ctx, o.peer, o.path, o.offers.wanted(o.peer))
	if err != nil {
		path := o.path.Fingerprint.Short()
		return nil, fmt.Errorf("connect to %s over path %s: %w", o.peer, path, err)
	}
	x, err := wire.Dialled(ctx, w, wire.Options{
		Addr: o.addr, Limits: o.offers.limits, Obfuscate: o.obfuscate,
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", o.peer, err)
	}
	l := newLink(x, w, o.transport.Name(), o.addr)
	l.to = o.peer
	o.link.Store(l)
	switch {
	case o.ctx.Err() != nil: // then withdraw may have looked at o.link before
		err = errNotOffered
	case o.offers.isBanned(suspectOf(l.Origin())):
		err = errBanned
	default:
		err = o.offers.attach(l)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("connect to %s: %w", o.peer, err)
	}
	return l, nil
}

// stillborn is a connection that could not be made. The engine gets it in place of an error. After
// an error it would ask connected peers for help with hole punching (BEP 55) towards an address
// that only we know, and panic because the address has no IP and port. It simply drops a connection
// that fails at once.
type stillborn struct{ err error }

var _ net.Conn = stillborn{}

func (s stillborn) Read([]byte) (int, error)  { return 0, s.err }
func (s stillborn) Write([]byte) (int, error) { return 0, s.err }
func (stillborn) Close() error                { return nil }
func (stillborn) LocalAddr() net.Addr         { return engineAddr{} }
func (stillborn) RemoteAddr() net.Addr        { return engineAddr{} }

// The engine panics if one of these returns an error.
func (stillborn) SetDeadline(time.Time) error      { return nil }
func (stillborn) SetReadDeadline(time.Time) error  { return nil }
func (stillborn) SetWriteDeadline(time.Time) error { return nil }
