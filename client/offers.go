package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"braid/pathsel"
	"braid/scionnet"
)

// offers is the only way from the engine to the network: the path-level peers that the engine may dial, by the
// face under which it knows them. It also keeps the slots of all faces, the keys that peers have shown, and
// the hosts that are banned.
type offers struct {
	limits *limits // of what is dialled
	mu     sync.Mutex
	byFace map[string]*offer
	used   map[face]struct{}
	last   map[netip.Addr]uint16
	pins   map[Peer]*pin
	banned map[netip.Addr]struct{}
}

// offer is one path-level peer of one transfer.
type offer struct {
	table     *offers
	face      face
	transport Transport
	peer      Peer
	path      pathsel.Path
	// veil is the info hash under which what goes over the next connection is obfuscated, as some peers on TCP will have it; nil: it is
	// not.
	veil []byte
	// dialled is told of every attempt, and must not block. The link is watched by nobody yet.
	dialled func(*link, error)
	// spent keeps the engine from dialling once more when the handshake has failed. It would then try the obfuscated
	// one, which makes sense for TCP, but not where all is encrypted already.
	spent  atomic.Bool
	ctx    context.Context // ends when the offer is withdrawn
	cancel context.CancelFunc
}

// pin is the key of an address-level peer: all its connections have shown the same.
type pin struct {
	key   scionnet.PeerKey
	links int
}

var (
	errNotOffered = errors.New("not an address that was offered")
	errKeyChanged = errors.New("the peer shows another key than on its other connections")
	errBanned     = errors.New("the host is banned: it has sent wrong data")
	errSlots      = errors.New("too many connections with this host")
)

func newOffers() *offers {
	return &offers{
		byFace: map[string]*offer{}, used: map[face]struct{}{}, last: map[netip.Addr]uint16{},
		pins: map[Peer]*pin{}, banned: map[netip.Addr]struct{}{},
	}
}

// add makes an offer, which stands until withdraw. The offer is for one transfer: where two want the same path-level
// peer they get two faces.
func (t *offers) add(ctx context.Context, tr Transport, p Peer, path pathsel.Path, dialled func(*link, error)) (*offer, error) {
	f, err := t.takeSlot(faceOf(p))
	if err != nil {
		return nil, err
	}
	o := &offer{table: t, face: f, transport: tr, peer: p, path: path, dialled: dialled}
	o.ctx, o.cancel = context.WithCancel(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byFace[f.String()] = o
	return o, nil
}

// withdraw ends the offer, and a dial that is under way. Its links live on.
func (o *offer) withdraw() {
	o.cancel()
	o.table.mu.Lock()
	delete(o.table.byFace, o.face.String())
	o.table.mu.Unlock()
	o.table.freeSlot(o.face)
}

// takeSlot takes the next free slot of the host. Slots come back into use as late as possible, so that the
// engine does not take a new connection for one that it has just lost.
func (t *offers) takeSlot(host netip.Addr) (face, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, banned := t.banned[host]; banned {
		return face{}, errBanned
	}
	for range 1 << 16 {
		t.last[host]++
		f := face{host, t.last[host]}
		if _, taken := t.used[f]; f.slot != 0 && !taken {
			t.used[f] = struct{}{}
			return f, nil
		}
	}
	return face{}, errSlots
}

func (t *offers) freeSlot(f face) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.used, f)
}

func (t *offers) ban(host netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.banned[host] = struct{}{}
}

func (t *offers) isBanned(host netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, banned := t.banned[host]
	return banned
}

// wanted is the key that the peer must show; nil if it has none yet.
func (t *offers) wanted(p Peer) *scionnet.PeerKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	if pin := t.pins[p]; pin != nil {
		k := pin.key
		return &k
	}
	return nil
}

// bind counts a link towards the peer's key; the first sets it. With the last link the key is forgotten, so that a
// peer may come back with a new one.
func (t *offers) bind(p Peer, k *scionnet.PeerKey) (unbind func(), err error) {
	if k == nil {
		return func() {}, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	have := t.pins[p]
	if have == nil {
		have = &pin{key: *k}
		t.pins[p] = have
	}
	if have.key != *k {
		return nil, errKeyChanged
	}
	have.links++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if have.links--; have.links == 0 && t.pins[p] == have {
			delete(t.pins, p)
		}
	}, nil
}

// DialerNetwork implements the engine's Dialer.
func (t *offers) DialerNetwork() string { return face{}.Network() }

// Dial implements the engine's Dialer. It refuses whatever was not offered, at once. A refusal is a connection too: see
// stillborn.
func (t *offers) Dial(ctx context.Context, addr string) (net.Conn, error) {
	l, err := t.connect(ctx, addr)
	if err == nil {
		return l, nil
	}
	return stillborn{err}, nil
}

func (t *offers) connect(ctx context.Context, addr string) (*link, error) {
	t.mu.Lock()
	o := t.byFace[addr]
	t.mu.Unlock()
	if o == nil || o.spent.Load() {
		return nil, errNotOffered
	}
	l, err := o.dial(ctx)
	o.spent.Store(err != nil || l.Key() != nil)
	o.dialled(l, err)
	return l, err
}

func (o *offer) dial(ctx context.Context) (*link, error) {
	if o.table.isBanned(o.face.host) {
		return nil, errBanned
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(o.ctx, cancel)()
	w, err := o.transport.Dial(ctx, o.peer, o.path, o.table.wanted(o.peer))
	if err != nil {
		return nil, fmt.Errorf("connect to %s over path %s: %w", o.peer, o.path.Fingerprint.Short(), err)
	}
	unbind, err := o.table.bind(o.peer, w.Key())
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("connect to %s: %w", o.peer, err)
	}
	if o.veil != nil && w.Key() == nil {
		raw := w
		defer context.AfterFunc(ctx, func() { raw.Close() })()
		if w, err = veil(ctx, raw, o.veil); err != nil {
			raw.Close()
			unbind()
			return nil, fmt.Errorf("connect to %s: %w", o.peer, err)
		}
	}
	return newLink(o.table.limits.wrap(w), o.transport.Name(), o.face, nil, unbind), nil
}
