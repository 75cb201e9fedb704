package node

import "braid/storage"

// The progress of a torrent that has not run yet: its size, and the data that an earlier download
// has recorded.

// wanted returns the size of the wanted data, the size of all data, and the number of wanted
// pieces. It returns zeros for a magnet link.
func (o Options) wanted() (bytes, all int64, pieces int) {
	if o.Source.IsMagnet() {
		return 0, 0, 0
	}
	l := o.Source.Layout
	wants := o.Selection.Wants(l)
	next := 0 // the first piece that was not counted yet
	for i, f := range l.Files {
		if begin, end := l.FilePieces(f); wants[i] && end > next {
			pieces += end - max(begin, next)
			next = end
		}
	}
	return l.BytesOf(wants), l.Length, pieces
}

// lookAtRecord reads the completion record of a torrent that is not started yet.
func (t *Torrent) lookAtRecord() {
	o := t.options
	if o.Source.IsMagnet() || o.Storage.Dir == "" {
		return
	}
	right := o.stored().Recorded()
	if right == nil {
		return
	}
	bytes, pieces := goodOf(o.Source.Layout, storage.Report{Good: right})
	p := &t.last
	p.Have, p.Missing, p.Done = min(bytes, p.Total), p.Missing-bytes, min(pieces, p.Pieces)
}
