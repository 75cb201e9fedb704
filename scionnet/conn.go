package scionnet

import (
	"context"
	"net"
	"sync/atomic"

	"braid/pathsel"
)

// Conn is one QUIC connection over one path, as a net.Conn. Reading ends with io.EOF only if the
// peer has closed the connection and all its data has arrived. If the path falls silent, the error
// is ErrSilent.
type Conn struct {
	duplex
	endpoint *Endpoint
	route    *route
	place    *inbound                     // nil if dialled
	path     atomic.Pointer[pathsel.Path] // nil until it is known

	// For Endpoint.watch alone:
	loss      largeLoss
	delivered tally
}

var _ net.Conn = (*Conn)(nil)

// LocalAddr is the endpoint's address.
func (c *Conn) LocalAddr() net.Addr { return c.endpoint.addr }

// RemoteAddr is the peer's address, without the path.
func (c *Conn) RemoteAddr() net.Addr { return c.route.remote }

// RemoteSCION is the peer's address.
func (c *Conn) RemoteSCION() Addr { return c.route.remote }

// Proven tells whether the peer's ISD-AS is proven: whether packets travel between us and the peer
// along links that, according to the control plane, lead to this AS. A dialled connection is always
// proven. A connection from the local AS is proven if the peer receives at the IP address that it
// claims. For others, the first call starts a lookup of paths to the AS, shared by all connections
// along the same links; the result usually comes after some milliseconds and is final once it is
// true. The proof trusts ASes on the path, and the local AS's routers and control plane. Which host
// of its AS the peer is, only that AS can tell. Polling is cheap.
func (c *Conn) Proven() bool {
	return c.place == nil || c.place.as.prove(context.Background(), 0)
}

// Path is the path from here to the peer. For an accepted connection, the host must first look up
// paths to the peer's AS, and the call starts that lookup (Proven). Until then the path has only
// its two ends and an empty fingerprint. The path inside one AS has an empty fingerprint, too.
func (c *Conn) Path() pathsel.Path {
	if p := c.path.Load(); p != nil {
		now := *p
		if e := c.route.way.Load().expiry; !e.IsZero() { // hop fields may have been renewed
			now.Expiry = e
		}
		return now
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
	if c.Proven() { // else that starts the lookup
		h.lookup.want(remote)
	}
	return pathsel.Path{Src: h.ia, Dst: remote}
}

func (c *Conn) learnFeatures(peer byte) {
	if rate := c.hintIn(peer); rate > 0 {
		c.control.Hint(rate)
	}
	if both := peer & c.endpoint.packets.features(); both&featureBundles == 0 {
		return
	}
	target := 0
	if p := c.path.Load(); p != nil {
		path := c.endpoint.host.withKnownMTU(*p, c.route.remote, c.route.trail)
		target = path.MTU - c.route.headerLen(c.endpoint.addr)
	}
	c.route.large.allow(target)
	c.endpoint.packets.probe(c.route, false, 0)
}
