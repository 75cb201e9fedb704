package client

import (
	"context"
	"sync/atomic"

	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"

	"braid/storage"
)

// oneFile shows the engine a torrent of one file, whatever is in it. So the engine needs to know
// nothing of files, of padding between them, or of a v2 half: its mistakes with these end the
// process, and it goes over all files for each piece.
//
// It also knows the blocks that an earlier download has left on disk: see wire.Disk. The engine
// holds the peer answerable for such a block. So the store hashes its piece itself (see
// storage.Blocks), and blame holds nobody answerable.
type oneFile struct {
	storage.Store
	refused  error                          // why the store does not take the torrent
	blocks   atomic.Pointer[storage.Blocks] // on disk; nil: there are none
	fromDisk atomic.Int64                   // bytes of blocks that the engine has got from there
}

// OpenTorrent is the engine's. The info is a copy, of which the engine has so far used the hash only.
func (s *oneFile) OpenTorrent(ctx context.Context, info *metainfo.Info, hash metainfo.Hash) (engine.TorrentImpl, error) {
	t, err := s.Store.OpenTorrent(ctx, info, hash)
	if err != nil {
		s.refused = err
		return t, err
	}
	s.blocks.Store(storage.BlocksOf(s.Store, hash))
	*info = metainfo.Info{
		Name: info.Name, NameUtf8: info.NameUtf8, PieceLength: info.PieceLength, Pieces: info.Pieces, Private: info.Private,
		Length: v1Length(info),
	}
	return t, nil
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

// took notes that the engine has got a block. It tells whether the block came from disk.
func (s *oneFile) took(piece int, begin, length int64) bool {
	on := s.blocks.Load()
	if on == nil || !on.Taken(piece, begin, length) {
		return false
	}
	s.fromDisk.Add(length)
	return true
}
