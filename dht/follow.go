package dht

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// Followed is a torrent for which a server searches peers.
type Followed struct {
	server   *Server
	hash     ID
	found    func([]Addr)
	torrents map[*member]*Torrent
	hungry   atomic.Bool // what Hungry has said last
}

// Follow searches for peers of a torrent from now on, and tells others that this host accepts peers
// at a port of a network; networks without a port are searched only. found may be called from
// several goroutines, with the same peer more than once.
func (s *Server) Follow(hash ID, ports map[Network]uint16, found func([]Addr)) (*Followed, error) {
	f := &Followed{server: s, hash: hash, found: found, torrents: map[*member]*Torrent{}}
	f.hungry.Store(true)
	if !s.do(func(now time.Time) {
		s.followed = append(s.followed, f)
		for _, m := range s.members {
			t, out := m.Node.Follow(now, hash, ports[m.cfg.Network])
			f.torrents[m] = t
			s.carry(m, out, nil)
		}
	}) {
		return nil, errClosed
	}
	return f, nil
}

// each calls a function for the torrent at each node.
func (f *Followed) each(do func(now time.Time, m *member, t *Torrent) Out) {
	f.server.do(func(now time.Time) {
		for m, t := range f.torrents {
			f.server.carry(m, do(now, m, t), nil)
		}
	})
}

// Hungry says whether the torrent lacks peers; at first it does. Without a change it costs nothing,
// so that thousands of torrents may call it every second.
func (f *Followed) Hungry(hungry bool) {
	if f.hungry.Swap(hungry) == hungry {
		return
	}
	f.each(func(now time.Time, m *member, t *Torrent) Out { return m.Hungry(now, t, hungry) })
}

// Now searches at once, unless a search has just ended.
func (f *Followed) Now() {
	f.each(func(now time.Time, m *member, t *Torrent) Out { return m.SearchNow(now, t) })
}

// Seeding says that the torrent's data is complete.
func (f *Followed) Seeding() {
	f.each(func(_ time.Time, m *member, t *Torrent) Out {
		m.Seeding(t)
		return Out{}
	})
}

// Close ends the searches. found may still be called once by a search that is being answered.
func (f *Followed) Close() {
	f.server.do(func(time.Time) {
		for m, t := range f.torrents {
			m.Unfollow(t)
		}
		f.server.followed = slices.DeleteFunc(f.server.followed, func(x *Followed) bool { return x == f })
	})
}

// Found is the outcome of a search in all networks of a server.
type Found struct {
	Peers   []Addr
	Item    *Item
	Results []Result // of each network
}

// finder waits for the end of its searches.
type finder struct {
	target  ID
	pending map[*member]int // the numbers of its searches, one in each network
	found   Found
	done    chan struct{}
}

// take notes what an event says about the searches. Others may have the same target.
func (f *finder) take(m *member, e Event) {
	if e.Target != f.target || len(f.pending) == 0 {
		return
	}
	f.found.Peers = append(f.found.Peers, e.Peers...)
	if e.Item != nil && (f.found.Item == nil || e.Item.Seq > f.found.Item.Seq) {
		f.found.Item = e.Item
	}
	if e.Done != nil && e.Done.Number == f.pending[m] {
		f.found.Results = append(f.found.Results, *e.Done)
		if delete(f.pending, m); len(f.pending) == 0 {
			close(f.done)
		}
	}
}

// find starts a search for the target in each network and waits for them all.
func (s *Server) find(
	ctx context.Context, target ID, start func(now time.Time, n *Node) Out,
) (Found, error) {
	f := &finder{target: target, pending: map[*member]int{}, done: make(chan struct{})}
	if !s.do(func(now time.Time) {
		s.finders = append(s.finders, f)
		for _, m := range s.members {
			f.pending[m] = m.stats.Searches + 1
		}
		for _, m := range s.members {
			s.carry(m, start(now, m.Node), nil)
		}
	}) {
		return Found{}, errClosed
	}
	var err error
	select {
	case <-f.done:
	case <-s.done:
		err = errClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finders = slices.DeleteFunc(s.finders, func(x *finder) bool { return x == f })
	return f.found, err
}

// FindPeers looks for a torrent's peers once.
func (s *Server) FindPeers(ctx context.Context, hash ID) (Found, error) {
	return s.find(ctx, hash, func(now time.Time, n *Node) Out {
		return n.FindPeers(now, hash)
	})
}

// GetItem looks for an item (BEP 44). The newest one is in the result.
func (s *Server) GetItem(ctx context.Context, target ID) (Found, error) {
	return s.find(ctx, target, func(now time.Time, n *Node) Out {
		return n.GetItem(now, target)
	})
}

// PutItem stores an item at the nodes near its name (BEP 44).
func (s *Server) PutItem(ctx context.Context, i *Item) (Found, error) {
	return s.find(ctx, i.Target(), func(now time.Time, n *Node) Out {
		return n.PutItem(now, i)
	})
}

// AddNodes names addresses at which nodes may be.
func (s *Server) AddNodes(addrs ...Addr) {
	s.do(func(now time.Time) {
		for _, m := range s.members {
			if slices.ContainsFunc(addrs, m.inNetwork) {
				s.carry(m, m.Bootstrap(now, addrs), nil)
			}
		}
	})
}

// Ports are those of the nodes.
func (s *Server) Ports() map[Network]uint16 {
	out := map[Network]uint16{}
	for _, m := range s.members {
		out[m.cfg.Network] = m.socket.Addr().Port
	}
	return out
}

// Suggest names an address at which a stranger says that a node is.
func (s *Server) Suggest(a Addr) {
	s.do(func(now time.Time) {
		for _, m := range s.members {
			if m.cfg.Network == NetworkOf(a) {
				s.carry(m, m.Suggest(now, a), nil)
			}
		}
	})
}

// States returns what the next run should know.
func (s *Server) States() (out []State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		a := m.cfg.Addr
		if !a.Dialable() {
			a = m.socket.Addr()
		}
		out = append(out, State{ID: m.id, Addr: a, Nodes: m.Contacts()})
	}
	return out
}

// Following returns the numbers of nodes and of followed torrents.
func (s *Server) Following() (nodes, torrents int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.members), len(s.followed)
}

// Status is the state of one node.
type Status struct {
	Network, Listen        string // the network is ip4, ip6 or scion
	ID                     ID
	Nodes                  int            // in the table
	ByAS                   map[string]int // the same by AS, on IP by /24 or /48
	Torrents, Peers, Items int            // that are kept for others
	Dropped                int            // messages over the rate limit, of all networks
	Received, Sent         int            // bytes of messages, without headers
	Stats
}

// Status returns the state of each node.
func (s *Server) Status() (out []Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		x := Status{
			Network: m.cfg.Network.String(), Listen: m.socket.Addr().String(), ID: m.id,
			ByAS:  map[string]int{},
			Stats: m.stats, Dropped: s.dropped, Received: m.in, Sent: m.out,
			Torrents: len(m.store.swarms), Peers: m.store.peers, Items: len(m.store.items),
		}
		for _, c := range m.Contacts() {
			x.Nodes++
			x.ByAS[c.group().String()]++
		}
		out = append(out, x)
	}
	return out
}
