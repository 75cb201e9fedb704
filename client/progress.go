package client

import (
	"cmp"
	"time"

	"braid/pathsel"
)

// Phase is what a transfer is doing.
type Phase string

const (
	Metadata    Phase = "metadata"    // a magnet link, whose description no peer has sent yet
	Checking    Phase = "checking"    // data that is there already is being hashed
	Downloading Phase = "downloading" // pieces are missing
	Complete    Phase = "complete"    // every piece is there and verified
	Broken      Phase = "failed"      // see Progress.Err
)

// Progress is a transfer at one moment.
type Progress struct {
	Name  string
	Phase Phase
	Since time.Duration // since the transfer was added
	// Total is the size of the data that is wanted, 0 while it is unknown; Have of it is on disk, verified or about to
	// be. If only some files are wanted, whole pieces are counted.
	Total, Have  int64
	Missing      int64 // bytes of the torrent that are not there, wanted or not; 0 while its size is unknown
	Checked      int64 // bytes that were hashed, while Phase is Checking
	Pieces, Done int   // in all, and verified
	// Fetched is payload that was received and was of use in this session, Sent payload that was sent.
	Fetched, Sent int64
	// ReadRate and WriteRate are of all connections, in bits per second over the last seconds.
	ReadRate, WriteRate float64
	// Wasted counts bytes of payload that came twice or for nothing; Dropped the pieces that were wrong.
	Wasted, Dropped int64
	Paths           []PathProgress
	// Waiting says that no path is left, or no room on the disk, and what happens next; empty otherwise.
	Waiting string
	// Cause is why no data comes; nil while some does, or if that is not known yet.
	Cause *Cause
	Err   error
}

// PathProgress is one path-level peer of a transfer: all its connections so far, and the one that is open.
type PathProgress struct {
	Peer      string
	Path      pathsel.Path // no fingerprint where the transport has none, or it is not known yet
	Conn      int          // beyond 0: one more connection on the same path
	Transport string
	Accepted  bool // the peer connected to us
	State     pathsel.State
	Measurement
	// BytesRead and BytesWritten count the peer protocol; FirstRead and LastRead are zero before the first byte.
	BytesRead, BytesWritten uint64
	FirstRead, LastRead     time.Time
	ReadRate, WriteRate     float64 // bits per second over the last seconds
	// Carried is the useful payload over the last time in which some could flow, which ended at CarriedUntil; zero if there was
	// none, and where the peer connected to us.
	Carried      pathsel.Estimate
	CarriedUntil time.Time
	Failures     int
	Err          error // why it was last refused or lost
}

// meter smooths a counter's growth. Two seconds or so are seen, which is steady enough to read and quick enough
// to believe.
type meter struct {
	bytes uint64
	rate  float64 // bits per second
	begun bool
}

func (m *meter) update(bytes uint64, elapsed time.Duration) {
	const weight = 0.4 // of the newest second
	if elapsed <= 0 {
		return
	}
	now := float64(bytes-m.bytes) * 8 / elapsed.Seconds()
	m.bytes = bytes
	if !m.begun {
		m.begun, m.rate = bytes > 0, now
		return
	}
	if m.rate += weight * (now - m.rate); m.rate < 1 {
		m.rate = 0 // what fades away is not a rate
	}
}

// rates are those of all connections together.
type rates struct {
	in, out meter
	since   time.Time // the last measurement
}

// measure takes the samples of the time since the last call.
func (r *rates) measure(peers *peerSet, now time.Time) {
	elapsed := now.Sub(r.since)
	r.since = now
	var read, written uint64
	for x := range peers.rows() {
		x.measure(elapsed)
		a, b := x.bytes()
		read, written = read+a, written+b
	}
	// Rows may be forgotten, which must not look like a counter that runs backwards.
	r.in.update(max(read, r.in.bytes), elapsed)
	r.out.update(max(written, r.out.bytes), elapsed)
}

// progress is that of all path-level peers and accepted connections.
func (s *peerSet) progress() (out []PathProgress) {
	for _, p := range s.dialled {
		if len(p.paths) == 0 {
			out = append(out, PathProgress{Peer: p.peer.String(), Transport: p.transport.Name(), Err: p.err})
		}
		for _, x := range p.paths {
			q := x.progress()
			q.State, q.Failures = x.candidate.State, x.candidate.Failures
			q.Carried, q.CarriedUntil = pathsel.Latest(x.candidate.Slots)
			out = append(out, q)
		}
	}
	for _, r := range s.accepted {
		out = append(out, r.progress())
	}
	return out
}

// row gathers what is shown of one path-level peer, over its successive links.
type row struct {
	peer      Peer
	path      pathsel.Path
	conn      int // which one of several connections on the path
	transport string
	accepted  bool
	link      *link // nil: none is open
	past      struct{ read, written uint64 }
	first     int64 // Unix ns of the first byte on any link
	last      int64
	seen      Measurement // of the last link, while it was open
	in, out   meter
	err       error
}

// isConnected tells whether there is a connection whose handshake is done.
func (r *row) isConnected() bool { return r.link != nil && r.link.Greeted() && !r.link.Closed() }

// remoteID names the peer at the other end of the connection. It is the same for all connections of a
// peer, whichever side has opened them.
func (r *row) remoteID() pathsel.PeerID {
	if k := r.link.Key(); k != nil {
		return pathsel.PeerID(k[:])
	}
	return r.peer.ID()
}

// foldLink adds the counts of a connection that has ended to those of earlier ones.
func (r *row) foldLink() {
	l := r.link
	r.seen = l.Measure()
	read, written := l.Bytes()
	r.past.read += read
	r.past.written += written
	r.first, r.last = r.reads()
	r.link = nil
}

func (r *row) reads() (first, last int64) {
	first, last = r.first, r.last
	if r.link == nil {
		return first, last
	}
	f, l := r.link.Reads()
	return cmp.Or(first, f), max(last, l)
}

func (r *row) bytes() (read, written uint64) {
	read, written = r.past.read, r.past.written
	if r.link != nil {
		x, y := r.link.Bytes()
		read, written = read+x, written+y
	}
	return read, written
}

func (r *row) measure(elapsed time.Duration) {
	read, written := r.bytes()
	r.in.update(read, elapsed)
	r.out.update(written, elapsed)
	if r.link != nil {
		r.seen = r.link.Measure()
	}
}

func (r *row) progress() PathProgress {
	read, written := r.bytes()
	first, last := r.reads()
	p := PathProgress{
		Peer: r.peer.String(), Path: r.path, Conn: r.conn, Transport: r.transport, Accepted: r.accepted,
		State: pathsel.Idle, Measurement: r.seen, BytesRead: read, BytesWritten: written,
		FirstRead: unixTime(first), LastRead: unixTime(last),
		ReadRate: r.in.rate, WriteRate: r.out.rate, Err: r.err,
	}
	if r.link != nil {
		p.State, p.Measurement = pathsel.Active, r.link.Measure()
		if r.accepted {
			p.Path = r.link.Path()
		}
	}
	return p
}

func unixTime(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
