package node

import (
	"context"
	"fmt"
	"io"
	"time"

	"braid/client"
)

// File is a file of a torrent.
type File struct {
	Index    int // from 0
	Path     string
	Length   int64
	Have     int64 // bytes in verified pieces
	Priority client.Priority
	// The file's bytes are in the pieces from FirstPiece up to, but not including, EndPiece.
	FirstPiece, EndPiece int
}

// Files returns the files of the torrent, or nil if they are not known yet.
func (t *Torrent) Files() []File {
	o := t.Options()
	if o.Source.IsMagnet() {
		return nil
	}
	l, priorities, right := o.Source.Layout, o.Selection.Files(o.Source.Layout), t.right()
	out := make([]File, len(l.Files))
	for i, f := range l.Files {
		x := File{Index: i, Path: f.Path, Length: f.Length, Priority: priorities[i]}
		x.FirstPiece, x.EndPiece = l.FilePieces(f)
		for p := x.FirstPiece; p < x.EndPiece; p++ {
			if right(p) {
				at, n := l.PieceRange(p)
				x.Have += min(at+n, f.Offset+f.Length) - max(at, f.Offset)
			}
		}
		out[i] = x
	}
	return out
}

// right returns a function that tells which pieces are verified. If the torrent does not run, its
// last check says it, or the completion record, which data that was only checked may lack.
func (t *Torrent) right() func(piece int) bool {
	p := t.Pieces()
	if len(p.State) > 0 {
		return func(i int) bool { return i < len(p.State) && p.State[i] == client.PieceRight }
	}
	t.mu.Lock()
	known, stored := t.found, t.options.stored()
	t.mu.Unlock()
	if known == nil {
		known = stored.Recorded()
	}
	all := t.Progress()
	whole := all.Total > 0 && all.Missing == 0 && all.Have == all.Total
	return func(i int) bool { return whole || i < len(known) && known[i] }
}

// Pieces returns the state of the pieces. It is empty if the torrent does not run, or if its pieces
// are not known yet.
func (t *Torrent) Pieces() client.Pieces {
	if r := t.current(); r != nil {
		return r.transfer.Pieces()
	}
	return client.Pieces{}
}

// Peers returns the connected peers.
func (t *Torrent) Peers() []client.PeerProgress {
	if r := t.current(); r != nil {
		return r.transfer.Peers()
	}
	return nil
}

// PathStatus is a path-level peer.
type PathStatus struct {
	client.PathProgress
	// Reason is the reason for the selector's last decision about it, at the time Since.
	Reason string
	Since  time.Time
	// Refused is the clause of a policy that forbids the path; Reason then explains it. Empty: the
	// path is allowed.
	Refused string
}

// Paths returns the path-level peers: those with connections, those that could be connected, and
// those that a policy forbids.
func (t *Torrent) Paths() (out []PathStatus) {
	r := t.current()
	if r == nil {
		return nil
	}
	for _, x := range r.transfer.Progress().Paths {
		s := PathStatus{PathProgress: x}
		if m, ok := t.history.last(keyOf(x)); ok {
			s.Reason, s.Since = m.Reason, m.Time
		}
		out = append(out, s)
	}
	for _, x := range r.transfer.Refused() {
		s := PathStatus{Reason: x.Reason, Refused: string(x.Clause)}
		s.Peer, s.Path = x.Peer, x.Path
		out = append(out, s)
	}
	return out
}

// OpenFile returns a reader of a file, by its index in the layout of Source. Reads return verified
// data only. They wait for missing data, which the torrent requests first: see client.FileReader.
// The context ends them.
func (t *Torrent) OpenFile(ctx context.Context, file int) (io.ReadSeekCloser, error) {
	r := t.current()
	if r == nil {
		return nil, fmt.Errorf("torrent %s is %s: the torrent does not run",
			t.Options().title(), t.State())
	}
	f, err := r.transfer.OpenFile(ctx, file)
	if err != nil {
		return nil, err // not f: an interface with a nil *client.FileReader is not nil
	}
	return f, nil
}
