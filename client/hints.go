package client

import "braid/pathsel"

// maxHinted bounds the ASes to which hints are remembered. A transfer has fewer peers.
const maxHinted = 4 * maxPeers

// Hint names paths that are to be tried first, on the word of somebody else: a tracker, say. Newer hints for an AS replace older ones.
func (t *Transfer) Hint(h pathsel.Hints) { t.inbox.put(hinted{h}) }

func (t *Transfer) onHints(h pathsel.Hints) {
	if t.hints = t.hints.Merge(h); len(t.hints) > maxHinted {
		t.hints = h
	}
	t.log.Info("path hints", "ases", len(h))
}
