// Package dht is a node of a distributed hash table (BEP 5), in which the peers of a torrent find
// each other without a tracker. On SCION braid's nodes make up the table; on IP it is that of all
// clients. PROTOCOL.md describes the protocol for other implementations.
//
// A Node is a state machine for one network: it takes messages and the time, and returns messages
// to send and what it has found. Server runs nodes on sockets. Package sim runs many in virtual
// time.
//
//	Node     transactions, the table's upkeep                    node.go
//	table    places for nodes, limited by AS                     table.go
//	reply    answers to others                                   reply.go, token.go
//	search   disjoint branches towards a target                  search.go
//	Torrent  when to search and to announce                      torrent.go
//	store    peers and items that are kept for others            store.go, item.go
//	Message  bytes and back; IDs and addresses                   message.go, id.go, addr.go
//	Server   sockets on IP and SCION, limits on rates            server.go, follow.go, udp.go, scion.go
//
// The package opens no file and knows neither trackers nor transfers. What arrives is hostile: it
// is bounded before it is decoded, and whatever grows has a limit.
//
// Unsolved: with fewer than about five ASes the limits by AS leave a large DHT's tables thin.
package dht

import (
	"math/rand/v2"
	"slices"
	"time"

	"braid/scionnet"
)

// Config describes a node.
type Config struct {
	Network Network
	// Addr is where others see the node. On IP, a zero one, and one that is not public, are replaced
	// by the address that others name in answers (BEP 42).
	Addr Addr
	// ID is the node's; zero: one that Addr allows.
	ID     ID
	Limits Limits
	// Rand chooses IDs and transactions. A stranger must not be able to predict it.
	Rand *rand.Rand
}

// Packet is a message to send.
type Packet struct {
	To      Addr
	Message *Message
	// Reply says that the packet answers the message that was just received, and goes back its way.
	Reply bool
	// Again says that a query is repeated, over another path if there is one.
	Again bool
}

// Event is something that a search or a followed torrent has found.
type Event struct {
	Target ID
	Peers  []Addr  // of the torrent
	Item   *Item   // verified
	Done   *Result // the search has ended
}

// Out is what a call makes the node do.
type Out struct {
	Packets []Packet
	Events  []Event
}

// Stats count what a node does.
type Stats struct {
	Queries  int // received
	Answers  int // received in time
	Asked    int // queries sent
	Timeouts int // queries without an answer
	Refused  int // queries that got an error
	Searches int
}

const (
	// repeatAfter is the silence after which a query is sent again, and failAfter the time after
	// which it has failed. A round trip around the world takes 400 ms.
	repeatAfter = 800 * time.Millisecond
	failAfter   = 2 * time.Second
	// maxPending bounds the queries under way. Each is some 300 bytes.
	maxPending = 512
	// maxProbes bounds the newcomers that are being asked for a sign of life, since strangers cause
	// these queries.
	maxProbes = 32
	// maxClaimed is the same for newcomers whose ISD-AS is only their word. Each question to one may
	// take a path lookup, of which a socket on SCION makes maxLookups at a time.
	maxClaimed = 4
	// verifiedFor is how long a sender's address counts as its own after an answer from there.
	verifiedFor = 10 * time.Minute
	maxVerified = 256
	// maxVotes bounds the networks whose votes on this node's address are kept.
	maxVotes = 64
	// mostAmplification bounds an answer to an address that is a mere claim, as a multiple of the
	// question's size.
	mostAmplification = 3
	// Checks of the table: one node at a time. The pause is long while all answer, and short while
	// nodes leave.
	checkLeast, checkMost = 2 * time.Second, 12 * time.Second
	// checkAge is how long a node that has answered is left in peace.
	checkAge = 30 * time.Second
	// rejoinLeast and rejoinMost are the pauses between attempts to find a first node, and
	// selfSearch is the time between searches for the node's own neighbours.
	rejoinLeast, rejoinMost = 2 * time.Second, 5 * time.Minute
	selfSearch              = 15 * time.Minute
	expireEvery             = time.Minute
	// maxFirstNodes bounds the named nodes, and those that were lost.
	maxFirstNodes = 200
)

type query struct {
	to     Contact // the ID is zero if it is unknown
	m      *Message
	sent   time.Time
	again  bool
	probe  bool
	search *search
	member *candidate
	keeps  *Torrent // the announcement that it renews
}

