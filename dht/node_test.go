package dht

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"braid/pathsel"
)

var start = time.Unix(1_000_000_000, 0)

func newNode(t testing.TB, at string, limits Limits) *Node {
	a := addr(t, at)
	return NewNode(start, Config{Network: NetworkOf(a), Addr: a, Limits: limits, Rand: rand.New(rand.NewPCG(1, 2))})
}

// boundContact is a node whose ID follows from its address.
func boundContact(as, host int, r *rand.Rand) Contact {
	a := Addr{IA: pathsel.IA(1<<48 | 0xff00_0000_0000 | uint64(as)), Port: 1}
	_ = a.Host.UnmarshalText(fmt.Appendf(nil, "10.0.%d.%d", host/250, 1+host%250))
	return Contact{BoundID(a, r), a}
}

func TestTableLimits(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	n := newNode(t, "1-ff00:0:1,[10.9.9.9]:1", DefaultLimits)
	for host := range 2000 {
		n.table.answered(start, boundContact(2, host, r))
	}
	if got := n.table.len(); got == 0 || got > DefaultLimits.PerTable {
		t.Errorf("one AS has %d places", got)
	}
	for b := range n.table.buckets {
		if len(n.table.buckets[b]) > DefaultLimits.PerBucket {
			t.Errorf("one AS has %d places in bucket %d", len(n.table.buckets[b]), b)
		}
	}
	for as := range 500 {
		n.table.answered(start, boundContact(10+as, as, r))
	}
	if len(n.table.buckets[0]) != bucketSize {
		t.Errorf("the first bucket has %d nodes of 500 ASes", len(n.table.buckets[0]))
	}
	c := boundContact(600, 1, r)
	if c.ID[0] ^= 0x10; n.table.wants(c) {
		t.Error("an ID that does not follow from the address gets a place")
	}
}

// A node that takes the ID of another one in its bucket, which is silent, replaces these two only.
func TestTableKeepsNeighbours(t *testing.T) {
	n := newNode(t, "1-ff00:0:1,[10.9.9.9]:1", Limits{})
	var all []Contact
	for i := range 3 {
		all = append(all, Contact{n.id.randomIn(0, n.cfg.Rand), boundContact(2+i, 1, n.cfg.Rand).Addr})
		n.table.answered(start, all[i])
	}
	n.table.failed(all[0])
	moved := Contact{all[0].ID, all[1].Addr}
	n.table.answered(start, moved)
	if got := n.Contacts(); !slices.Equal(got, []Contact{all[2], moved}) {
		t.Errorf("nodes %v, want %v", got, []Contact{all[2], moved})
	}
}

// The nodes near a target are those that a look at all nodes would choose.
func TestClosest(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, limits := range []Limits{DefaultLimits, {}} {
		n := newNode(t, "1-ff00:0:1,[10.9.9.9]:1", limits)
		for host := range 3000 {
			n.table.answered(start, boundContact(2+host%7, host, r))
		}
		n.table.failed(n.Contacts()[3])
		for range 500 {
			target := n.id.randomIn(r.IntN(12), r)
			var all []Contact
			for _, b := range n.table.buckets {
				for _, e := range b {
					if e.fails == 0 {
						all = append(all, e.Contact)
					}
				}
			}
			slices.SortFunc(all, func(a, b Contact) int { return nearer(target, a.ID, b.ID) })
			want, _ := pick(all, bucketSize, limits.PerBucket)
			if got := n.table.closest(target, bucketSize, func(Contact) bool { return true }); !slices.Equal(got, want) {
				t.Fatalf("near %v: %v, want %v", target, got, want)
			}
		}
	}
}

// A stranger's query puts nobody into the table; the answer to our question does.
func TestTableNeedsRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	n := newNode(t, "1-ff00:0:1,[10.9.9.9]:1", DefaultLimits)
	c := boundContact(2, 1, r)
	out := n.Receive(start, Origin{Addr: c.Addr, Size: 64}, &Message{T: "x", Query: Ping, ID: c.ID})
	if n.table.len() != 0 || len(out.Packets) != 2 {
		t.Fatalf("%d nodes, %d packets", n.table.len(), len(out.Packets))
	}
	probe := out.Packets[1].Message
	n.Receive(start, Origin{Addr: c.Addr}, &Message{T: "guess", ID: c.ID})
	other := c.Addr
	other.Port++
	n.Receive(start, Origin{Addr: other}, &Message{T: probe.T, ID: c.ID})
	if n.table.len() != 0 {
		t.Fatal("a guessed answer is taken")
	}
	n.Receive(start, Origin{Addr: c.Addr}, &Message{T: probe.T, ID: c.ID})
	if n.table.len() != 1 {
		t.Error("the node has no place after its answer")
	}
	// A node that only asks gets none (BEP 43).
	c = boundContact(3, 1, r)
	if out = n.Receive(start, Origin{Addr: c.Addr, Size: 64}, &Message{T: "x", Query: Ping, ID: c.ID, ReadOnly: true}); len(out.Packets) != 1 {
		t.Error("a read-only node is asked")
	}
}

