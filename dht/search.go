package dht

import (
	"slices"
	"time"

	"braid/scionnet"
)

const (
	// slowAfter is the silence after which a branch goes on with its next node, while it still
	// waits for the last one.
	slowAfter = 400 * time.Millisecond
	// maxAsked bounds the queries of one search, and maxAskedGroup those to one network: a network
	// that names ever nearer nodes of its own costs no more.
	maxAsked, maxAskedGroup = 120, 40
	maxSearch               = 20 * time.Second
	// maxSearches bounds the searches for followed torrents. It does not count other searches, such
	// as those for items: they are few, and start at once.
	maxSearches = 64
	// maxKnown bounds the nodes of a branch, and maxNamed those taken from one answer.
	maxKnown, maxNamed = 64, 16
	// maxBoot bounds the named and the lost nodes that a search tries.
	maxBoot = 24
	// maxFound bounds the peers that one node may name in a search.
	maxFound = 50
)

// Result is how a search went.
type Result struct {
	Number  int // of the search, from 1: see Stats
	Queries int
	Answers int
	// Hops is the distance, in answers, from the nodes known at first to the first one that named
	// peers or, if none did, to the one nearest to the target.
	Hops    int
	First   time.Duration // until the first peer or the item; 0: none was found
	Closest []Contact     // the nodes that answered, nearest first
}

type memberState uint8

const (
	fresh memberState = iota
	asked
	answeredState
	failedState
)

// candidate is a node that a search knows. Each belongs to the branch that has heard of it first,
// so the branches are disjoint.
type candidate struct {
	Contact
	hasID  bool // the ID is known
	state  memberState
	at     time.Time // when it was asked
	hops   int
	token  string
	branch int
}

// search is a search for the nodes near a target, and for what they keep.
type search struct {
	target   ID
	method   Method
	torrent  *Torrent // that it is for, if any
	put      *Item    // is stored at the end
	item     *Item    // best one found
	branches [][]*candidate
	seen     map[Addr]struct{}
	peers    map[Addr]struct{}
	groups   map[group]int // queries
	started  time.Time
	nextStep time.Time
	hopsSet  bool
	result   Result
}

func (n *Node) searching(target ID) bool {
	return slices.ContainsFunc(n.searches, func(s *search) bool { return s.target == target })
}

func (n *Node) search(now time.Time, s *search) {
	n.stats.Searches++
	s.started, s.result.Number = now, n.stats.Searches
	s.seen, s.groups, s.peers = map[Addr]struct{}{}, map[group]int{}, map[Addr]struct{}{}
	s.branches = make([][]*candidate, max(1, n.cfg.Limits.Branches))
	start := n.table.closest(s.target, len(s.branches)*bucketSize, func(Contact) bool { return true })
	s.plant(start)
	var boot []Addr
	if len(start) < bucketSize {
		boot = n.some(n.boot)
	}
	if len(start) == 0 || s.target == n.id && len(start) < bucketSize { // others would take longer
		boot = append(boot, n.some(n.lost)...)
	}
	for i, a := range boot {
		s.add(n, i%len(s.branches), &candidate{Contact: Contact{Addr: a}, hops: 1})
	}
	n.searches = append(n.searches, s)
	n.advance(now, s)
}

// some returns up to maxBoot addresses of a list.
func (n *Node) some(list []Addr) (out []Addr) {
	for _, i := range n.cfg.Rand.Perm(len(list))[:min(len(list), maxBoot)] {
		out = append(out, list[i])
	}
	return out
}

// plant spreads the first nodes over the branches. Nodes of one network go to one branch, so that
// no network is at the root of two; with fewer networks than branches that cannot be.
func (s *search) plant(start []Contact) {
	of := map[group]int{}
	for _, c := range start {
		of[c.group()] = -1
	}
	apart := len(of) >= len(s.branches)
	for _, c := range start {
		b, g := s.emptiest(), c.group()
		if apart && g.limited() {
			if of[g] < 0 {
				of[g] = b
			}
			b = of[g]
		}
		s.seen[c.Addr] = struct{}{}
		s.branches[b] = append(s.branches[b], &candidate{Contact: c, hasID: true, hops: 1, branch: b})
	}
}

