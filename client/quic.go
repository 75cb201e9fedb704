package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"braid/pathsel"
	"braid/scionnet"
)

// quicTransport carries the connections of the SCION transport over plain IP: the same protocol,
// keys and measurements.
type quicTransport struct {
	onIP
	listening []*scionnet.IPEndpoint // at least one
	quiet     bool                   // nobody asked to listen: the only endpoint is for dialling
	workers   sync.WaitGroup
}

// openQUIC listens at the addresses, if any, with the other settings in cfg.
func openQUIC(addrs []Peer, cfg scionnet.IPConfig) (*quicTransport, error) {
	if cfg.Identity == nil {
		var err error
		if cfg.Identity, err = scionnet.NewIdentity(); err != nil { // one for all addresses
			return nil, err
		}
	}
	t := &quicTransport{onIP: newOnIP("udp"), quiet: len(addrs) == 0}
	if err := t.listen(addrs, cfg); err != nil {
		t.Close()
		return nil, err
	}
	for _, e := range t.listening {
		t.workers.Go(func() { t.acceptFrom(e) })
	}
	return t, nil
}

func (t *quicTransport) listen(addrs []Peer, cfg scionnet.IPConfig) error {
	at := make([]netip.AddrPort, max(1, len(addrs)))
	for i, a := range addrs {
		var err error
		if at[i], err = t.resolve(t.ctx, a); err != nil {
			return err
		}
	}
	for _, cfg.Listen = range at {
		e, err := scionnet.ListenIP(cfg)
		if err != nil {
			return err
		}
		t.listening = append(t.listening, e)
	}
	return nil
}

func (t *quicTransport) acceptFrom(e *scionnet.IPEndpoint) {
	for {
		c, err := e.Accept(t.ctx)
		if err != nil {
			return // closed
		}
		t.handOver(newQUICWire(c))
	}
}

func (t *quicTransport) Name() string { return "quic" }

// resolve finds the address of a host, which may be a name.
func (t *quicTransport) resolve(ctx context.Context, p Peer) (netip.AddrPort, error) {
	if p.host == "" {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), p.port), nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", p.host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("find %s: %w", p, err)
	}
	return netip.AddrPortFrom(ips[0].Unmap(), p.port), nil
}

func (t *quicTransport) Dial(
	ctx context.Context, p Peer, _ pathsel.Path, want *scionnet.PeerKey,
) (Wire, error) {
	to, err := t.resolve(ctx, p)
	if err != nil {
		return nil, err
	}
	if err := p.mayDial(to.Addr()); err != nil {
		return nil, err
	}
	from := t.listening[0]
	for _, e := range t.listening {
		// A socket of one family does not reach the other.
		if a := e.Addr().Addr(); a.Is4() == to.Addr().Is4() || a == netip.IPv6Unspecified() {
			from = e
			break
		}
	}
	c, err := from.Dial(ctx, to, want)
	if err != nil {
		return nil, err
	}
	return newQUICWire(c), nil
}

func (t *quicTransport) Listening() []Peer {
	var out []Peer
	for _, e := range t.listening {
		if !t.quiet {
			out = append(out, ipPeer(e.Addr()))
		}
	}
	return out
}

func (t *quicTransport) Close() error {
	t.stop()
	t.workers.Wait()
	var errs []error
	for _, e := range t.listening {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}

type quicWire struct {
	*scionnet.IPConn
	remote
}

func newQUICWire(c *scionnet.IPConn) *quicWire {
	key := c.PeerKey()
	return &quicWire{IPConn: c, remote: remote{peer: ipPeer(c.RemoteIP()), key: &key}}
}

func (w *quicWire) Measure() Measurement { return w.Stats() }
