package storage

import (
	"errors"
	"fmt"

	"github.com/anacrolix/torrent/metainfo"
)

// Settle brings what a torrent has to disk, in a store from Open, and looks whether all of it is still there: a file may
// have been deleted or cut short since it was written, which whoever has it open does not notice. The pieces that are
// gone are out of the record when it returns; they are wrong when they are hashed again.
func Settle(st Store, hash metainfo.Hash) (gone []int, err error) {
	s, ok := st.(*store)
	if !ok {
		return nil, nil // only read: nothing was written
	}
	s.mu.Lock()
	t := s.open[hash]
	s.mu.Unlock()
	if t == nil {
		return nil, nil
	}
	if gone, err = t.settle(); err != nil {
		return gone, fmt.Errorf("bring the data of %s to disk: %w", t.layout.Name, err)
	}
	return gone, nil
}

func (t *torrent) settle() ([]int, error) {
	if err := t.sync(); err != nil {
		return nil, err
	}
	gone, err := t.place.gone()
	if err != nil || len(gone) == 0 {
		return nil, err
	}
	t.mu.Lock()
	for _, p := range gone {
		t.right[p] = false
	}
	t.mu.Unlock()
	for _, p := range gone {
		err = errors.Join(err, t.place.mark(p, false))
	}
	return gone, errors.Join(err, t.record.set(false, gone...))
}