func (s *search) emptiest() (best int) {
	for b := range s.branches {
		if len(s.branches[b]) < len(s.branches[best]) {
			best = b
		}
	}
	return best
}

// add gives a branch a node, unless a branch has it already.
func (s *search) add(n *Node, branch int, c *candidate) {
	if _, ok := s.seen[c.Addr]; ok || c.Addr == n.cfg.Addr || len(s.seen) > len(s.branches)*4*maxKnown {
		return
	}
	s.seen[c.Addr] = struct{}{}
	c.branch = branch
	all := append(s.branches[branch], c)
	s.sort(all)
	if len(all) > maxKnown {
		all = all[:maxKnown]
	}
	s.branches[branch] = all
}

// sort puts the nearest first, after nodes whose ID is not known yet.
func (s *search) sort(all []*candidate) {
	slices.SortStableFunc(all, func(a, b *candidate) int {
		if a.hasID != b.hasID {
			return flag(a.hasID) - flag(b.hasID)
		}
		return nearer(s.target, a.ID, b.ID)
	})
}

// width is the number of nearest nodes that each branch wants an answer from. Together the branches
// find somewhat more than the nodes that keep a value.
func (s *search) width() int { return bucketSize/len(s.branches) + 2 }

// goal returns the nearest nodes of a branch, of which at most perGroup have one network as long as
// there are others.
func (s *search) goal(branch, perGroup int) []*candidate {
	alive := make([]*candidate, 0, len(s.branches[branch]))
	for _, c := range s.branches[branch] {
		if c.state != failedState {
			alive = append(alive, c)
		}
	}
	goal, _ := pick(alive, s.width(), perGroup)
	return goal
}

// advance asks the next nodes of a search, and ends it when each branch has answers from its
// nearest nodes.
func (n *Node) advance(now time.Time, s *search) {
	if !slices.Contains(n.searches, s) {
		return
	}
	working := false
	s.nextStep = s.started.Add(maxSearch)
	for b := range s.branches {
		goal := s.goal(b, n.cfg.Limits.PerBucket)
		busy := false
		for _, c := range goal {
			if c.state != asked {
				continue
			}
			working = true
			if slow := c.at.Add(slowAfter); now.Before(slow) {
				busy, s.nextStep = true, minTime(s.nextStep, slow)
			}
		}
		for _, c := range goal {
			if busy || c.state != fresh {
				continue
			}
			g := c.group()
			if s.result.Queries >= maxAsked || g.limited() && s.groups[g] >= maxAskedGroup {
				c.state = failedState
				continue
			}
			n.askMember(now, s, c)
			s.nextStep = minTime(s.nextStep, now.Add(slowAfter))
			busy, working = true, true
		}
	}
	if !working || now.Sub(s.started) >= maxSearch {
		n.finish(now, s)
	}
}

// askMember sends the query of a search to one node. If too many queries wait for answers, it sends
// nothing, and a later step of the search tries again.
func (n *Node) askMember(now time.Time, s *search, c *candidate) {
	m := &Message{Query: s.method, Target: s.target, Want: n.want()}
	if n.ask(now, &query{to: c.Contact, m: m, search: s, member: c}) {
		c.state, c.at = asked, now
		s.groups[c.group()]++
		s.result.Queries++
	}
}

func (n *Node) memberFailed(now time.Time, q *query) {
	q.member.state = failedState
	n.advance(now, q.search)
}

