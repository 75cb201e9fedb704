package node

import "braid/storage"

// What is known of a torrent that has not run: its size, and what an earlier download has recorded.

// wanted returns the size of the wanted data in bytes, that of all data, and the number of wanted
// pieces. It returns zeros while it is not known what is in the torrent.
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

// lookAtRecord takes over what the record says of the data of a torrent that is not started yet.
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
	t.last.Have, t.last.Missing, t.last.Done = min(bytes, t.last.Total), t.last.Missing-bytes, min(pieces, t.last.Pieces)
}
