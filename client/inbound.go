package client

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

// inboundQuota holds for each transport by itself, so that a flood over one does not fill the
// places of the others. Connections count as soon as they are accepted, since waiting for a
// handshake costs a descriptor too. The places in all, 1024 of about 100 kB each, serve hundreds of
// peers. A single network gets at most half of them. A host gets 128, which is enough for several
// peers with all their paths, and not too many for an attacker. The places for unproven peers
// suffice even for many honest newcomers: an ISD-AS is proven within a round trip or two to a
// control service.
var inboundQuota = quota{total: maxAccepted, net: 512, host: 128, unproven: 128}

const (
	// greetTime is enough for an honest handshake over the longest path, with a lost packet.
	greetTime = 5 * time.Second
	// idleTime without data makes a connection idle. A peer may have to wait that long for an
	// upload slot.
	idleTime = 30 * time.Second
)

// inbound is the engine's listener: accepted connections of all transports.
type inbound struct {
	addr  net.Addr
	queue chan *link
	ctx   context.Context // ends with the listener
	close context.CancelFunc
}

// newInbound makes a listener. Its address is the first one on IP, if there is any, whose port the
// engine tells peers. On SCION a port alone would be of no use to them.
func newInbound(listening []Peer) *inbound {
	in := &inbound{addr: engineAddr{}, queue: make(chan *link)}
	in.ctx, in.close = context.WithCancel(context.Background())
	for _, p := range listening {
		if ip, err := netip.ParseAddr(p.host); err == nil {
			in.addr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, p.port))
			break
		}
	}
	return in
}

var (
	errBusy     = errors.New("too many connections are accepted already")
	errReplaced = errors.New("contributes nothing, and another peer needs its place")
)

// add gives the engine a connection.
func (in *inbound) add(ctx context.Context, l *link) error {
	select {
	case in.queue <- l:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// place says what the connection contributes. An unproven one may be replaced even if it carries
// data: an honest peer is proven soon.
func (l *link) place(now time.Time) place {
	p := place{origin: l.Origin(), worth: idle, since: l.Opened}
	if at := l.carried.Load(); at != 0 {
		p.since = time.Unix(0, at)
	}
	switch {
	case !l.Greeted():
		if now.Sub(l.Opened) >= greetTime {
			p.worth = silent
		}
	case l.Proven() && l.carried.Load() != 0 && now.Sub(p.since) < idleTime:
		p.worth = busy
	}
	return p
}

// Accept implements the engine's Listener.
func (in *inbound) Accept() (net.Conn, error) {
	select {
	case l := <-in.queue:
		return l, nil
	case <-in.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Addr implements the engine's Listener.
func (in *inbound) Addr() net.Addr { return in.addr }
