package swarm

import (
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"braid/storage/boltdb"
)

// Waiting is how many changes the journal has not written yet.
func (d *Durable) Waiting() (n int) {
	for i := range d.parts {
		n += d.parts[i].countDirty()
	}
	return n
}

// Break takes the database away, and gives it back.
func (d *Durable) Break(t *testing.T) (mend func()) {
	closed, err := boltdb.Open(filepath.Join(t.TempDir(), "db"), 0o600, &bolt.Options{Timeout: time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	whole := d.db
	d.db = closed
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.db = whole
	}
}