// An AS that claims to be many others does not make a node ask for the paths to all of them.
func TestFewClaimsAreChecked(t *testing.T) {
	n := newNode(t, "1-ff00:0:1,[10.9.9.9]:1", DefaultLimits)
	asked := func(as int, proven bool) bool {
		c := boundContact(as, 1, n.cfg.Rand)
		from := Origin{Addr: c.Addr, Proven: proven, Size: 64}
		return len(n.Receive(start, from, &Message{T: "x", Query: Ping, ID: c.ID}).Packets) == 2
	}
	checked := 0
	for i := range maxProbes {
		checked += flag(asked(2+i, false))
	}
	if checked != maxClaimed || checked > maxLookups/2 {
		t.Errorf("%d claims are checked", checked)
	}
	if !asked(100, true) {
		t.Error("a newcomer in a proven AS is not asked")
	}
}

// filled is a node that knows many nodes and peers of a torrent.
func filled(t testing.TB, hash ID) *Node {
	r := rand.New(rand.NewPCG(3, 4))
	n := newNode(t, "1-ff00:0:1,[10.9.9.9]:1", DefaultLimits)
	for i := range 300 {
		c := boundContact(2+i, i, r)
		n.table.answered(start, c)
		n.store.announce(start, hash, storedPeer{addr: c.Addr, group: groupOf(c.Addr)})
	}
	return n
}

func TestNoAmplification(t *testing.T) {
	hash := ID{1, 2, 3}
	n := filled(t, hash)
	from := addr(t, "1-ff00:0:999,[10.1.1.1]:5")
	for _, q := range []*Message{
		{Query: Ping}, {Query: FindNode, Target: hash}, {Query: GetPeers, Target: hash}, {Query: GetPeers, Target: hash, Scrape: true},
		{Query: Get, Target: hash}, {Query: AnnouncePeer, Target: hash, Port: 1, Token: "wrong"}, {Query: "unheard_of"},
	} {
		q.T, q.ID, q.ReadOnly = "a", ID{9}, true
		size := len(q.Encode())
		out := n.Receive(start, Origin{Addr: from, Proven: true, Size: size}, q)
		sent := 0
		for _, p := range out.Packets {
			sent += len(p.Message.Encode())
		}
		if sent == 0 || sent > mostAmplification*size {
			t.Errorf("%s: %d bytes for %d", q.Query, sent, size)
		}
	}
	// With the token there is more.
	out := n.Receive(start, Origin{Addr: from, Size: 100}, &Message{T: "a", Query: GetPeers, Target: hash, ID: ID{9}, ReadOnly: true})
	q := &Message{T: "a", Query: GetPeers, Target: hash, ID: ID{9}, ReadOnly: true, Token: out.Packets[0].Message.Token}
	out = n.Receive(start, Origin{Addr: from, Size: 100}, q)
	if m := out.Packets[0].Message; len(m.Values) != maxValuesSent || len(m.Nodes) == 0 || len(m.Encode()) > maxMessage {
		t.Errorf("with the token: %d peers, %d nodes, %d bytes", len(m.Values), len(m.Nodes), len(m.Encode()))
	}
}

func TestStoreBounds(t *testing.T) {
	var s store
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 3 * maxPeers / share {
		c := boundContact(7, i%20000, r)
		s.announce(start, randomID(r), storedPeer{addr: c.Addr, group: groupOf(c.Addr)})
	}
	if s.peers > maxPeers/share {
		t.Errorf("one AS has %d peers", s.peers)
	}
	hash := ID{1}
	honest := boundContact(8, 1, r)
	s.announce(start, hash, storedPeer{addr: honest.Addr, group: groupOf(honest.Addr)})
	before := len(s.swarms[hash])
	if before != 1 {
		t.Fatal("another AS has no room")
	}
	for i := range 1000 {
		a := honest.Addr
		a.Port = uint16(2 + i)
		s.announce(start.Add(time.Second), hash, storedPeer{addr: a, group: groupOf(honest.Addr)})
	}
	if got := len(s.swarms[hash]); got > maxPorts {
		t.Errorf("one host has %d peers of a torrent", got)
	}
	s.expire(start.Add(peerLife + 2*time.Second))
	if s.peers != 0 || len(s.swarms) != 0 {
		t.Errorf("%d peers of %d torrents stay", s.peers, len(s.swarms))
	}
	for i := range 3 * maxItems / share {
		_ = s.put(start, &Item{Value: text(fmt.Sprint(i))}, group{ia: 5})
	}
	if len(s.items) > maxItems/share {
		t.Errorf("one AS has %d items", len(s.items))
	}
}