// Node is one node of one network. It is a state machine: it has no goroutine, no clock and no
// socket. Whoever calls it sends its packets.
type Node struct {
	cfg      Config
	id       ID
	table    table
	tokens   tokens
	store    store
	pending  []*query // oldest first
	verified map[Addr]time.Time
	searches []*search
	torrents []*Torrent
	turn     int             // in torrents: the first one that may search next
	retry    time.Time       // when to look again whether one more search may run
	siblings [networks]*Node // the nodes of the same program in all networks
	isKnown  bool            // its address; otherwise votes decide
	votes    map[group]Addr  // where each network sees this node
	boot     []Addr          // nodes that somebody has named
	lost     []Addr          // nodes of the last run, then those that were dropped
	stats    Stats
	out      Out

	nextCheck, nextSelf, nextExpire time.Time
	checkEvery, rejoin              time.Duration
}

// NewNode returns a node that knows nobody.
func NewNode(now time.Time, cfg Config) *Node {
	n := &Node{
		cfg: cfg, id: cfg.ID, rejoin: rejoinLeast, checkEvery: checkLeast,
		isKnown: groupOf(cfg.Addr).limited(), // an address that is not public is behind a NAT
	}
	for i := range n.tokens.secret {
		n.tokens.secret[i] = byte(cfg.Rand.Uint32())
	}
	if n.id == (ID{}) {
		if n.id = randomID(cfg.Rand); cfg.Addr.Dialable() {
			n.id = BoundID(cfg.Addr, cfg.Rand)
		}
	}
	n.table = table{self: n.id, limits: cfg.Limits}
	n.siblings[cfg.Network] = n
	n.nextCheck, n.nextSelf, n.nextExpire = now.Add(n.jitter(checkLeast)), now, now.Add(expireEvery)
	return n
}

// Join lets the nodes of one program answer for each other's networks (BEP 32). They are called by
// one goroutine.
func Join(nodes ...*Node) {
	for _, n := range nodes {
		for _, o := range nodes {
			n.siblings[o.cfg.Network] = o
		}
	}
}

// Contacts returns the nodes in the table.
func (n *Node) Contacts() []Contact { return n.table.contacts() }

// jitter is d, give or take a quarter, so that nodes that start together do not stay in step.
func (n *Node) jitter(d time.Duration) time.Duration {
	return d*3/4 + time.Duration(n.cfg.Rand.Int64N(int64(d)/2+1))
}

// take returns the output since the last call.
func (n *Node) take() Out {
	out := n.out
	n.out = Out{}
	return out
}

// inNetwork reports whether somebody can be at the address, in this node's network.
func (n *Node) inNetwork(a Addr) bool { return a.Dialable() && NetworkOf(a) == n.cfg.Network }

// Bootstrap names addresses at which nodes may be, and looks for this node's neighbours through
// them.
func (n *Node) Bootstrap(now time.Time, addrs []Addr) Out {
	before := len(n.boot)
	for _, a := range addrs {
		if n.inNetwork(a) && len(n.boot) < maxFirstNodes && !slices.Contains(n.boot, a) {
			n.boot = append(n.boot, a)
		}
	}
	if n.table.len() == 0 {
		if len(n.boot) > before { // the present search would come to them late
			isPresent := func(s *search) bool { return s.method == FindNode }
			n.searches = slices.DeleteFunc(n.searches, isPresent)
		}
		n.nextSelf = now
		n.rejoin = rejoinLeast
	}
	return n.Wake(now)
}

// Suggest names an address at which a node may be. It is asked for a sign of life, as a newcomer
// is, and enters the table as any other node.
func (n *Node) Suggest(now time.Time, a Addr) Out {
	if n.inNetwork(a) {
		n.probe(now, Contact{Addr: a}, maxProbes)
	}
	return n.take()
}

func (n *Node) ask(now time.Time, q *query) bool {
	if len(n.pending) >= maxPending {
		return false
	}
	t := make([]byte, 8)
	for i := range t {
		t[i] = byte(n.cfg.Rand.Uint32())
	}
	q.m.T, q.m.ID, q.sent = string(t), n.id, now
	if q.m.Token == "" && q.to.Addr.IsSCION() {
		q.m.Token = n.table.tokenOf(now, q.to)
	}
	n.pending = append(n.pending, q)
	n.stats.Asked++
	n.out.Packets = append(n.out.Packets, Packet{To: q.to.Addr, Message: q.m})
	return true
}

