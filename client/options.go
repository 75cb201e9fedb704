package client

import (
	"io"
	"log/slog"
	"time"

	"braid/client/wire"
	"braid/pathsel"
	"braid/scionnet"
	"braid/scionnet/congestion"
)

// Config describes a session.
type Config struct {
	// Host is the local SCION host; nil for IP only. It stays open when the session is closed.
	Host *scionnet.Host
	// IP is the transport for peers on IP.
	IP IPTransport
	// WebRTC adds a transport for peers in browsers; nil: none. See Session.WebRTC.
	WebRTC *WebRTCConfig
	// Identity is the key that peers see over SCION and QUIC; nil makes a new one for this session.
	// If it is in a group, only members of the group can connect, over TCP too.
	Identity *scionnet.Identity
	// Listen are the addresses to accept connections at. At most one may be a SCION address, which
	// must be one of the Host. Without it, a SCION host accepts connections at a free port.
	Listen []Peer
	// Selector decides which paths carry the download; nil is pathsel's "adaptive".
	Selector pathsel.Selector
	// MaxPaths is the budget of connections for each address-level peer and torrent; 0 is
	// DefaultMaxPaths.
	MaxPaths int
	// MaxUploads is the number of peers to which each torrent is uploaded at a time, however many
	// connections a peer has; 0 is all.
	MaxUploads int
	// MaxRequests bounds the outstanding requests on each connection; 0 adapts to the connection.
	MaxRequests int
	// Policy says over which paths the session may open connections, whatever the selector, and in
	// which order it tries them. Peers that connect to us choose their paths themselves.
	Policy pathsel.Policy
	// Congestion is the congestion control algorithm over SCION and QUIC; empty is
	// scionnet.DefaultCongestion.
	Congestion congestion.Algorithm
	// TCPCongestion is the algorithm over TCP, by the kernel's name for it; empty is the kernel's
	// default.
	TCPCongestion string
	// Limits bound the rates of all transfers together.
	Limits Limits
	// Limiter, if not nil, is used instead of Limits. Its limits can be changed while the session
	// runs. Without it, limits of single transfers have no effect.
	Limiter *Limiter
	// PEX turns peer exchange on, in torrents that are not private: connected peers tell each other
	// addresses of peers, by ut_pex on IP (BEP 11) and by scion_pex on SCION (PEX.md).
	PEX bool
	// Logger may be nil.
	Logger *slog.Logger
}

// IPTransport is the transport for peers on IP. A session uses one for all of them, since an
// address does not tell which one is meant.
type IPTransport int

const (
	TCP  IPTransport = iota // as every other client does
	QUIC                    // the protocol and keys as over SCION; only braid speaks it
	NoIP                    // SCION only
)

// Options of a transfer.
type Options struct {
	Peers []Peer // besides those in the source
	// WebSeeds are servers besides those in the source.
	WebSeeds []WebSeed
	// Known are peers that have delivered data of this torrent before. They are tried first.
	Known []Peer
	// MaxPeers is the number of peers that are dialled at a time; 0, and every number above it, is
	// the constant MaxPeers.
	MaxPeers int
	// Policy holds in addition to the session's.
	Policy pathsel.Policy
	// Logger, if not nil, is used instead of the session's.
	Logger *slog.Logger
	// Decided, if not nil, is told of every step in the life of a path-level peer, in order and
	// from one goroutine. It must not block.
	Decided func(PathEvent)
	// Trace, if not nil, gets each view of the selector with its plan: see pathsel.WriteStep. One
	// goroutine writes to it, until Close has returned.
	Trace io.Writer
	// Selection says which files are wanted; the zero value wants all.
	Selection Selection
	// Describe fetches only the description of the torrent, and no data: see Transfer.Described.
	Describe bool
	// Verified, if not nil, is called with each piece that was verified, one after another. A piece
	// that had to be fetched again comes twice. It must not block.
	Verified func(VerifiedPiece)
	// SuperSeeding has an effect once the data is complete.
	SuperSeeding SuperSeeding
	// Caused, if not nil, is called with the cause when there is no progress, and with nil when
	// there is progress again. The time is that since the transfer was added. It is called in order
	// and from one goroutine, and must not block.
	Caused func(*Cause, time.Duration)
	// Limiter, if not nil, bounds the rates of this transfer. See Config.Limiter.
	Limiter *Limiter
	// StopTimeout, if not 0, ends the transfer with a StoppedError after this time without data.
	StopTimeout time.Duration
}

// Limits bound the rates of a session's connections; see wire.Limits.
type Limits = wire.Limits

// Limiter applies limits that may change; the zero value has none. See wire.Limiter.
type Limiter = wire.Limiter

// PathLimit is a limit for paths with a matching interface.
type PathLimit = wire.PathLimit

// MinRate is the lowest limit in bits per second.
const MinRate = wire.MinRate

// DHT is what a session tells peers of this program's DHT nodes, and hears of theirs (BEP 5; on
// SCION see PEX.md).
type DHT struct {
	SCION, IP4, IP6 uint16 // ports of our nodes; 0: there is none
	// Heard is called with the address of a peer's node; on IP its IA is zero.
	Heard func(scionnet.Addr)
}