// Torrents of others that are full are no way around the share of a network.
func TestShareInFullTorrents(t *testing.T) {
	var s store
	r := rand.New(rand.NewPCG(3, 4))
	announce := func(hash ID, as, host int) {
		a := boundContact(as, host, r).Addr
		s.announce(start, hash, storedPeer{addr: a, group: groupOf(a)})
	}
	for i := range 10 * maxSwarm {
		announce(ID{1, byte(i / maxSwarm)}, 8+i%2, i)
	}
	for i := range maxPeers / share {
		announce(ID{2, byte(i / 100)}, 5, i)
	}
	for i := range 10 * maxSwarm {
		announce(ID{1, byte(i / maxSwarm)}, 5, i)
	}
	n := 0
	for _, swarm := range s.swarms {
		for _, p := range swarm {
			n += flag(p.group == groupOf(boundContact(5, 1, r).Addr))
		}
	}
	if n > maxPeers/share {
		t.Errorf("a network has %d peers", n)
	}
}

// A network gets no more than its share if it proves later who it is, or if another one puts its
// items again.
func TestShareIsKept(t *testing.T) {
	var s store
	r := rand.New(rand.NewPCG(3, 4))
	ours, fellow := group{ia: 5}, group{ia: 6}
	for i := range 2 * maxPeers / share {
		p := storedPeer{addr: boundContact(5, i, r).Addr, group: unproven}
		s.announce(start, ID{byte(i / 100)}, p)
		p.group = ours
		s.announce(start, ID{byte(i / 100)}, p)
	}
	for i := range 2 * maxItems / share {
		_ = s.put(start, &Item{Value: text(fmt.Sprint(i))}, ours)
		_ = s.put(start, &Item{Value: text(fmt.Sprint(i))}, fellow)
	}
	peers, items := map[group]int{}, map[group]int{}
	for _, swarm := range s.swarms {
		for _, p := range swarm {
			peers[p.group]++
		}
	}
	for _, i := range s.items {
		items[i.group]++
	}
	if peers[ours] > maxPeers/share || items[ours] > maxItems/share || items[fellow] > maxItems/share {
		t.Errorf("peers %v, items %v", peers, items)
	}
}

// countFilter estimates how many hosts are in a filter (BEP 33).
func countFilter(f string) int {
	ones := 0
	for _, b := range []byte(f) {
		ones += bits.OnesCount8(b)
	}
	const m = 8 * filterLen
	if len(f) != filterLen || ones == 0 {
		return 0
	}
	c := min(m-1, max(m-ones, 1))
	return int(math.Round(math.Log(float64(c)/m) / (2 * math.Log(1-1.0/m))))
}

func TestFilters(t *testing.T) {
	for _, hosts := range []int{0, 1, 50, 150} {
		var s store
		r := rand.New(rand.NewPCG(3, 4))
		for i := range hosts {
			c := boundContact(i, i, r)
			s.announce(start, ID{}, storedPeer{addr: c.Addr, group: groupOf(c.Addr), seed: true})
		}
		seeds, others := s.filters(ID{})
		if got := countFilter(seeds); got < hosts*9/10 || got > hosts*11/10+1 {
			t.Errorf("%d seeds count as %d", hosts, got)
		}
		if got := countFilter(others); got != 0 {
			t.Errorf("no peers count as %d", got)
		}
	}
}

// Whatever arrives, a node answers within its bounds and keeps within them.
func FuzzReceive(f *testing.F) {
	for _, m := range messages(f) {
		f.Add(m.Encode(), uint32(1))
	}
	f.Fuzz(func(t *testing.T, b []byte, host uint32) {
		m, err := ParseMessage(b)
		if err != nil {
			return
		}
		n := filled(t, m.Target)
		from := boundContact(int(host%1000), int(host%5000), rand.New(rand.NewPCG(1, uint64(host)))).Addr
		for _, p := range n.Receive(start, Origin{Addr: from, Size: len(b)}, m).Packets {
			if size := len(p.Message.Encode()); p.Reply && size > max(mostAmplification*len(b), answerSize) {
				t.Fatalf("%d bytes for %d: %+v", size, len(b), p.Message)
			}
		}
		n.Wake(start.Add(time.Minute))
	})
}

