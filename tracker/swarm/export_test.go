package swarm

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"braid/storage/durable"
)

// Waiting is how many changes the journal has not written yet.
func (d *Durable) Waiting() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := slices.Clone(d.waiting)
	for i := range d.parts {
		s := &d.parts[i]
		s.mu.Lock()
		all = append(all, s.news...)
		s.mu.Unlock()
	}
	for ; len(all) > 0; all = all[1+entryLen[all[0]]:] {
		n++
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

// Later gives all members the time of an announce in the next second.
func (m *Memory) Later() {
	for i := range m.parts {
		s := &m.parts[i]
		s.mu.Lock()
		for _, t := range s.tables {
			t.each(func(x *member) { x.seen = m.now() + 1 })
		}
		s.mu.Unlock()
	}
}

// Hang stops all writes of the journal until release is called, like a disk that does not answer.
func (d *Durable) Hang() (release func()) {
	d.mu.Lock()
	return d.mu.Unlock
}

// BePatient lets visitors wait for a server on a busy machine.
func (s *Shared) BePatient() { s.patience = sharedStart }

// BeImpatient refuses visitors at once.
func (s *Shared) BeImpatient() { s.patience = time.Millisecond }
