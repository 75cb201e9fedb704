package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/anacrolix/torrent"

	"braid/storage"
)

// readAhead is how many bytes behind the place of a FileReader are requested before the rest of the
// torrent: a few seconds of a film. With less, a player would wait for peers at the end of each
// piece.
const readAhead = 8 << 20

var (
	// ErrUnwanted says that a file is neither complete nor part of the selection.
	ErrUnwanted     = errors.New("the file is not selected for the download")
	errEndedReading = errors.New("the transfer has ended")
)

// FileReader reads one file of a transfer. It returns verified data only, and waits for pieces that
// are missing. From the first Read on, the pieces from its place on are requested before others.
// Its methods must not be called concurrently; the caller closes it.
type FileReader struct {
	transfer *Transfer
	ctx      context.Context
	engine   engineReader // nil: it has not waited for a piece yet
	piece    int          // the piece that it has waited for last, which is complete; -1: none
	file     storage.File
	at       int64 // place in the file
	stop     context.CancelFunc
	closed   bool
}

// OpenFile returns a reader of a file, which is named by its place in Layout.Files. The context
// ends its reads.
func (t *Transfer) OpenFile(ctx context.Context, file int) (*FileReader, error) {
	d := t.described.Load()
	if d == nil {
		return nil, errNotDescribed
	}
	if file < 0 || file >= len(d.Layout.Files) {
		return nil, fmt.Errorf("the torrent has no file %d", file)
	}
	f := d.Layout.Files[file]
	select {
	case <-t.torrent.Described(): // in a moment
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-t.loop.ended:
	}
	err := errEndedReading
	t.do(func() { err = t.mayRead(d.Layout, file) })
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Path, err)
	}
	t.loop.readers.RLock()
	defer t.loop.readers.RUnlock()
	if t.loop.readers.ended {
		return nil, fmt.Errorf("read %s: %w", f.Path, errEndedReading)
	}
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(t.ctx, cancel)
	stop := func() { unhook(); cancel() }
	return &FileReader{transfer: t, ctx: ctx, piece: -1, file: f, stop: stop}, nil
}

// mayRead returns an error if the file will not become complete.
func (t *Transfer) mayRead(l storage.Layout, file int) error {
	if t.err != nil || t.want != nil && !t.want.partial || t.loop.options.Selection.Wants(l)[file] {
		return t.err
	}
	begin, end := l.FilePieces(l.Files[file])
	for i := begin; i < end; i++ {
		if !isComplete(t.torrent, i) {
			return ErrUnwanted
		}
	}
	return nil
}

// Read implements io.Reader.
func (r *FileReader) Read(b []byte) (int, error) {
	left := r.file.Length - r.at
	if left <= 0 {
		return 0, io.EOF
	}
	r.transfer.loop.readers.RLock()
	defer r.transfer.loop.readers.RUnlock()
	if r.transfer.loop.readers.ended || r.closed {
		return 0, fmt.Errorf("read %s: %w", r.file.Path, errEndedReading)
	}
	n, err := r.read(b[:min(int64(len(b)), left)])
	if r.at += int64(n); err != nil && !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("read %s: %w", r.file.Path, err)
	}
	return n, nil
}

// read reads some of b from one piece, once that is complete.
func (r *FileReader) read(b []byte) (int, error) {
	l := r.transfer.described.Load().Layout
	at := r.file.Offset + r.at
	piece := int(at / l.PieceLength)
	from, length := l.PieceRange(piece)
	t := r.transfer.torrent
	b = b[:min(int64(len(b)), from+length-at)]
	select {
	case <-t.Completed(): // to move the engine's reader would take longer than to read a piece
		if n, err := t.ReadPiece(piece, b, at-from); err == nil {
			return n, nil
		}
	default:
	}
	if piece != r.piece {
		if err := r.await(piece, from); err != nil {
			return 0, err
		}
		r.piece = piece
	}
	n, err := t.ReadPiece(piece, b, at-from)
	if err != nil {
		r.piece = -1 // the next read waits until the engine has the piece again
	}
	return n, err
}

// await waits for the piece that begins at from, and has the next ones requested. A reader of the
// engine reads across the end of the file and requests the pieces there. They may be unwanted, and
// have no place on disk. So the engine's reader reads only the first byte of a piece.
func (r *FileReader) await(piece int, from int64) error {
	if r.engine == nil {
		r.engine = r.transfer.torrent.Reader()
		r.engine.SetContext(r.ctx)
	}
	r.engine.SetReadahead(0)
	if _, err := r.engine.Seek(from, io.SeekStart); err != nil {
		return err
	}
	if r.piece < 0 || piece != r.piece+1 {
		r.clearWay(piece)
	}
	r.engine.SetReadahead(min(readAhead, r.file.Offset+r.file.Length-from-1))
	_, err := r.engine.Read(make([]byte, 1))
	if errors.Is(err, io.EOF) { // it was the last byte of the torrent
		err = nil
	}
	return err
}

// clearWay takes back, after a seek, requests that would be answered before the ones for this
// piece: a connection may have requests for a second or two. The next pieces stay requested, and
// pieces for which other readers wait.
func (r *FileReader) clearWay(piece int) {
	t := r.transfer
	if isComplete(t.torrent, piece) {
		return
	}
	end := piece + 1 + int(readAhead/t.described.Load().Layout.PieceLength)
	wanted := func(p int) bool {
		return p >= piece && p < end ||
			t.torrent.PieceState(p).Priority >= torrent.PiecePriorityNext
	}
	t.do(func() { t.loop.nudger.withdraw(wanted) })
}

// Seek implements io.Seeker. Only the next Read requests something.
func (r *FileReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.file.Length
	}
	if offset < 0 {
		return r.at, fmt.Errorf("seek in %s: %d is before its beginning", r.file.Path, offset)
	}
	r.at = offset
	return r.at, nil
}

// Close ends the reader. Its pieces are then requested like the rest.
func (r *FileReader) Close() error {
	r.stop()
	r.transfer.loop.readers.RLock()
	defer r.transfer.loop.readers.RUnlock()
	was := r.closed
	r.closed = true
	if r.transfer.loop.readers.ended || was || r.engine == nil {
		return nil // there is no reader of the engine, or it has ended with the transfer
	}
	return r.engine.Close()
}