// A node learns its address from four networks that agree. One network that names many addresses
// cannot keep it from that.
func TestLearnsItsAddress(t *testing.T) {
	n := NewNode(start, Config{Network: OverIP4, Limits: DefaultLimits, Rand: rand.New(rand.NewPCG(1, 2))})
	at := func(a, b int) Contact { return Contact{Addr: addr(t, fmt.Sprintf("198.51.%d.%d:7", a, b))} }
	for i := range 200 {
		n.vote(start, addr(t, fmt.Sprintf("203.0.113.%d:1", i+1)), at(1, i+1))
	}
	if n.cfg.Addr.Dialable() {
		t.Fatalf("one network decides that the address is %s", n.cfg.Addr)
	}
	own := addr(t, "192.0.2.7:99")
	for i := range 4 {
		n.vote(start, own, at(10+i, 1))
	}
	if n.cfg.Addr.Host != own.Host || !IsBound(n.id, own) {
		t.Errorf("address %s, ID %s", n.cfg.Addr, n.id)
	}
	// The provider gives the host another address. A few liars cannot have that said.
	for i := range 100 {
		n.vote(start, own, at(100+i, 1))
	}
	now := addr(t, "203.0.113.9:99")
	for i := range 8 {
		n.vote(start, now, at(10+i, 1))
	}
	if n.cfg.Addr.Host != own.Host {
		t.Errorf("a minority decides that the address is %s", n.cfg.Addr)
	}
	for i := range 100 {
		n.vote(start, now, at(100+i, 1))
	}
	if n.cfg.Addr.Host != now.Host || !IsBound(n.id, now) {
		t.Errorf("after a move: address %s, ID %s", n.cfg.Addr, n.id)
	}
}

// A node behind a NAT learns its public address also if it listens at one private address.
func TestLearnsAddressBehindNAT(t *testing.T) {
	n := newNode(t, "192.168.1.5:7", DefaultLimits)
	own := addr(t, "198.51.100.7:99")
	for i := range 4 {
		n.vote(start, own, Contact{Addr: addr(t, fmt.Sprintf("203.0.%d.1:7", i))})
	}
	if n.cfg.Addr.Host != own.Host || !IsBound(n.id, own) {
		t.Errorf("address %s, ID %s", n.cfg.Addr, n.id)
	}
}

// The state of a node that listens on all addresses, and does not know its own yet, can be read
// again.
func TestStateWithoutOwnAddress(t *testing.T) {
	socket, err := ListenUDP(t.Context(), netip.MustParseAddrPort("0.0.0.0:0"))
	if err != nil {
		t.Fatal(err)
	}
	s := Serve(ServerConfig{Sockets: []Socket{socket}})
	defer s.Close()
	b, err := json.Marshal(s.States())
	if err != nil {
		t.Fatal(err)
	}
	var got []State
	if err := json.Unmarshal(b, &got); err != nil || len(got) != 1 || got[0].ID != s.States()[0].ID {
		t.Errorf("%s became %+v, %v", b, got, err)
	}
}

// follow runs a node that searches a torrent among others for a while. answer returns the others'
// answer to a message; nil: they are silent.
func follow(n *Node, others []Contact, lasts time.Duration, answer func(p Packet) *Message) {
	ids := map[Addr]ID{}
	for _, c := range others {
		ids[c.Addr] = c.ID
		n.table.answered(start, c)
	}
	_, out := n.Follow(start, ID{1}, 7)
	waiting := out.Packets
	for now := start; now.Sub(start) < lasts && n.stats.Asked < 10_000; {
		for len(waiting) > 0 && n.stats.Asked < 10_000 {
			p := waiting[0]
			waiting = waiting[1:]
			if m := answer(p); m != nil {
				m.T, m.ID = p.Message.T, ids[p.To]
				waiting = append(waiting, n.Receive(now, Origin{Addr: p.To, Proven: true}, m).Packets...)
			}
		}
		now = n.NextWake()
		waiting = append(waiting, n.Wake(now).Packets...)
	}
}

