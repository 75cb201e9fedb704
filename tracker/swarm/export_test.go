package swarm

import bolt "go.etcd.io/bbolt"

// Waiting is how many changes the journal has not written yet.
func (d *Durable) Waiting() (n int) {
	for i := range d.parts {
		n += d.parts[i].countDirty()
	}
	return n
}

// Break takes the database away, and gives it back.
func (d *Durable) Break() (mend func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	whole := d.db
	d.db = &bolt.DB{}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.db = whole
	}
}
