package client

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"

	"braid/storage"
)

// oneFile is the store as the engine sees it: a torrent of one file, whatever is in it. So the
// engine sees no files, no padding between them, and no v2 half: its mistakes with these end the
// process, and it would go over all files for each piece.
//
// It also knows the blocks that an earlier download has left on disk: see wire.Disk. If such a
// block were wrong, the engine would ban the peer from whose connection it read the block. So the
// store hashes these pieces itself (see storage.Blocks), and blame accuses nobody of them.
type oneFile struct {
	storage.Store
	refused  error                          // why the store does not take the torrent
	blocks   atomic.Pointer[storage.Blocks] // on disk; nil: there are none
	fromDisk atomic.Int64                   // bytes of these blocks that the engine has got
	// hashed is told of each piece that the engine has found right or wrong, before the engine asks
	// for a wrong one again. A piece that could not be read is neither.
	hashed func(piece int, right bool)
	unread sync.Map // pieces that could not be read since their last verdict
}

// OpenTorrent is called by the engine. It may change the info, since the engine has so far used
// only its hash.
func (s *oneFile) OpenTorrent(
	ctx context.Context, info *metainfo.Info, hash metainfo.Hash,
) (engine.TorrentImpl, error) {
	t, err := s.Store.OpenTorrent(ctx, info, hash)
	if err != nil {
		s.refused = err
		return t, err
	}
	s.blocks.Store(storage.BlocksOf(s.Store, hash))
	*info = metainfo.Info{
		Name: info.Name, NameUtf8: info.NameUtf8, Private: info.Private,
		PieceLength: info.PieceLength, Pieces: info.Pieces, Length: v1Length(info),
	}
	inner := t.Piece
	t.Piece = func(p metainfo.Piece) engine.PieceImpl {
		if s.hashed == nil {
			return inner(p)
		}
		x := hashedPiece{inner(p), s, p.Index()}
		switch own := x.PieceImpl.(type) {
		case engine.SelfHashing:
			return selfHashedPiece{x, own}
		case io.WriterTo:
			return writtenPiece{x, own}
		}
		return x
	}
	return t, nil
}

// hashedPiece is a piece that tells oneFile.hashed whether it was found right.
type hashedPiece struct {
	engine.PieceImpl
	store *oneFile
	index int
}

// selfHashedPiece is a hashedPiece whose hash the store computes.
type selfHashedPiece struct {
	hashedPiece
	own engine.SelfHashing
}

// writtenPiece is a hashedPiece that the store writes to the engine's hash.
type writtenPiece struct {
	hashedPiece
	own io.WriterTo
}

func (p hashedPiece) ReadAt(b []byte, off int64) (int, error) {
	n, err := p.PieceImpl.ReadAt(b, off)
	p.read(err)
	return n, err
}

// WriteAt forgets a failed read, such as that of an upload: the verdict will be of the new data.
func (p hashedPiece) WriteAt(b []byte, off int64) (int, error) {
	p.store.unread.Delete(p.index)
	return p.PieceImpl.WriteAt(b, off)
}

func (p selfHashedPiece) SelfHash() (metainfo.Hash, error) {
	sum, err := p.own.SelfHash()
	p.read(err)
	return sum, err
}

func (p writtenPiece) WriteTo(hash io.Writer) (int64, error) {
	n, err := p.own.WriteTo(hash)
	p.read(err)
	return n, err
}

// read notes whether the store could read the piece. The engine takes a piece that it cannot read
// for a wrong one, such as one whose blocks were not written because the disk was full.
func (p hashedPiece) read(err error) {
	if err != nil {
		p.store.unread.Store(p.index, nil)
	}
}

func (p hashedPiece) MarkComplete() error {
	err := p.PieceImpl.MarkComplete()
	p.store.unread.Delete(p.index)
	p.store.hashed(p.index, true)
	return err
}

func (p hashedPiece) MarkNotComplete() error {
	if _, unread := p.store.unread.LoadAndDelete(p.index); !unread {
		p.store.hashed(p.index, false)
	}
	return p.PieceImpl.MarkNotComplete()
}

// Has implements wire.Disk.
func (s *oneFile) Has(piece int, begin, length int64) bool {
	on := s.blocks.Load()
	return on != nil && on.Has(piece, begin, length)
}

// Read implements wire.Disk.
func (s *oneFile) Read(block []byte, piece int, begin int64) error {
	return s.blocks.Load().Read(block, piece, begin)
}

// untaken is how many bytes of blocks on disk the engine has not got yet.
func (s *oneFile) untaken() int64 {
	if on := s.blocks.Load(); on != nil {
		return on.Untaken()
	}
	return 0
}

// onBlock notes that the engine has got a block. It tells whether the block came from disk.
func (s *oneFile) onBlock(piece int, begin, length int64) bool {
	on := s.blocks.Load()
	if on == nil || !on.Taken(piece, begin, length) {
		return false
	}
	s.fromDisk.Add(length)
	return true
}