// An item is looked for at once, however many torrents are searched for.
func TestItemAmongTorrents(t *testing.T) {
	n := newNode(t, "1-ff00:0:1,[10.9.9.9]:1", DefaultLimits)
	n.table.answered(start, boundContact(2, 1, n.cfg.Rand))
	for i := range 2 * maxSearches {
		n.Follow(start, ID{1, byte(i)}, 7)
	}
	if len(n.searches) != maxSearches {
		t.Errorf("%d searches", len(n.searches))
	}
	asked := func(p Packet) bool { return p.Message.Query == Get }
	if out := n.GetItem(start, ID{2}); !slices.ContainsFunc(out.Packets, asked) {
		t.Error("nobody is asked for the item")
	}
}

// A search that begins while the node waits for as many answers as it can goes on afterwards.
func TestSearchWaitsForRoom(t *testing.T) {
	n := newNode(t, "1-ff00:0:1,[10.9.9.9]:1", DefaultLimits)
	for i := range maxPending {
		n.ask(start, &query{to: boundContact(100+i, 1, n.cfg.Rand), m: &Message{Query: Ping}})
	}
	n.take() // nobody answers these
	searches := 0
	follow(n, []Contact{boundContact(2, 1, n.cfg.Rand)}, time.Minute, func(p Packet) *Message {
		if p.Message.Query == AnnouncePeer && searches == 0 {
			searches = n.stats.Searches
		}
		return &Message{Token: "12345678"}
	})
	if searches != 2 { // one is for its neighbours
		t.Errorf("the torrent is announced after %d searches", searches)
	}
}

// A host that is offline for so long that it gives up all nodes finds them again, also if all first
// nodes are gone.
func TestBackOnline(t *testing.T) {
	n := newNode(t, "1-ff00:0:1,[10.9.9.9]:1", DefaultLimits)
	n.Bootstrap(start, []Addr{boundContact(2, 1, n.cfg.Rand).Addr})
	online, first := false, n.boot[0]
	follow(n, []Contact{boundContact(3, 1, n.cfg.Rand)}, 15*time.Minute, func(p Packet) *Message {
		if online = online || n.table.len() == 0; !online || p.To == first {
			return nil
		}
		return &Message{Token: "12345678"}
	})
	if !online || n.table.len() == 0 {
		t.Errorf("online: %v, nodes: %d", online, n.table.len())
	}
}

// A node that the user names is asked at once, however many nodes of the last run are gone.
func TestNamedNodeComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 4))
		own, named := addr(t, "1-ff00:0:110,[192.0.2.1]:7"), boundContact(2, 1, r).Addr
		last := State{Addr: own}
		for i := range 500 {
			last.Nodes = append(last.Nodes, boundContact(3+i, 1, r))
		}
		socket := &moving{closed: make(chan struct{})}
		socket.at.Store(&own)
		s := Serve(ServerConfig{Sockets: []Socket{socket}, States: []State{last}})
		defer s.Close()
		time.Sleep(time.Second) // it asks some nodes of the last run
		s.AddNodes(named)
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.members[0].hasAsked(named) {
			t.Error("it is not asked")
		}
	})
}

// A node without neighbours finds them through one that a stranger has named. Strangers keep out no
// node that the user names later.
func TestSuggestedNodes(t *testing.T) {
	n := newNode(t, "1-ff00:0:1,[10.9.9.9]:1", DefaultLimits)
	for i := range maxFirstNodes {
		n.Suggest(start, boundContact(2, i, n.cfg.Rand).Addr)
	}
	named := boundContact(3, 1, n.cfg.Rand).Addr
	if n.Bootstrap(start, []Addr{named}); !n.hasAsked(named) {
		t.Error("the user's node is not asked")
	}

	n = newNode(t, "1-ff00:0:1,[10.9.9.9]:1", DefaultLimits)
	c := boundContact(2, 1, n.cfg.Rand)
	asked := n.Suggest(start, c.Addr).Packets[0].Message
	n.Receive(start, Origin{Addr: c.Addr, Proven: true}, &Message{T: asked.T, ID: c.ID})
	n.Wake(start)
	if !n.hasAsked(c.Addr) || !n.searching(n.id) {
		t.Error("the node does not look for neighbours")
	}
}

