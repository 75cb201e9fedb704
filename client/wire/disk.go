package wire

import "encoding/binary"

// Disk has the blocks that an earlier download has left on disk. Several filters use it at once. It
// must not call them.
//
// The engine knows whole pieces only and asks peers for all blocks of the others. A filter keeps
// requests for blocks on disk from the peer, and has the engine read these blocks as if the peer
// had sent them.
type Disk interface {
	Has(piece int, begin, length int64) bool
	Read(block []byte, piece int, begin int64) error
}

// UseDisk has blocks read from the disk, as far as they are there, instead of from the peer.
func (f *Filter) UseDisk(d Disk) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disk = d
}

// fetchLocked notes that the engine gets a block from disk. It returns false if the block is not
// there.
func (f *Filter) fetchLocked(b block) bool {
	if f.disk == nil || b.length > maxBlock ||
		!f.disk.Has(int(b.index), int64(b.begin), int64(b.length)) {
		return false
	}
	f.fetches = append(f.fetches, b)
	f.wakeLocked()
	return true
}

// fetch makes the message with the next block from disk. If the block is not there any more, it
// asks the peer, or has the engine ask again if the peer must not be asked now.
func (f *Filter) fetch() []byte {
	f.mu.Lock()
	b := f.fetches[0]
	f.fetches = f.fetches[1:]
	d := f.disk
	f.mu.Unlock()
	m := make([]byte, pieceHead+int(b.length))
	binary.BigEndian.PutUint32(m, pieceHead-4+b.length)
	m[4] = msgPiece
	binary.BigEndian.PutUint32(m[5:], b.index)
	binary.BigEndian.PutUint32(m[9:], b.begin)
	if err := d.Read(m[pieceHead:], int(b.index), int64(b.begin)); err == nil {
		return m
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.withholdLocked(b) {
		f.askLocked(b)
		f.toPeerLocked(encode(msgRequest, b))
	}
	return nil
}
