package swarm

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"braid/tracker/wire"
)

// shards is the number of parts of the memory, each with its own lock. With many more shards than
// cores, cores seldom wait for each other.
const shards = 64

// Memory is a Store in RAM.
type Memory struct {
	limits Limits
	seed   hashSeed
	epoch  time.Time
	counts [kinds]atomic.Int64 // members on each kind of network
	census *census
	parts  [shards]shard
}

type shard struct {
	mu     sync.Mutex
	tables map[wire.InfoHash]*table
	// news are entries that the journal lacks, if there is one. If there were too many, they are
	// dropped until the next sync, and lost is true.
	news            []byte
	journaled, lost bool
}

var _ Store = (*Memory)(nil)

// NewMemory is an empty memory.
func NewMemory(l Limits) *Memory {
	m := &Memory{limits: l.withDefaults(), seed: maphash.MakeSeed(), epoch: time.Now(), census: &census{}}
	for i := range m.parts {
		m.parts[i].tables = map[wire.InfoHash]*table{}
	}
	return m
}

func (m *Memory) shard(h wire.InfoHash) *shard { return &m.parts[h[0]%shards] }

func (m *Memory) now() uint32 { return uint32(time.Since(m.epoch) / time.Second) }

// Announce implements Store.
func (m *Memory) Announce(_ context.Context, v Visit) (View, error) {
	out := m.announce(&v)
	if out.Refused == ErrFull && m.evict(&v) { //nolint:errorlint // it is not wrapped
		out = m.announce(&v)
	}
	return out, nil
}

func (m *Memory) announce(v *Visit) View {
	now := m.now()
	s := m.shard(v.InfoHash)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[v.InfoHash]
	var out View
	if v.Event == wire.Stopped {
		if t != nil {
			m.leave(s, t, v)
			out.Counts = t.counts(v.InfoHash)
		}
		out.Counts.InfoHash = v.InfoHash
		return out
	}
	if t == nil {
		t = &table{}
	}
	if v.Addr.Port != 0 {
		out.Refused = m.enter(s, t, v, now)
	}
	out.Counts = t.counts(v.InfoHash)
	out.Peers = t.choose(v)
	return out
}

func (v *Visit) member(now uint32) member {
	m := member{
		ia: v.Addr.IA, host: v.Addr.Host.As16(), port: v.Addr.Port,
		id: v.ID, identity: v.Identity, seen: now,
	}
	switch {
	case v.Seed:
		m.flags = isSeed
	case v.Event == wire.Paused:
		m.flags = isPaused
	}
	return m
}

// enter adds the visitor to the table, or renews it.
func (m *Memory) enter(s *shard, t *table, v *Visit, now uint32) error {
	x := v.member(now)
	if i := t.find(m.seed, v.Addr); i >= 0 {
		g := t.groups[kindOf(v.Addr)]
		old := &g.members[i]
		old.seen = now
		if old.id == x.id && old.identity == x.identity && old.flags == x.flags {
			return nil
		}
		// Count a download once: when a peer that lacked something announces that it is complete.
		if v.Event == wire.Completed && v.Seed && old.flags&isSeed == 0 && old.identity == x.identity {
			if t.tally(x.identity).seeds == 0 {
				t.downloaded++
				s.note(func(b []byte) []byte { return t.appendDownloads(b, v.InfoHash) })
			}
		}
		t.remove(m.seed, g, i)
		t.add(m.seed, x)
		s.note(func(b []byte) []byte { return x.appendEntry(b, v.InfoHash) })
		return nil
	}
	switch host, as := t.occupied(m.seed, v.Addr); {
	case host >= m.limits.PerHost:
		return ErrPerHost
	case v.Addr.IsSCION() && as >= m.limits.PerAS:
		return ErrPerAS
	case v.Addr.IsSCION() && m.census.of(m.seed, Origin{IA: v.Addr.IA}) >= m.limits.perASInAll():
		return ErrASShare
	case m.census.of(m.seed, networkOf(x.ia, x.host)) >= m.limits.PerNetwork:
		return ErrNetworkShare
	case !m.limits.room(m.members(), kindOf(v.Addr)):
		return ErrFull
	}
	m.put(s, v.InfoHash, t, x)
	s.note(func(b []byte) []byte { return x.appendEntry(b, v.InfoHash) })
	return nil
}

