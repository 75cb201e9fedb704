package swarm

import (
	"path/filepath"
	"testing"

	"braid/storage/durable"
)

// Waiting is how many changes the journal has not written yet.
func (d *Durable) Waiting() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n = d.waiting.size()
	for i := range d.parts {
		s := &d.parts[i]
		s.mu.Lock()
		n += s.dirty.size()
		s.mu.Unlock()
	}
	return n
}

// Break takes the journal away, and gives it back.
func (d *Durable) Break(t *testing.T) (mend func()) {
	closed, _, err := durable.OpenLog(filepath.Join(t.TempDir(), "journal"), 0, func([]byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	whole := d.journal
	d.journal = closed
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.journal = whole
	}
}
