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
	dialect  dialect
	id       int
	torrent  *node.Torrent
	status   node.Status
	settings node.Settings
	off      values // of limits that are off
	now      time.Time

	source   func() client.Source
	files    func() []node.File
	pieces   func() client.Pieces
	peers    func() []client.PeerProgress
	trackers func() []numberedTracker
}

func (c *call) view(t *node.Torrent, id int) *view {
	return &view{
		dialect: c.dialect, id: id, torrent: t, status: t.Status(), settings: c.settings(), now: time.Now(),
		off:      c.server.off.of(t.InfoHash()),
		source:   sync.OnceValue(t.Source),
		files:    sync.OnceValue(t.Files),
		pieces:   sync.OnceValue(t.Pieces),
		peers:    sync.OnceValue(t.Peers),
		trackers: sync.OnceValue(func() []numberedTracker { return numbered(t.Options().Trackers, t.Trackers()) }),
	}
}

// registry gives torrents the numbers by which clients know them. A number is never given twice.
type registry struct {
	mu      sync.Mutex
	last    int
	ids     map[string]int // by info hash
	removed []removal      // in the order of time
}

type removal struct {
	id int
	at time.Time
}

// recently is how long ago a torrent was active, or removed, that a client is told of as recent.
const recently = time.Minute

// number returns the numbers of all torrents. It notes which torrents are gone since the last call.
func (r *registry) number(all []*node.Torrent, now time.Time) map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make(map[string]int, len(all))
	for _, t := range all {
		id, ok := r.ids[t.InfoHash()]
		if !ok {
			r.last++
			id = r.last
		}
		ids[t.InfoHash()] = id
	}
	for hash, id := range r.ids {
		if _, ok := ids[hash]; !ok {
			r.removed = append(r.removed, removal{id, now})
		}
	}
	for len(r.removed) > 0 && now.Sub(r.removed[0].at) > recently {
		r.removed = r.removed[1:]
	}
	r.ids = ids
	return ids
}

// gone returns the numbers of torrents that were removed recently.
func (r *registry) gone() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []int{}
	for _, x := range r.removed {
		out = append(out, x.id)
	}
	return out
}

// values are fields of limits that are off, by their names in snake_case.
type values map[string]any

func (v values) number(name string) float64 { f, _ := v[name].(float64); return f }
func (v values) text(name string) string    { s, _ := v[name].(string); return s }

// memory keeps the values of limits that are switched off. To Transmission a limit is a value and a
// switch, to a node it is one value. Memory forgets at a restart.
type memory struct {
	mu  sync.Mutex
	all map[string]values // by info hash, or the empty string for the session
}

// of returns a copy.
func (m *memory) of(hash string) values {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.all[hash])
}

func (m *memory) set(hash string, v values) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(v) == 0 {
		return
	}
	if m.all == nil {
		m.all = map[string]values{}
	}
	if m.all[hash] == nil {
		m.all[hash] = values{}
	}
	maps.Copy(m.all[hash], v)
}

// keep forgets torrents that are gone.
func (m *memory) keep(ids map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.all, func(hash string, _ values) bool {
		_, ok := ids[hash]
		return !ok && hash != ""
	})
}

// recent remembers when torrents have last changed. Clients that ask for recently active torrents
// want to hear of every change, not only of data.
type recent struct {
	mu   sync.Mutex
	last map[string]snapshot
}

type snapshot struct {
	status node.Status
	at     time.Time
}

// note compares the torrents with what they were at the last call. It returns those that changed
// within the time that counts as recent.
func (r *recent) note(all []node.Status, now time.Time) map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, out := make(map[string]snapshot, len(all)), map[string]bool{}
	for _, s := range all {
		s.ActiveFor, s.SeedingFor, s.Remaining = 0, 0, 0 // they change by themselves
		x, ok := r.last[s.InfoHash]
		if !ok || !reflect.DeepEqual(x.status, s) {
			x = snapshot{s, now}
		}
		next[s.InfoHash] = x
		out[s.InfoHash] = now.Sub(x.at) <= recently
	}
	r.last = next
	return out
}
