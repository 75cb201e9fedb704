package transmission

import (
	"maps"
	"reflect"
	"sync"
	"time"

	"braid/client"
	"braid/node"
)

// view is a torrent during one request. Its functions look up what is expensive: only if a field
// needs it, and once.
type view struct {
	known
	dialect  dialect
	status   node.Status
	settings node.Settings
	now      time.Time

	files    func() []node.File
	pieces   func() client.Pieces
	peers    func() []client.PeerProgress
	trackers func() []numberedTracker
}

func (c *call) view(t selected) *view {
	return &view{
		dialect:  c.dialect,
		known:    t.known,
		status:   t.Status(),
		settings: c.settings(),
		now:      time.Now(),
		files:    sync.OnceValue(t.Files),
		pieces:   sync.OnceValue(t.Pieces),
		peers:    sync.OnceValue(t.Peers),
		trackers: sync.OnceValue(func() []numberedTracker {
			return numbered(t.Options().Trackers, t.Trackers())
		}),
	}
}

// memory has what clients expect a server to remember and a node does not. A restart clears it.
type memory struct {
	mu       sync.Mutex
	torrents map[string]known // by info hash
	removed  []removal        // oldest first
	session  values           // of the session's limits that are off
}

// known is the memory of one torrent.
type known struct {
	id      int         // see node.Torrent.Number
	off     values      // of its limits that are off
	status  node.Status // when a client last asked for recently active torrents
	changed time.Time   // when the status last changed
}

type removal struct {
	id int
	at time.Time
}

// values are the values of limits that are off, by their names in snake_case. To Transmission, a
// limit is a value and a switch; a node has one number, and forgets the value of a limit that is
// off.
type values map[string]any

func (v values) number(name string) float64 { f, _ := v[name].(float64); return f }
func (v values) text(name string) string    { s, _ := v[name].(string); return s }

// recently is the time for which a torrent counts as recently active, or as recently removed.
const recently = time.Minute

// look notes which torrents were removed since the last look, and returns all torrents with the
// memory of them. It lists them under the lock: an older list would lack torrents that another
// request has just seen, and they would count as removed.
func (m *memory) look(
	list func() []*node.Torrent, now time.Time,
) (all []*node.Torrent, memory map[string]known) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all = list()
	next := make(map[string]known, len(all))
	for _, t := range all {
		k := m.torrents[t.InfoHash()]
		if k.id != t.Number() { // new, or removed and added again
			k = known{id: t.Number()}
		}
		next[t.InfoHash()] = k
	}
	for hash, k := range m.torrents {
		if next[hash].id != k.id {
			m.removed = append(m.removed, removal{k.id, now})
		}
	}
	for len(m.removed) > 0 && now.Sub(m.removed[0].at) > recently {
		m.removed = m.removed[1:]
	}
	m.torrents = next
	return all, maps.Clone(next)
}

// gone returns the numbers of torrents that were removed recently.
func (m *memory) gone() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []int{}
	for _, x := range m.removed {
		out = append(out, x.id)
	}
	return out
}

// recent returns the torrents whose status has changed recently. Clients that ask for recently
// active torrents want to hear of every change, not only of transferred data.
func (m *memory) recent(all []node.Status, now time.Time) map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]bool{}
	for _, s := range all {
		k, ok := m.torrents[s.InfoHash]
		if !ok {
			continue // added since the last look
		}
		s.Since, s.ActiveFor, s.SeedingFor, s.Remaining = 0, 0, 0, 0 // they change by themselves
		if !reflect.DeepEqual(k.status, s) {
			k.status, k.changed = s, now
			m.torrents[s.InfoHash] = k
		}
		out[s.InfoHash] = now.Sub(k.changed) <= recently
	}
	return out
}

// off returns a copy of the values of limits that are off: those of a torrent or, without an info
// hash, those of the session.
func (m *memory) off(hash string) values {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := maps.Clone(m.session)
	if hash != "" {
		out = maps.Clone(m.torrents[hash].off)
	}
	if out == nil {
		out = values{}
	}
	return out
}

// keep replaces the values of limits that are off.
func (m *memory) keep(hash string, off values) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.torrents[hash]
	switch {
	case hash == "":
		m.session = off
	case ok:
		k.off = off
		m.torrents[hash] = k
	}
}