// memberAnswered takes what a node has said into its search.
func (n *Node) memberAnswered(now time.Time, q *query, m *Message) {
	s, c := q.search, q.member
	if n.cfg.Limits.Bound && c.Addr.IsSCION() && !IsBound(m.ID, c.Addr) {
		n.memberFailed(now, q)
		return
	}
	s.result.Answers++
	c.state, c.token = answeredState, m.Token
	if c.ID != m.ID {
		c.ID, c.hasID = m.ID, true
		s.sort(s.branches[c.branch])
	}
	n.found(now, s, c, m)
	named := m.Nodes
	slices.SortStableFunc(named, func(a, b Contact) int { return nearer(s.target, a.ID, b.ID) })
	for _, x := range named[:min(len(named), maxNamed)] {
		mustBeBound := n.cfg.Limits.Bound && x.Addr.IsSCION()
		if x.ID != n.id && n.mayContact(c.Addr, x.Addr) && (!mustBeBound || IsBound(x.ID, x.Addr)) {
			s.add(n, c.branch, &candidate{Contact: x, hasID: true, hops: c.hops + 1})
		}
	}
	n.advance(now, s)
}

// mayContact decides whether a node may make us contact an address: not one that is nearer to us
// than itself, such as a service of this machine.
func (n *Node) mayContact(from, named Addr) bool {
	switch {
	case NetworkOf(named) != n.cfg.Network:
		return false
	case !named.IsSCION():
		return scionnet.ScopeOf(named.Host) >= scionnet.ScopeOf(from.Host)
	case named.IA == n.cfg.Addr.IA:
		return scionnet.ScopeOf(named.Host) >= scionnet.ScopeOf(n.cfg.Addr.Host)
	}
	return true
}

// found reports the peers and the item in an answer.
func (n *Node) found(now time.Time, s *search, c *candidate, m *Message) {
	e := Event{Target: s.target}
	for _, p := range m.Values[:min(len(m.Values), maxFound)] {
		if _, known := s.peers[p]; !known && n.mayContact(c.Addr, p) && len(s.peers) < 1000 {
			s.peers[p] = struct{}{}
			e.Peers = append(e.Peers, p)
		}
	}
	if i := m.Item; s.method == Get && i != nil && i.Verify(s.target) && (s.item == nil || i.Seq > s.item.Seq) {
		s.item, e.Item = i, i
	}
	if e.Peers == nil && e.Item == nil {
		return
	}
	if !s.hopsSet {
		s.hopsSet, s.result.Hops, s.result.First = true, c.hops, now.Sub(s.started)
	}
	n.out.Events = append(n.out.Events, e)
}

// finish ends a search: what is to be stored goes to the nearest nodes that answered.
func (n *Node) finish(now time.Time, s *search) {
	n.searches = slices.DeleteFunc(n.searches, func(x *search) bool { return x == s })
	var all []*candidate
	for _, b := range s.branches {
		for _, c := range b {
			if c.state == answeredState {
				all = append(all, c)
			}
		}
	}
	s.sort(all)
	r := &s.result
	tokens := map[Contact]string{}
	for _, c := range all {
		r.Closest = append(r.Closest, c.Contact)
		tokens[c.Contact] = c.token
	}
	if !s.hopsSet && len(all) > 0 {
		r.Hops = all[0].hops
	}
	r.Closest, _ = pick(r.Closest, bucketSize, n.cfg.Limits.PerBucket)
	for _, c := range r.Closest {
		if s.put != nil && tokens[c] != "" {
			n.ask(now, &query{to: c, m: &Message{Query: Put, Token: tokens[c], Item: s.put}})
		}
	}
	if s.torrent != nil {
		s.torrent.searched(now, n, s.result, tokens)
	}
	n.out.Events = append(n.out.Events, Event{Target: s.target, Done: r})
}

// FindPeers looks for a torrent's peers once.
func (n *Node) FindPeers(now time.Time, hash ID) Out {
	n.search(now, &search{target: hash, method: GetPeers})
	return n.take()
}

// GetItem looks for an item (BEP 44).
func (n *Node) GetItem(now time.Time, target ID) Out {
	n.search(now, &search{target: target, method: Get})
	return n.take()
}

// PutItem stores an item at the nodes near its name (BEP 44).
func (n *Node) PutItem(now time.Time, i *Item) Out {
	n.search(now, &search{target: i.Target(), method: Get, put: i})
	return n.take()
}
