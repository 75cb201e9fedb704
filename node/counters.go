package node

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"braid/client"
)

// counters are the sums of a torrent since it was added.
type counters struct {
	Fetched    int64         `json:"fetched_bytes"`
	Sent       int64         `json:"sent_bytes"`
	Wasted     int64         `json:"wasted_bytes,omitempty"`
	Dropped    int64         `json:"dropped_pieces,omitempty"`
	Active     time.Duration `json:"active_ns"`
	Seeding    time.Duration `json:"seeding_ns"`
	LastActive time.Time     `json:"last_active,omitzero"`
	Shape      shape         `json:"shape,omitzero"`
}

// shape is the progress of a torrent that does not run.
type shape struct {
	Total   int64 `json:"total"`
	Have    int64 `json:"have"`
	Missing int64 `json:"missing"`
	Pieces  int   `json:"pieces"`
	Done    int   `json:"done"`
}

// countersLocked returns the counters of earlier runs, with the times of the present run added.
func (t *Torrent) countersLocked(now time.Time) counters {
	c := t.past
	if r := t.run; r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		c.Active += now.Sub(r.began)
		if !r.completed.IsZero() {
			c.Seeding += now.Sub(r.completed)
		}
		if !r.active.IsZero() {
			c.LastActive = r.active
		}
	}
	return c
}

// Totals are the sums of a node since its state directory was made.
type Totals struct {
	Fetched  int64         `json:"fetched_bytes"`
	Sent     int64         `json:"sent_bytes"`
	Active   time.Duration `json:"active_ns"`
	Sessions int           `json:"sessions"` // times that a node was opened
	Added    int           `json:"added"`    // torrents
}

func (t *Totals) add(fetched, sent int64) { t.Fetched, t.Sent = t.Fetched+fetched, t.Sent+sent }

// sums returns the totals without the bytes of the torrents, the torrents, and the counters of
// those that are not restored.
func (n *Node) sums() (Totals, []*Torrent, map[string]counters) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.totals
	s.Active += time.Since(n.opened)
	s.Sessions++
	unrestored := map[string]counters{}
	maps.Copy(unrestored, n.unrestored)
	return s, slices.Clone(n.torrents), unrestored
}

const (
	countersFile = "counters.json"
	orderFile    = "queue.json"
)

// savedCounters is the content of counters.json. Totals do not include the bytes of Torrents.
type savedCounters struct {
	Totals   Totals              `json:"totals"`
	Torrents map[string]counters `json:"torrents"`
}

func (n *Node) saveCounters() error {
	if n.state == "" {
		return nil
	}
	totals, torrents, unrestored := n.sums()
	s := savedCounters{totals, unrestored}
	now := time.Now()
	for _, t := range torrents {
		p := t.Progress()
		t.mu.Lock()
		c := t.countersLocked(now)
		t.mu.Unlock()
		c.Fetched, c.Sent, c.Wasted, c.Dropped = p.Fetched, p.Sent, p.Wasted, p.Dropped
		c.Shape = shape{p.Total, p.Have, p.Missing, p.Pieces, p.Done}
		s.Torrents[t.InfoHash()] = c
		if r := t.current(); r != nil && p.Phase == client.Downloading {
			t.remember(r)
		}
	}
	return n.write(countersFile, s)
}

// loadCounters reads the counters of earlier processes, when the node is opened.
func (n *Node) loadCounters() {
	var s savedCounters
	if err := n.read(countersFile, &s); err != nil {
		n.log.Error("the counters of all torrents begin at 0: they cannot be read",
			"file", filepath.Join(n.state, countersFile), "error", err)
	}
	maps.DeleteFunc(s.Torrents, func(infoHash string, c counters) bool {
		_, err := os.Stat(n.stateFile(infoHash, ".json"))
		removed := errors.Is(err, os.ErrNotExist) // and the process ended before it saved the totals
		if removed {
			s.Totals.add(c.Fetched, c.Sent)
		}
		return removed
	})
	n.totals, n.before, n.unrestored = s.Totals, s.Totals, s.Torrents
	for _, c := range s.Torrents {
		n.before.add(c.Fetched, c.Sent)
	}
}

// saveOrder keeps the order of the torrents.
func (n *Node) saveOrder() error {
	var order []string
	for _, t := range n.Torrents() {
		order = append(order, t.InfoHash())
	}
	return n.write(orderFile, order)
}

// loadOrder returns the place of each torrent in the kept order.
func (n *Node) loadOrder() (map[string]int, error) {
	var order []string
	if err := n.read(orderFile, &order); err != nil {
		return nil, err
	}
	out := map[string]int{}
	for i, hash := range order {
		out[hash] = i
	}
	return out, nil
}

// maxRemembered bounds the peers that are kept for a torrent. A few of them are enough: they tell
// of the others.
const maxRemembered = 20

// remember keeps the peers that have delivered data, so that the next start tries them first. It
// does not wait until the file is on disk.
func (t *Torrent) remember(r *run) {
	found := r.transfer.Deliverers(maxRemembered)
	if len(found) == 0 {
		return
	}
	var lines []string
	for _, p := range found {
		lines = append(lines, p.String())
	}
	t.mu.Lock()
	t.deliverers = found
	t.mu.Unlock()
	if t.node.state == "" {
		return
	}
	t.saving.Lock()
	defer t.saving.Unlock()
	if t.State() == Removed {
		return
	}
	name := t.node.stateFile(t.InfoHash(), ".peers")
	if err := ReplaceFile(name, []byte(strings.Join(lines, "\n")), false); err != nil {
		t.node.log.Warn("the peers of a torrent cannot be saved",
			"torrent", t.Options().title(), "error", err)
	}
}

// loadPeers returns the remembered peers of a torrent. It ignores errors, since trackers name
// peers, too.
func (n *Node) loadPeers(hash string) (peers []client.Peer) {
	b, err := os.ReadFile(n.stateFile(hash, ".peers"))
	if err != nil {
		return nil
	}
	for _, line := range strings.Fields(string(b)) {
		if p, err := client.ParsePeer(line); err == nil && len(peers) < maxRemembered {
			peers = append(peers, p)
		}
	}
	return peers
}
