package client

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
)

// Bounds of accepted connections. A session serves hundreds of peers; what one host may have is enough for several
// peers on it with all their paths.
const (
	maxAccepted        = 1024
	maxAcceptedPerHost = 128
)

// inbound is the engine's listener: accepted connections of all transports.
type inbound struct {
	addr  net.Addr
	queue chan *link
	ended chan struct{}
	once  sync.Once

	mu      sync.Mutex
	live    map[string]*link // by face
	perHost map[netip.Addr]int
}

// newInbound makes a listener that tells peers the port of the first TCP address, if there is any: peers of a
// SCION host are not reached by a port alone.
func newInbound(listening []Peer) *inbound {
	in := &inbound{addr: face{}, queue: make(chan *link), ended: make(chan struct{}), live: map[string]*link{}, perHost: map[netip.Addr]int{}}
	for _, p := range listening {
		if ip, err := netip.ParseAddr(p.host); err == nil {
			in.addr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, p.port))
			break
		}
	}
	return in
}

var errBusy = errors.New("too many connections are accepted already")

func (in *inbound) add(ctx context.Context, l *link) error {
	in.mu.Lock()
	if len(in.live) >= maxAccepted || in.perHost[l.face.host] >= maxAcceptedPerHost {
		in.mu.Unlock()
		return errBusy
	}
	in.live[l.face.String()] = l
	in.perHost[l.face.host]++
	in.mu.Unlock()
	select {
	case in.queue <- l:
		return nil
	case <-ctx.Done():
		in.remove(l)
		return ctx.Err()
	}
}

func (in *inbound) remove(l *link) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.live[l.face.String()] != l {
		return
	}
	delete(in.live, l.face.String())
	if in.perHost[l.face.host]--; in.perHost[l.face.host] == 0 {
		delete(in.perHost, l.face.host)
	}
}

func (in *inbound) find(addr string) *link {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.live[addr]
}

// Accept implements the engine's Listener.
func (in *inbound) Accept() (net.Conn, error) {
	select {
	case l := <-in.queue:
		return l, nil
	case <-in.ended:
		return nil, net.ErrClosed
	}
}

// Addr implements the engine's Listener.
func (in *inbound) Addr() net.Addr { return in.addr }

func (in *inbound) close() { in.once.Do(func() { close(in.ended) }) }
