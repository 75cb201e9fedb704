package swarm

import (
	"bytes"
	"context"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
)

var _ Keeper = (*Durable)(nil)

// Keep implements Keeper.
func (d *Durable) Keep(_ context.Context, note []byte, _ time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(note) > MaxNote {
		return fmt.Errorf("a note of %d bytes, more than %d", len(note), MaxNote)
	}
	err := d.db.Update(func(tx *bolt.Tx) error {
		if len(note) == 0 {
			return tx.Bucket(metaBucket).Delete(journalNote)
		}
		return tx.Bucket(metaBucket).Put(journalNote, note)
	})
	if err != nil {
		return fmt.Errorf("write a note into the journal: %w", err)
	}
	return nil
}

// Kept implements Keeper.
func (d *Durable) Kept(context.Context) (notes [][]byte, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.given {
		return nil, nil
	}
	d.given = true
	err = d.db.View(func(tx *bolt.Tx) error {
		if note := tx.Bucket(metaBucket).Get(journalNote); len(note) > 0 && len(note) <= MaxNote {
			notes = append(notes, bytes.Clone(note))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read a note in the journal: %w", err)
	}
	return notes, nil
}