// want are the families of the nodes that an answer is to name. None stands for those of the
// network.
func (n *Node) want() []scionnet.Family {
	if n.cfg.Network == OverSCION {
		return nil
	}
	return []scionnet.Family{scionnet.Family(n.cfg.Network)}
}

// Receive handles a message.
func (n *Node) Receive(now time.Time, from Origin, m *Message) Out {
	if !n.inNetwork(from.Addr) || m.ID == n.id && m.Code == 0 {
		return Out{}
	}
	if m.IsQuery() {
		n.stats.Queries++
		n.reply(now, from, m)
		most := maxProbes
		if !from.Proven {
			most = maxClaimed
		}
		if c := (Contact{m.ID, from.Addr}); !m.ReadOnly && n.table.wants(c) {
			n.probe(now, c, most)
		}
		return n.take()
	}
	i := slices.IndexFunc(n.pending, func(q *query) bool { return q.m.T == m.T })
	if i >= 0 && n.pending[i].to.Addr == from.Addr {
		q := n.pending[i]
		n.remove(q)
		n.answered(now, q, m)
	}
	return n.take()
}

// hasAsked reports whether a query to an address is under way.
func (n *Node) hasAsked(a Addr) bool {
	return slices.ContainsFunc(n.pending, func(q *query) bool { return q.to.Addr == a })
}

// probe asks a node that is not in the table whether it really is at its address, unless that many
// are being asked. It reports whether it does.
func (n *Node) probe(now time.Time, c Contact, most int) bool {
	probes := 0
	for _, q := range n.pending {
		if q.probe && q.to.Addr == c.Addr {
			return false
		}
		probes += flag(q.probe)
	}
	return probes < most && n.ask(now, &query{to: c, m: &Message{Query: Ping}, probe: true})
}

func (n *Node) remove(q *query) {
	n.pending = slices.DeleteFunc(n.pending, func(x *query) bool { return x == q })
}

// answered handles the answer to a query of ours, which proves that the sender receives at its
// address.
func (n *Node) answered(now time.Time, q *query, m *Message) {
	n.stats.Answers++
	n.verify(now, q.to.Addr)
	if m.Code != 0 {
		switch {
		case q.member != nil:
			n.memberFailed(now, q)
		case q.keeps != nil && q.m.Query == AnnouncePeer && q.keeps.hasOldToken(now, q.to):
			n.askToken(now, q.keeps, q.to)
		}
		return
	}
	c := Contact{m.ID, q.to.Addr}
	if q.to.ID != (ID{}) && q.to.ID != m.ID {
		n.table.failed(q.to) // another node has taken the address
	}
	if q.probe && n.table.len() == 0 { // it may know neighbours
		n.nextSelf = now
	}
	n.table.answered(now, c)
	if c.Addr.IsSCION() {
		n.table.keepToken(c, m.Token)
	}
	n.vote(now, m.Seen, c)
	switch {
	case q.member != nil:
		n.memberAnswered(now, q, m)
	case q.keeps != nil:
		n.keptAnswered(now, q, m)
	default:
		n.learn(now, c.Addr, m.Nodes)
	}
}

// learn asks some of the nodes that another one has named, if the table has room for them.
func (n *Node) learn(now time.Time, from Addr, named []Contact) {
	asked := 0
	for _, c := range named {
		if asked < 3 && n.mayContact(from, c.Addr) && n.table.wants(c) && n.probe(now, c, maxProbes) {
			asked++
		}
	}
}

func (n *Node) verify(now time.Time, a Addr) {
	if now.Sub(n.verified[a]) < verifiedFor/2 {
		return
	}
	if n.verified == nil {
		n.verified = map[Addr]time.Time{}
	}
	if len(n.verified) >= maxVerified {
		clear(n.verified)
	}
	n.verified[a] = now
}

// vote counts who sees this node at which address. Four networks that agree decide if they are the
// majority, unless the node knows its address. Each network has one vote, so that none can keep the
// node from a decision.
func (n *Node) vote(now time.Time, seen Addr, by Contact) {
	if n.isKnown || !n.inNetwork(seen) {
		return
	}
	seen.Port = 1 // only the host matters
	if n.votes == nil {
		n.votes = map[group]Addr{}
	}
	g := by.group()
	n.votes[g] = seen
	for old := range n.votes { // one of the others, if there are too many
		if len(n.votes) > maxVotes && old != g {
			delete(n.votes, old)
		}
	}
	agree := 0
	for _, a := range n.votes {
		agree += flag(a == seen)
	}
	if agree >= 4 && 2*agree > len(n.votes) && seen != n.cfg.Addr {
		n.moveTo(now, seen)
	}
}

