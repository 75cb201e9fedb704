package client

import "encoding/binary"

// Blocks that an earlier download has left on disk.
//
// The engine knows of whole pieces only, and asks peers for all blocks of the others. A gate keeps
// back the requests for blocks that are on disk, and has the engine read these as if the peer had
// sent them. The engine holds the peer answerable, so that the store hashes such a piece itself
// (see storage.Blocks), and blame holds nobody answerable for it.

// disk has blocks. It may be asked by several gates at once, and must not call them.
type disk interface {
	has(b block) bool
	read(data []byte, b block) error
}

// kept are a transfer's blocks on disk.
type kept struct{ store *oneFile }

func (k kept) has(b block) bool {
	on := k.store.blocks.Load()
	return on != nil && on.Has(int(b.index), int64(b.begin), int64(b.length))
}

func (k kept) read(data []byte, b block) error {
	return k.store.blocks.Load().Read(data, int(b.index), int64(b.begin))
}

// untaken is how many bytes of blocks the engine has not got yet.
func (s *oneFile) untaken() int64 {
	if on := s.blocks.Load(); on != nil {
		return on.Untaken()
	}
	return 0
}

// took notes that the engine has got a block. It tells whether that came from disk.
func (s *oneFile) took(piece int, begin, length int64) bool {
	on := s.blocks.Load()
	if on == nil || !on.Taken(piece, begin, length) {
		return false
	}
	s.fromDisk.Add(length)
	return true
}

// feed has blocks that are on disk read from there, instead of asking the peer.
func (g *gate) feed(d disk) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.disk = d
}

// fetchLocked tells whether a block that the engine asks for is read from disk, and notes that it
// is.
func (g *gate) fetchLocked(b block) bool {
	if g.disk == nil || b.length > maxBlock || !g.disk.has(b) {
		return false
	}
	g.fetches = append(g.fetches, b)
	g.wakeLocked()
	return true
}

// fetch makes the message with the next block from disk. If the block is not there any more, the
// peer is asked.
func (g *gate) fetch() []byte {
	g.mu.Lock()
	b := g.fetches[0]
	g.fetches = g.fetches[1:]
	d := g.disk
	g.mu.Unlock()
	m := make([]byte, pieceHead+int(b.length))
	binary.BigEndian.PutUint32(m, pieceHead-4+b.length)
	m[4] = msgPiece
	binary.BigEndian.PutUint32(m[5:], b.index)
	binary.BigEndian.PutUint32(m[9:], b.begin)
	if err := d.read(m[pieceHead:], b); err == nil {
		return m
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.askLocked(b)
	g.tellLocked(encode(msgRequest, b))
	return nil
}
