package scionnet

import (
	"context"
	"net"
	"sync/atomic"

	"braid/pathsel"
)

// Conn is one QUIC connection over one path, as a net.Conn. It ends with io.EOF only if the peer
// has closed it and everything that the peer has written has arrived; a path that falls silent is
// ErrSilent.
type Conn struct {
	duplex
	endpoint *Endpoint
	route    *route
	place    *inbound                     // nil: dialled
	path     atomic.Pointer[pathsel.Path] // nil: not resolved yet
}

var _ net.Conn = (*Conn)(nil)

// LocalAddr is the endpoint's Addr.
func (c *Conn) LocalAddr() net.Addr { return c.endpoint.addr }

// RemoteAddr is the peer's Addr, without the path.
func (c *Conn) RemoteAddr() net.Addr { return c.route.remote }

// RemoteSCION is the peer's address.
func (c *Conn) RemoteSCION() Addr { return c.route.remote }

// Proven tells whether the peer's ISD-AS is proven: that its packets, and ours, go along links that
// lead to this AS, according to the control plane. A connection that was dialled is proven from the
// start; so is one inside the local AS, if the peer receives at the IP address that it claims. For
// others the paths to the AS are looked up in the background, once for all connections along the
// same links: the proof comes some milliseconds after the first call, or later, and stays. Nothing
// is proven against an AS on the path, the local AS's routers and its control plane, which are
// trusted; and which host of its AS the peer is, only that AS can tell. Polling costs next to
// nothing.
func (c *Conn) Proven() bool {
	return c.place == nil || c.place.as.prove(context.Background(), 0)
}

// Path is the path from here to the peer. For an accepted connection only its ends are known until
// the host has looked paths to the peer's AS up, which the call sets going (Proven); the
// fingerprint is empty so long, as it is for the path inside one AS.
func (c *Conn) Path() pathsel.Path {
	if p := c.path.Load(); p != nil {
		return *p
	}
	h := c.endpoint.host
	remote := c.route.remote.IA
	if remote == h.ia {
		return h.localPath()
	}
	if f, ok := h.lookup.find(remote, c.route.trail); ok {
		c.path.Store(&f.path)
		return f.path
	}
	_ = c.Proven() // has the paths looked up
	return pathsel.Path{Src: h.ia, Dst: remote}
}

// learnFeatures takes in the peer's feature bits.
func (c *Conn) learnFeatures(peer byte) {
	if both := peer & c.endpoint.features(); both&featureBundles == 0 {
		return
	}
	target := 0
	if p := c.path.Load(); p != nil {
		path := c.endpoint.host.withKnownMTU(*p, c.route.remote, c.route.trail)
		target = path.MTU - c.route.headerLen(c.endpoint.addr)
	}
	c.route.large.allow(target)
	c.endpoint.packets.(framer).probe(c.route, false)
}
