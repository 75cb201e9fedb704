// Package wire holds what sits on a connection between a transport and the BitTorrent engine. Each
// part wraps the one below it:
//
//	engine    one BitTorrent connection: a net.Conn with the address that offers made up
//	  Link        that address; deadlines that never fail; tells when the connection has ended
//	  Filter      the only part that reads messages: chokes, bounds, reveals, takes requests back
//	  obfuscated  message stream encryption ends here, so that the Filter sees all messages
//	  counted     counts bytes, and when the first and the last came
//	  limited     waits for its turn at each rate limit
//	Conn      the transport's connection: a QUIC stream over one path, or TCP
//
// The part obfuscated is transparent where it is not needed, and limited is left out where there
// are no limits.
//
// The package knows nothing of torrents, of choosing paths, or of peers' addresses: package client
// decides when to choke, whom to serve and what to reveal.
package wire

import (
	"net"

	"braid/pathsel"
	"braid/scionnet"
)

// Conn is a transport's connection over one path.
type Conn interface {
	net.Conn
	// Path is the connection's path as far as it is known by now.
	Path() pathsel.Path
	// Key is what the peer has proved to have; nil where a transport has no keys.
	Key() *scionnet.PeerKey
	// Origin is where the connection comes from. It changes at most once, when a claimed ISD-AS is
	// proven.
	Origin() pathsel.Origin
	Measure() Measurement
}

// Measurement is what a transport knows of a connection. Unknown values are zero. In particular,
// PacketsReceived is 0 on transports that do not ask the other side for signs of life: on them,
// silence means nothing.
type Measurement = scionnet.Stats
