package transmission

import (
	"maps"
	"reflect"
	"sync"
	"time"

	"braid/client"
	"braid/node"
)

// view is a torrent as one request sees it. What costs much is looked up once, and only if a field
// needs it.
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

// memory is what clients expect a server to know. It forgets at a restart.
type memory struct {
	mu       sync.Mutex
	last     int              // number of a torrent
	torrents map[string]known // by info hash
	removed  []removal        // in the order of time
	session  values           // of limits of the session that are off
}

// known is what is remembered of a torrent.
type known struct {
	id      int         // the number by which clients know it, which is never given twice
	off     values      // of its limits that are off
	status  node.Status // at the last question for recently active torrents
	changed time.Time   // when the status has last become another one
}

type removal struct {
	id int
	at time.Time
}

// values are fields of limits that are off, by their names in snake_case. To Transmission a limit
// is a value and a switch, to a node it is one value.
type values map[string]any

func (v values) number(name string) float64 { f, _ := v[name].(float64); return f }
func (v values) text(name string) string    { s, _ := v[name].(string); return s }

// recently is how long ago a torrent was active, or removed, that a client is told of as recent.
const recently = time.Minute

// look numbers new torrents, notes which are gone since the last look, and returns what is known.
func (m *memory) look(all []*node.Torrent, now time.Time) map[string]known {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := make(map[string]known, len(all))
	for _, t := range all {
		k, ok := m.torrents[t.InfoHash()]
		if !ok {
			m.last++
			k.id = m.last
		}
		next[t.InfoHash()] = k
	}
	for hash, k := range m.torrents {
		if _, ok := next[hash]; !ok {
			m.removed = append(m.removed, removal{k.id, now})
		}
	}
	for len(m.removed) > 0 && now.Sub(m.removed[0].at) > recently {
		m.removed = m.removed[1:]
	}
	m.torrents = next
	return maps.Clone(next)
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

// recent returns the torrents that have changed recently: clients that ask for recently active
// torrents want to hear of every change, not only of data.
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

// off returns a copy of the values of limits that are off: of a torrent or, without an info hash,
// of the session.
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

// keep replaces them.
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
