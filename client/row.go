package client

import (
	"cmp"
	"time"

	"braid/pathsel"
	"braid/scionnet"
)

// row is what users see of one path-level peer over its successive connections, or of one accepted
// connection.
type row struct {
	peer      Peer
	from      PeerSource
	path      pathsel.Path
	transport string
	accepted  bool
	link      *link // nil: none is open
	past      struct{ read, written uint64 }
	first     int64 // Unix ns of the first byte on any link
	last      int64
	seen      Measurement // of the last link, while it was open
	in, out   rateMeter
	useful    rateMeter // of the payload that the open link has brought
	err       error
}

// isConnected tells whether there is a connection whose handshake is done, and which has a gauge.
func (r *row) isConnected() bool {
	l := r.link
	return l != nil && l.Greeted() && !l.Closed() && l.gauge.Load() != nil
}

// remoteID names the peer at the other end of the connection. It is the same for all connections of
// a peer, whichever side has opened them.
func (r *row) remoteID() pathsel.PeerID {
	if k := r.link.Key(); k != nil {
		return pathsel.PeerID(k[:])
	}
	return r.peer.ID()
}

// listens is the address at which the peer listens, as far as it is known.
func (r *row) listens() scionnet.Addr {
	at := r.link.Peer().Addr()
	if r.accepted && at.IA == 0 {
		at.Port = uint16(r.link.gauge.Load().port.Load())
	}
	return at
}

// foldLink adds the counts of a connection that has ended to those of earlier ones.
func (r *row) foldLink() {
	l := r.link
	r.seen = l.Measure()
	read, written := l.Bytes()
	r.past.read += read
	r.past.written += written
	r.first, r.last = r.reads()
	r.link, r.useful = nil, rateMeter{}
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
	if r.link == nil {
		return
	}
	r.seen = r.link.Measure()
	if g := r.link.gauge.Load(); g != nil {
		st := g.conn.Stats()
		r.useful.update(uint64(st.BytesReadUsefulData.Int64()), elapsed)
	}
}

func (r *row) progress() PathProgress {
	read, written := r.bytes()
	first, last := r.reads()
	p := PathProgress{
		Peer: r.peer.String(), Source: r.from, Path: r.path, Transport: r.transport,
		Accepted: r.accepted, State: pathsel.Idle, Measurement: r.seen,
		BytesRead: read, BytesWritten: written,
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

// rateMeter smooths a counter's growth over about two seconds. The rate is steady enough to read,
// and follows changes soon.
type rateMeter struct {
	bytes uint64
	rate  float64 // bits per second
	begun bool
}

func (m *rateMeter) update(bytes uint64, elapsed time.Duration) {
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
		m.rate = 0 // otherwise it would never quite reach 0
	}
}
