package foreign

import "braid/node"

// Known is the status of a torrent with its size, also if the torrent has never run: then the node
// knows of no piece that is there, and says nothing of how much is missing.
func Known(t *node.Torrent, s node.Status) node.Status {
	if s.IsMagnet || s.Total > 0 || s.Pieces > 0 {
		return s
	}
	o := t.Options()
	s.Total, s.Missing = o.Source.Layout.BytesOf(o.Selection.Wants(o.Source.Layout)), s.Size
	return s
}