// put adds a new member, and the table if it is new.
func (m *Memory) put(s *shard, h wire.InfoHash, t *table, x member) {
	t.add(m.seed, x)
	s.tables[h] = t
	m.change(&x, 1)
}

// change counts one member more or less.
func (m *Memory) change(x *member, by int) {
	m.counts[kindOf(x.addr())].Add(int64(by))
	m.census.add(m.seed, x.ia, x.host, int32(by))
}

// members is the number of members on each kind of network.
func (m *Memory) members() (out [kinds]int64) {
	for k := range out {
		out[k] = m.counts[k].Load()
	}
	return out
}

// leave removes the visitor's address. The peer announces from each of its addresses that it stops.
func (m *Memory) leave(s *shard, t *table, v *Visit) {
	i := t.find(m.seed, v.Addr)
	if i < 0 {
		return
	}
	g := t.groups[kindOf(v.Addr)]
	if g.members[i].identity != v.Identity {
		return // another peer has this port now, and must stay
	}
	m.drop(s, v.InfoHash, t, g, i)
}

func (m *Memory) drop(s *shard, h wire.InfoHash, t *table, g *group, i int) {
	s.note(func(b []byte) []byte { return g.members[i].appendKey(append(b, goneEntry), h) })
	m.change(&g.members[i], -1)
	t.remove(m.seed, g, i)
	if t.size == 0 {
		delete(s.tables, h)
	}
}

// note adds an entry to the news.
func (s *shard) note(add func(b []byte) []byte) {
	if !s.journaled || s.lost {
		return
	}
	if s.news = add(s.news); len(s.news) > mostNews {
		s.news, s.lost = nil, true
	}
}

// Scrape implements Store.
func (m *Memory) Scrape(_ context.Context, hashes []wire.InfoHash) ([]wire.Counts, error) {
	out := make([]wire.Counts, len(hashes))
	for i, h := range hashes {
		s := m.shard(h)
		s.mu.Lock()
		out[i].InfoHash = h
		if t := s.tables[h]; t != nil {
			out[i] = t.counts(h)
		}
		s.mu.Unlock()
	}
	return out, nil
}

// Sweep implements Store. It locks one shard at a time.
func (m *Memory) Sweep(ctx context.Context) error {
	lifetime := uint32(m.limits.Lifetime / time.Second)
	for i := range m.parts {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		now := m.now()
		s := &m.parts[i]
		s.mu.Lock()
		for h, t := range s.tables {
			for _, g := range t.groups {
				for i := 0; g != nil && i < len(g.members); {
					// A member may have announced after now, while this waited for the lock.
					if g.members[i].seen+lifetime < now {
						m.drop(s, h, t, g, i)
					} else {
						i++
					}
				}
			}
		}
		s.mu.Unlock()
	}
	return nil
}

// Totals implements Store.
func (m *Memory) Totals(context.Context) (Totals, error) {
	var out Totals
	by := [kinds]*int{&out.IPv4, &out.IPv6, &out.SCION}
	for i := range m.parts {
		s := &m.parts[i]
		s.mu.Lock()
		out.Swarms += len(s.tables)
		for _, t := range s.tables {
			for k, g := range t.groups {
				if g != nil {
					*by[k] += len(g.members)
					out.Seeds += g.seeds
					out.Members += len(g.members)
				}
			}
		}
		s.mu.Unlock()
	}
	return out, nil
}

// Close implements Store.
func (m *Memory) Close() error { return nil }
