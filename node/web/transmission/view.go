package transmission

import (
	"maps"
	"reflect"
	"sync"
	"time"

	"braid/client"
	"braid/node"
	"braid/units/lists"
)

// view is a torrent during one request. Its functions look up what is expensive: only if a field
// needs it, and once.
type view struct {
	node.Status
	id       int
	off      values // of its limits that are off
	dialect  dialect
	settings node.Settings
	now      time.Time

	files    func() []node.File
	pieces   func() client.Pieces
	peers    func() []client.PeerProgress
	trackers func() []numberedTracker
}

func (c *call) view(t *node.Torrent) *view {
	return &view{
		Status:   t.Status(),
		id:       t.Number(),
		off:      c.server.memory.off(t.Number()),
		dialect:  c.dialect,
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
	torrents map[int]known // by their numbers
	removed  []removal     // oldest first
	session  values        // of the session's limits that are off
}

// known is the memory of one torrent.
type known struct {
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

// look notes which torrents were removed since the last look, and returns all torrents. It lists
// them under the lock: an older list would lack torrents that another request has just seen, and
// they would count as removed.
func (m *memory) look(list func() []*node.Torrent, now time.Time) []*node.Torrent {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := list()
	next := make(map[int]known, len(all))
	for _, t := range all {
		next[t.Number()] = m.torrents[t.Number()]
	}
	for id := range m.torrents {
		if _, there := next[id]; !there {
			m.removed = append(m.removed, removal{id, now})
		}
	}
	for len(m.removed) > 0 && now.Sub(m.removed[0].at) > recently {
		m.removed = m.removed[1:]
	}
	m.torrents = next
	return all
}

// gone returns the numbers of torrents that were removed recently.
func (m *memory) gone() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return lists.Map(m.removed, func(x removal) int { return x.id })
}

// recent returns the numbers of torrents whose status has changed recently. Clients that ask for
// recently active torrents want to hear of every change, not only of transferred data.
func (m *memory) recent(all []node.Status, now time.Time) map[int]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[int]bool{}
	for _, s := range all {
		k, ok := m.torrents[s.Number]
		if !ok {
			continue // added since the last look
		}
		s.Since, s.ActiveFor, s.SeedingFor, s.Remaining = 0, 0, 0, 0 // they change by themselves
		if !reflect.DeepEqual(k.status, s) {
			k.status, k.changed = s, now
			m.torrents[s.Number] = k
		}
		out[s.Number] = now.Sub(k.changed) <= recently
	}
	return out
}

// off returns a copy of the values of limits that are off: those of the torrent with this number,
// or those of the session (0).
func (m *memory) off(torrent int) values {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := values{}
	if torrent == 0 {
		maps.Copy(out, m.session)
	} else {
		maps.Copy(out, m.torrents[torrent].off)
	}
	return out
}

// keep replaces the values of limits that are off.
func (m *memory) keep(torrent int, off values) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.torrents[torrent]
	switch {
	case torrent == 0:
		m.session = off
	case ok:
		k.off = off
		m.torrents[torrent] = k
	}
}
