package client

import (
	"time"

	"braid/pathsel"
)

// Phase is what a transfer is doing.
type Phase string

const (
	Metadata    Phase = "metadata"    // a magnet link, whose description no peer has sent yet
	Checking    Phase = "checking"    // data that was on disk before is being hashed
	Downloading Phase = "downloading" // pieces are missing
	Complete    Phase = "complete"    // every wanted piece is on disk and verified
	Broken      Phase = "failed"      // see Progress.Err
)

// Progress is a transfer at one moment.
type Progress struct {
	Name  string
	Phase Phase
	Since time.Duration // since the transfer was added
	// Total is the size of the wanted data, 0 while it is unknown. Have is the part of it that is
	// on disk, verified or not yet. If only some files are wanted, whole pieces count.
	Total, Have int64
	// Missing are the bytes that are not there, wanted or not; 0 while the size is unknown.
	Missing      int64
	Checked      int64 // bytes that were hashed, while Phase is Checking
	Pieces, Done int   // in all, and verified
	// Fetched is the useful payload received in this session, and Sent the payload sent.
	Fetched, Sent int64
	// ReadRate and WriteRate are of all connections, in bits per second over the last seconds.
	ReadRate, WriteRate float64
	// Wasted counts the bytes of payload that were of no use, Dropped the pieces that were wrong.
	Wasted, Dropped int64
	Paths           []PathProgress
	// Waiting is a text for the user while no path is left or the disk is full; empty otherwise.
	Waiting string
	// Cause is why no data comes; nil while data comes, or while the cause is not known yet.
	Cause *Cause
	Err   error
}

// PathProgress is one path-level peer of a transfer: all its connections so far, and the one that
// is open.
type PathProgress struct {
	Peer      string
	Source    PeerSource
	Path      pathsel.Path // without a fingerprint on IP, and while it is not known yet
	Transport string
	Accepted  bool // the peer connected to us
	State     pathsel.State
	Measurement
	// BytesRead and BytesWritten count the peer protocol; FirstRead and LastRead are zero before
	// the first byte.
	BytesRead, BytesWritten uint64
	FirstRead, LastRead     time.Time
	ReadRate, WriteRate     float64 // bits per second over the last seconds
	// Carried is the rate of useful payload in the last period in which payload could flow, and
	// CarriedUntil the end of that period. Both are zero if there was none, and on connections that
	// the peer has opened.
	Carried      pathsel.Estimate
	CarriedUntil time.Time
	Failures     int
	Err          error // why it was last refused or lost
}

// PathEvent is a step in the life of a path-level peer, and why it was taken.
type PathEvent struct {
	// Name is path- and one of: selected (it will be dialled), opened (it is connected), parked,
	// probed, returned, closed, failed.
	Name   string
	Since  time.Duration // since the transfer was added
	Key    pathsel.Key
	Reason string
}

// VerifiedPiece is a piece that was found to be right.
type VerifiedPiece struct {
	Index int
	Since time.Duration // since the transfer was added
}