// moveTo notes the node's own address, and takes an ID that it allows.
func (n *Node) moveTo(now time.Time, a Addr) {
	if n.cfg.Addr = a; !IsBound(n.id, a) {
		n.rename(now, BoundID(a, n.cfg.Rand))
	}
}

func (n *Node) rename(now time.Time, id ID) {
	old := n.table.contacts()
	n.id, n.table = id, table{self: id, limits: n.cfg.Limits}
	for _, c := range old {
		n.table.answered(now, c)
	}
	n.nextSelf = now
}

// Wake does what is due: it repeats queries and gives them up, goes on with searches, and checks
// the table.
func (n *Node) Wake(now time.Time) Out {
	for _, q := range slices.Clone(n.pending) {
		switch age := now.Sub(q.sent); {
		case age >= failAfter:
			n.remove(q)
			n.timeout(now, q)
		case age >= repeatAfter && !q.again:
			q.again = true
			n.out.Packets = append(n.out.Packets, Packet{To: q.to.Addr, Message: q.m, Again: true})
		}
	}
	for _, s := range slices.Clone(n.searches) {
		n.advance(now, s)
	}
	if !now.Before(n.nextExpire) {
		n.nextExpire = now.Add(expireEvery)
		n.store.expire(now)
	}
	n.check(now)
	n.keep(now)
	return n.take()
}

func (n *Node) timeout(now time.Time, q *query) {
	n.stats.Timeouts++
	dropped := n.table.failed(q.to)
	if dropped {
		n.lost = append(slices.DeleteFunc(n.lost, func(a Addr) bool { return a == q.to.Addr }), q.to.Addr)
		n.lost = n.lost[max(0, len(n.lost)-maxFirstNodes):]
	}
	if dropped || q.to.ID != (ID{}) && !q.probe {
		n.checkEvery = max(checkLeast, n.checkEvery/2)
	}
	switch {
	case q.member != nil:
		n.memberFailed(now, q)
	case q.keeps != nil:
		q.keeps.lost(now, q.to)
	}
}

// knowsNobody reports whether the node has no address at which another one may be.
func (n *Node) knowsNobody() bool { return len(n.boot)+len(n.lost) == 0 && n.table.len() == 0 }

// check asks the node that was left alone for longest, and looks for neighbours.
func (n *Node) check(now time.Time) {
	switch {
	case now.Before(n.nextSelf):
	case n.searching(n.id):
		n.nextSelf = now.Add(rejoinLeast)
	default:
		if n.table.len() > 0 {
			n.rejoin, n.nextSelf = rejoinLeast, now.Add(n.jitter(selfSearch))
		} else {
			n.nextSelf = now.Add(n.jitter(n.rejoin))
			n.rejoin = min(2*n.rejoin, rejoinMost)
		}
		if !n.knowsNobody() {
			n.search(now, &search{target: n.id, method: FindNode})
		}
	}
	if now.Before(n.nextCheck) {
		return
	}
	n.nextCheck = now.Add(n.jitter(n.checkEvery))
	n.checkEvery = min(n.checkEvery*5/4, checkMost)
	e, room := n.table.stalest()
	switch {
	case e == nil:
		n.nextSelf = minTime(n.nextSelf, now.Add(n.rejoin))
		return
	case now.Sub(e.touched()) < checkAge && e.fails == 0:
		return
	}
	e.asked = now
	m := &Message{Query: Ping}
	if room {
		target := n.id.randomIn(n.table.bucketOf(e.ID), n.cfg.Rand)
		m = &Message{Query: FindNode, Target: target, Want: n.want()}
	}
	n.ask(now, &query{to: e.Contact, m: m})
}

// minTime is the earliest of some times.
func minTime(t ...time.Time) time.Time { return slices.MinFunc(t, time.Time.Compare) }

// NextWake is when Wake has something to do next.
func (n *Node) NextWake() time.Time {
	next := minTime(n.nextCheck, n.nextSelf, n.nextExpire)
	for _, q := range n.pending {
		at := q.sent.Add(failAfter)
		if !q.again {
			at = q.sent.Add(repeatAfter)
		}
		next = minTime(next, at)
	}
	for _, s := range n.searches {
		next = minTime(next, s.nextStep)
	}
	for _, t := range n.torrents {
		next = minTime(next, t.next(n))
	}
	return next
}
