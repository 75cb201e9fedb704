package client

import (
	"context"
	"net"
	"net/netip"

	"braid/scionnet"
)

// onIP is what transports on IP have in common. All listeners of a transport hand accepted
// connections to one Accept.
type onIP struct {
	routes
	network  string // at which the transport listens, "tcp" or "udp"; empty: it does not
	accepted chan Wire
	ctx      context.Context // ends with the transport
	stop     context.CancelFunc
}

func newOnIP(network string) onIP {
	t := onIP{network: network, accepted: make(chan Wire)}
	t.ctx, t.stop = context.WithCancel(context.Background())
	return t
}

func (t *onIP) Reaches(p Peer) bool { return p.host != "" && p.Dialable() }

// handOver gives an accepted connection to Accept, or closes it when the transport ends.
func (t *onIP) handOver(w Wire) {
	select {
	case t.accepted <- w:
	case <-t.ctx.Done():
		w.Close()
	}
}

func (t *onIP) Accept(ctx context.Context) (Wire, error) {
	select {
	case w := <-t.accepted:
		return w, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-t.ctx.Done():
		return nil, net.ErrClosed
	}
}

func ipPeer(a netip.AddrPort) Peer { return PeerAt(scionnet.IPAddr(a)) }
