package wire

import (
	"errors"
	"sync"
	"testing"
)

// diskWith has some blocks, of which it can read some.
type diskWith struct {
	mu     sync.Mutex
	blocks map[block]bool // it can be read
}

func (d *diskWith) Has(piece int, begin, length int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.blocks[block{uint32(piece), uint32(begin), uint32(length)}]
	return ok
}

func (d *diskWith) Read(data []byte, piece int, begin int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.blocks[block{uint32(piece), uint32(begin), uint32(len(data))}] {
		return errors.New("gone")
	}
	clear(data)
	return nil
}

// The engine gets blocks that are on disk from there; the peer does not hear of it, and is asked
// for those that cannot be read.
func TestBlocksFromDisk(t *testing.T) {
	for _, fast := range []bool{true, false} {
		s := newStand(t, fast)
		blockC := block{1, 200, 100}
		s.filter.UseDisk(&diskWith{blocks: map[block]bool{blockA: true, blockC: false}})
		s.sends(unchoke)
		s.engineGets(unchoke)
		s.writes(encode(msgRequest, blockA, blockB, blockC))
		s.engineGets(piece(blockA))
		s.peerGets(encode(msgRequest, blockB, blockC))
		s.sends(piece(blockB), piece(blockC))
		s.engineGets(piece(blockB), piece(blockC))

		// In the middle of a message nothing comes in between.
		half := piece(blockB)
		s.sends(half[:50])
		s.engineGets(half[:50])
		s.writes(encode(msgRequest, blockA), interested)
		s.peerGets(interested)
		s.sends(half[50:])
		s.engineGets(half[50:], piece(blockA))
	}
}
