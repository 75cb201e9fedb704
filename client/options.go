package client

import (
	"io"
	"log/slog"
	"time"

	"braid/pathsel"
)

// Options of a transfer.
type Options struct {
	Peers []Peer // besides those in the source
	// WebSeeds are servers besides those in the source.
	WebSeeds []WebSeed
	// Known are peers that have delivered data of this torrent before. They are tried first.
	Known []Peer
	// MaxPeers is the number of peers that are dialled at a time; 0 is as many as are of use.
	MaxPeers int
	// Policy holds in addition to the session's.
	Policy pathsel.Policy
	// Logger, if not nil, is used instead of the session's.
	Logger *slog.Logger
	// Decided, if not nil, is told of every step in the life of a path-level peer, in order and
	// from one goroutine. It must not block.
	Decided func(PathEvent)
	// Trace, if not nil, gets what the selector saw and decided, each time: see pathsel.WriteStep.
	// It is written by one goroutine until Close has returned.
	Trace io.Writer
	// Selection says which files are wanted; the zero value wants all.
	Selection Selection
	// Describe ends the transfer when it is known what is in the torrent: see Transfer.Described.
	// No data is fetched.
	Describe bool
	// Verified, if not nil, is told of every piece when it is verified, one after another, and
	// again of a piece that had to be fetched again. It must not block.
	Verified func(VerifiedPiece)
	// SuperSeeding is for data that is complete.
	SuperSeeding SuperSeeding
	// Caused, if not nil, is told why there is no progress, and is called with nil when there is
	// progress again, with the time since the transfer was added. It is called in order and from
	// one goroutine, and must not block.
	Caused func(*Cause, time.Duration)
	// Limiter, if not nil, bounds the rates of this transfer. See Config.Limiter.
	Limiter *Limiter
	// StopTimeout, if not 0, ends the transfer with a StoppedError after so long without data.
	StopTimeout time.Duration
}