// Nodes that refuse announcements, however new the token is, are not asked without a pause.
func TestRefusedAnnouncements(t *testing.T) {
	n := newNode(t, "1-ff00:0:1,[10.9.9.9]:1", DefaultLimits)
	c := boundContact(2, 1, rand.New(rand.NewPCG(3, 4)))
	announces := 0
	follow(n, []Contact{c}, 10*time.Minute, func(p Packet) *Message {
		if p.Message.Query == AnnouncePeer {
			announces++
			return &Message{Code: ErrProtocol}
		}
		return &Message{Token: "12345678"}
	})
	if announces == 0 || announces > 50 {
		t.Errorf("%d announcements in ten minutes", announces)
	}
}

// Nodes that answer everything except announcements do not cause one search after the other.
func TestSilentKeepers(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	n := newNode(t, "1-ff00:0:1,[10.9.9.9]:1", DefaultLimits)
	var all []Contact
	for i := range 12 {
		all = append(all, boundContact(2+i, 1, r))
	}
	follow(n, all, time.Hour, func(p Packet) *Message {
		if p.Message.Query == AnnouncePeer && p.To.IA%2 == 0 {
			return nil
		}
		return &Message{Token: "12345678", Nodes: slices.Clone(all)}
	})
	if n.stats.Searches > 100 {
		t.Errorf("%d searches in an hour", n.stats.Searches)
	}
}

// Whoever claims the addresses of others does not push them out of a torrent.
func TestClaimsPushNobodyOut(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	n := newNode(t, "1-ff00:0:1,[10.9.9.9]:1", DefaultLimits)
	hash := ID{1}
	victims := map[Addr]bool{}
	for i := range 20 {
		a := boundContact(2+i, 1, r).Addr
		victims[a] = true
		n.store.announce(start, hash, storedPeer{addr: a, group: groupOf(a)})
	}
	later := start.Add(time.Second)
	for a := range victims {
		n.store.announce(later, hash, storedPeer{addr: a, group: unproven})
		for range 2 * maxPorts {
			a.Port++
			n.store.announce(later, hash, storedPeer{addr: a, group: unproven})
		}
	}
	for i := range 2 * maxSwarm {
		a := boundContact(1000+i, 1, r).Addr
		n.store.announce(later.Add(time.Second), hash, storedPeer{addr: a, group: unproven})
	}
	left := 0
	for _, p := range n.store.swarms[hash] {
		left += flag(victims[p.addr])
	}
	if left != len(victims) {
		t.Errorf("%d of %d peers are left", left, len(victims))
	}
}

// After Unfollow a torrent is not announced any more, even if a token for it arrives.
func TestUnfollow(t *testing.T) {
	n := newNode(t, "1-ff00:0:1,[10.9.9.9]:1", DefaultLimits)
	c := boundContact(2, 1, rand.New(rand.NewPCG(3, 4)))
	n.table.answered(start, c)
	x, _ := n.Follow(start, ID{1}, 7)
	x.keepers = []keeper{{c, "12345678", start.Add(-time.Hour)}}
	n.renew(start, x)
	asked := n.pending[len(n.pending)-1]
	n.take()
	n.Unfollow(x)
	out := n.Receive(start, Origin{Addr: c.Addr}, &Message{T: asked.m.T, ID: c.ID, Token: "12345678"})
	for _, p := range out.Packets {
		if p.Message.Query == AnnouncePeer {
			t.Error("it is announced")
		}
	}
}

// A node cannot make another one contact addresses that are nearer to it, such as a service of its
// machine, whichever query it answers.
func TestLeadsNobodyInward(t *testing.T) {
	for _, x := range []struct {
		own, from string
		inward    []string
	}{
		{"9.9.9.9:1", "1.1.1.1:1", []string{"127.0.0.1:53", "10.0.0.1:53", "169.254.1.1:53"}},
		{"1-ff00:0:1,[10.9.9.9]:1", "1-ff00:0:2,[10.0.0.2]:1", []string{"1-ff00:0:1,[127.0.0.1]:53"}},
	} {
		n := newNode(t, x.own, DefaultLimits)
		contact := func(at string) Contact {
			a := addr(t, at)
			if a.IsSCION() {
				return Contact{BoundID(a, n.cfg.Rand), a}
			}
			return Contact{randomID(n.cfg.Rand), a}
		}
		from := contact(x.from)
		n.ask(start, &query{to: from, m: &Message{Query: FindNode}})
		m := &Message{T: n.take().Packets[0].Message.T, ID: from.ID}
		for _, at := range x.inward {
			m.Nodes = append(m.Nodes, contact(at))
		}
		for _, p := range n.Receive(start, Origin{Addr: from.Addr, Proven: true, Size: 100}, m).Packets {
			t.Errorf("%s makes %s contact %s", x.from, x.own, p.To)
		}
	}
}
