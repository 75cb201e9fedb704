package swarm

// Waiting is how many changes the journal has not written yet.
func (d *Durable) Waiting() (n int) {
	for i := range d.parts {
		n += d.parts[i].countDirty()
	}
	return n
}
