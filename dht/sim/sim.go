// Package sim runs many nodes of a DHT in virtual time, in one goroutine: package dht's own nodes,
// over a network that is a queue of messages. A run is a function of its Config.
package sim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/anacrolix/generics/heap"
	"gonum.org/v1/gonum/stat"

	"braid/dht"
	"braid/pathsel"
)

// Config describes a run.
type Config struct {
	Nodes, ASes int
	// RTT is the mean round trip between two nodes; pairs have 0.5 to 1.5 times that.
	RTT time.Duration
	// Churn is the share of the nodes that is replaced each minute, from the end of joining on.
	Churn float64
	// Attackers is the share of all nodes that one AS has. These nodes choose their IDs next to the
	// torrents', name only each other, and keep nothing.
	Attackers float64
	Limits    dht.Limits
	// Joining is the time in which the nodes start, Settling the time from then to the first
	// announcement. Announcements have Keeping to age, and Searching is the time in which the
	// searches start.
	Joining, Settling, Keeping, Searching time.Duration
	Torrents, Searches                    int
	Seed                                  uint64
}

// Default is a network of so many nodes without churn and attackers.
func Default(nodes int) Config {
	return Config{
		Nodes: nodes, ASes: max(16, nodes/100), RTT: 100 * time.Millisecond, Limits: dht.DefaultLimits,
		Joining: 2 * time.Minute, Settling: time.Minute, Keeping: 2 * time.Minute, Searching: time.Minute,
		Torrents: 50, Searches: 500, Seed: 1,
	}
}

// Result of a run.
type Result struct {
	Nodes    int     `json:"nodes"`
	Searches int     `json:"searches"`
	Found    float64 `json:"found"` // share of the searches that found the peer
	HopsMean float64 `json:"hops_mean"`
	HopsP95  float64 `json:"hops_p95"`
	P50      float64 `json:"p50_s"`   // until the peer was found
	P95      float64 `json:"p95_s"`   // the same
	Queries  float64 `json:"queries"` // of a search, mean
	// LoadMean and LoadP99 are the bytes per second that a node sends and receives, without the
	// headers of UDP, IP and SCION, while searches are rare.
	LoadMean float64 `json:"load_mean"`
	LoadP99  float64 `json:"load_p99"`
	Table    float64 `json:"table"` // nodes in a table, mean
}

// node is an attacker or an honest node. An honest one that has ended has no core.
type node struct {
	core   *dht.Node
	addr   dht.Addr
	attack bool
	id     dht.ID
	wakeAt time.Time
	bytes  int
}

// event is a message that arrives, a node that wakes, or a step of the plan.
type event struct {
	at   time.Time
	seq  uint64
	to   int32
	from int32 // -1: the node wakes
	m    *dht.Message
	size int
	do   func()
}

// before tells whether the event comes before another one.
func (e *event) before(o *event) bool {
	return cmp.Or(e.at.Compare(o.at), cmp.Compare(e.seq, o.seq)) < 0
}

type network struct {
	cfg     Config
	rand    *rand.Rand
	now     time.Time
	seq     uint64
	queue   []*event
	events  heap.Interface[*event] // the queue: the earliest event is the first one
	nodes   []*node
	live    []int32 // honest nodes that run
	targets []dht.ID
	wanted  []dht.Addr     // the peer of each torrent
	keep    map[int32]bool // nodes that announce or search, and so are not replaced
	count   bool           // load is counted
	counted []int32        // nodes that ran when the count began
	loads   []NodeLoad     // of those that ran when it ended

	searches map[searcher]*outcome
}

type searcher struct {
	node   int32
	target dht.ID
}

type outcome struct {
	want   dht.Addr
	found  time.Duration
	start  time.Time
	result *dht.Result
}

// Run runs a network to its end, or until ctx is done.
func Run(ctx context.Context, cfg Config) (Result, error) {
	few := cfg.Nodes < 2 || cfg.ASes < 1 || cfg.Torrents < 1 || cfg.Searches < 1
	if few || cfg.Attackers < 0 || cfg.Attackers >= 1 {
		return Result{}, fmt.Errorf("simulate %d nodes in %d ASes with %d torrents and %d searches: "+
			"too few, or too many attackers", cfg.Nodes, cfg.ASes, cfg.Torrents, cfg.Searches)
	}
	w := &network{
		cfg: cfg, rand: rand.New(rand.NewPCG(cfg.Seed, 1)), now: time.Unix(1_000_000_000, 0),
		keep: map[int32]bool{}, searches: map[searcher]*outcome{},
	}
	w.events = heap.InterfaceForSlice(&w.queue, (*event).before)
	for range cfg.Torrents {
		w.targets = append(w.targets, w.randomID())
	}
	w.plan()
	for steps := 0; len(w.queue) > 0; steps++ {
		if steps%10_000 == 0 && ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
		e := heap.Pop(w.events)
		if w.now = e.at; e.do != nil {
			e.do()
		} else {
			w.handle(e)
		}
	}
	return w.result(), nil
}

func (w *network) randomID() (id dht.ID) {
	for i := range id {
		id[i] = byte(w.rand.Uint32())
	}
	return id
}

// plan schedules joins, replacements, announcements, searches and the end.
func (w *network) plan() {
	cfg, start := w.cfg, w.now
	attackers := int(cfg.Attackers * float64(cfg.Nodes))
	for i := range cfg.Nodes {
		w.at(start.Add(time.Duration(float64(cfg.Joining)*float64(i)/float64(cfg.Nodes))), func() {
			// Attackers are spread over the time of joining, so that they get into tables like
			// others.
			w.join(attackers > 0 && (i+1)*attackers/cfg.Nodes > i*attackers/cfg.Nodes)
		})
	}
	joined := start.Add(cfg.Joining)
	announce := joined.Add(cfg.Settling)
	searches := announce.Add(cfg.Keeping)
	end := searches.Add(cfg.Searching)
	if cfg.Churn > 0 {
		gap := time.Duration(float64(time.Minute) / (cfg.Churn * float64(cfg.Nodes-attackers)))
		for at := joined; at.Before(end); at = at.Add(gap) {
			w.at(at, w.replace)
		}
	}
	w.at(announce, func() {
		for i := range w.targets {
			w.announce(i)
		}
	})
	// Load is counted while announcements age, before the searches start.
	w.at(announce.Add(cfg.Keeping/2), func() { w.count, w.counted = true, slices.Clone(w.live) })
	w.at(searches, w.endCount)
	for i := range cfg.Searches {
		after := time.Duration(float64(cfg.Searching) * float64(i) / float64(cfg.Searches))
		w.at(searches.Add(after), func() { w.search(i % len(w.targets)) })
	}
	w.at(end.Add(20*time.Second), func() { w.queue = nil })
}

// endCount notes the load of the nodes that ran all the time. The others have sent and received for
// a part of it only.
func (w *network) endCount() {
	w.count = false
	seconds := (w.cfg.Keeping / 2).Seconds()
	for _, i := range w.counted {
		if x := w.nodes[i]; x.core != nil {
			w.loads = append(w.loads, NodeLoad{float64(x.bytes) / seconds, len(x.core.Contacts())})
		}
	}
}

func (w *network) at(t time.Time, do func()) { w.push(event{at: t, do: do}) }

func (w *network) push(e event) {
	w.seq++
	e.seq = w.seq
	heap.Push(w.events, &e)
}

// attackerAS is the AS of all attackers; honest nodes have those behind it.
const attackerAS = 1

func addrOf(i int, as int) dht.Addr {
	return dht.Addr{
		IA:   pathsel.IA(1<<48 | 0xff00_0000_0000 | uint64(as)),
		Host: netip.AddrFrom4([4]byte{10 + byte(i>>24), byte(i >> 16), byte(i >> 8), byte(i)}), Port: 30000,
	}
}

func indexOf(a dht.Addr) int {
	b := a.Host.As4()
	return int(b[0]-10)<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3])
}

func (w *network) join(attack bool) {
	i := len(w.nodes)
	x := &node{attack: attack, addr: addrOf(i, attackerAS)}
	w.nodes = append(w.nodes, x)
	boot := w.someLive(3)
	if attack {
		// Attackers stand as near to a torrent as they like.
		x.id = w.targets[i%len(w.targets)]
		for at := 12; at < len(x.id); at++ {
			x.id[at] ^= byte(w.rand.Uint32())
		}
		for _, b := range w.someLive(64) { // and make themselves known
			w.send(int32(i), b, &dht.Message{T: "attack", Query: dht.FindNode, ID: x.id, Target: x.id})
		}
		return
	}
	x.addr = addrOf(i, attackerAS+1+w.rand.IntN(w.cfg.ASes))
	x.id = dht.BoundID(x.addr, w.rand)
	x.core = dht.NewNode(w.now, dht.Config{
		Network: dht.OverSCION, Addr: x.addr, ID: x.id, Limits: w.cfg.Limits,
		Rand: rand.New(rand.NewPCG(w.cfg.Seed, uint64(i)+2)),
	})
	w.live = append(w.live, int32(i))
	var known []dht.Addr
	for _, b := range boot {
		known = append(known, w.nodes[b].addr)
	}
	w.carry(int32(i), x.core.Bootstrap(w.now, known))
}

func (w *network) someLive(n int) (out []int32) {
	for range min(n, len(w.live)) {
		out = append(out, w.live[w.rand.IntN(len(w.live))])
	}
	return out
}

// replace ends a node, and starts another one.
func (w *network) replace() {
	for range 100 {
		at := w.rand.IntN(len(w.live))
		if i := w.live[at]; !w.keep[i] {
			w.live[at] = w.live[len(w.live)-1]
			w.live = w.live[:len(w.live)-1]
			w.nodes[i].core = nil
			w.join(false)
			return
		}
	}
}

func (w *network) announce(torrent int) {
	i := w.someLive(1)[0]
	for w.keep[i] && len(w.keep) < len(w.live) {
		i = w.someLive(1)[0]
	}
	w.keep[i] = true
	x := w.nodes[i]
	t, out := x.core.Follow(w.now, w.targets[torrent], x.addr.Port)
	w.carry(i, out)
	w.carry(i, x.core.Hungry(w.now, t, false))
	w.wanted = append(w.wanted, x.addr)
}

func (w *network) search(torrent int) {
	target, want := w.targets[torrent], w.wanted[torrent]
	i := w.someLive(1)[0]
	if _, busy := w.searches[searcher{i, target}]; busy || w.nodes[i].addr == want {
		i = w.someLive(1)[0]
	}
	w.keep[i] = true
	w.searches[searcher{i, target}] = &outcome{want: want, start: w.now}
	w.carry(i, w.nodes[i].core.FindPeers(w.now, target))
}

// handle delivers a message or wakes a node.
func (w *network) handle(e *event) {
	x := w.nodes[e.to]
	switch {
	case x.attack:
		w.deceive(e)
	case x.core == nil:
	case e.from < 0:
		if x.wakeAt.Equal(e.at) {
			w.carry(e.to, x.core.Wake(w.now))
		}
	default:
		if w.count {
			x.bytes += e.size
		}
		origin := dht.Origin{Addr: w.nodes[e.from].addr, Proven: true, Size: e.size}
		w.carry(e.to, x.core.Receive(w.now, origin, e.m))
	}
}

// deceive is an attacker's answer: it names other attackers, as near to the target as the limits of
// a message allow.
func (w *network) deceive(e *event) {
	if e.from < 0 || !e.m.IsQuery() {
		return
	}
	r := &dht.Message{T: e.m.T, ID: w.nodes[e.to].id, Token: "deceived"}
	for n := 0; n < 400 && len(r.Nodes) < 8; n++ {
		// Attackers of one torrent have the same remainder in the order of joining.
		if o := w.nodes[w.rand.IntN(len(w.nodes))]; o.attack && (n > 200 || near(o.id, e.m.Target)) {
			r.Nodes = append(r.Nodes, dht.Contact{ID: o.id, Addr: o.addr})
		}
	}
	w.send(e.to, e.from, r)
}

func near(a, b dht.ID) bool { return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] }

// carry puts a node's packets on their way, and notes what it has found.
func (w *network) carry(i int32, out dht.Out) {
	x := w.nodes[i]
	for _, p := range out.Packets {
		if to := indexOf(p.To); to < len(w.nodes) {
			w.send(i, int32(to), p.Message)
		}
	}
	for _, e := range out.Events {
		o := w.searches[searcher{i, e.Target}]
		switch {
		case o == nil:
		case e.Done != nil:
			o.result = e.Done
		case o.found == 0 && slices.Contains(e.Peers, o.want):
			o.found = max(w.now.Sub(o.start), 1)
		}
	}
	if at := x.core.NextWake(); at.Before(x.wakeAt) || !x.wakeAt.After(w.now) {
		x.wakeAt = at
		if !at.After(w.now) {
			x.wakeAt = w.now.Add(time.Millisecond)
		}
		w.push(event{at: x.wakeAt, to: i, from: -1})
	}
}

// send delivers a copy of the message after half of a round trip.
func (w *network) send(from, to int32, m *dht.Message) {
	size := sizeOf(m)
	if w.count {
		w.nodes[from].bytes += size
	}
	copied := *m
	w.push(event{at: w.now.Add(w.delay(from, to)), to: to, from: from, m: &copied, size: size})
}

// delay is the same in both directions, and for all messages of a pair.
func (w *network) delay(a, b int32) time.Duration {
	if a > b {
		a, b = b, a
	}
	h := (uint64(a)*0x9e3779b97f4a7c15 ^ uint64(b)*0xc2b2ae3d27d4eb4f) * 0xff51afd7ed558ccd
	return time.Duration(float64(w.cfg.RTT) / 2 * (0.5 + float64(h>>40)/(1<<24)))
}

// sizeOf estimates the encoded size. Encoding each message would take most of a run's time.
func sizeOf(m *dht.Message) int {
	n := 70 + len(m.Nodes)*34 + len(m.Values)*17 + len(m.Token)
	if m.Target != (dht.ID{}) {
		n += 33
	}
	return n
}

func (w *network) result() Result {
	var searches []Search
	for _, o := range w.searches {
		if o.result != nil {
			searches = append(searches, Search{o.found, o.result.Hops, o.result.Queries})
		}
	}
	return Summarize(w.cfg.Nodes, searches, w.loads)
}

// Search is how one search went.
type Search struct {
	Found         time.Duration // until it found the peer; 0: it did not
	Hops, Queries int
}

// NodeLoad is what one node sends and receives at rest, in bytes per second, and the size of its
// table.
type NodeLoad struct {
	Bytes float64
	Table int
}

// Summarize is the result of searches in a network of so many nodes.
func Summarize(size int, searches []Search, nodes []NodeLoad) Result {
	r := Result{Nodes: size, Searches: len(searches)}
	var hops, took, load, tables, queries []float64
	for _, s := range searches {
		queries = append(queries, float64(s.Queries))
		if s.Found > 0 {
			took, hops = append(took, s.Found.Seconds()), append(hops, float64(s.Hops))
		}
	}
	for _, n := range nodes {
		load, tables = append(load, n.Bytes), append(tables, float64(n.Table))
	}
	r.Found, r.Queries = float64(len(took))/float64(max(1, len(searches))), mean(queries)
	r.HopsMean, r.HopsP95 = mean(hops), quantile(hops, 0.95)
	r.P50, r.P95 = quantile(took, 0.5), quantile(took, 0.95)
	r.LoadMean, r.LoadP99 = mean(load), quantile(load, 0.99)
	r.Table = mean(tables)
	return r
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(max(1, len(x)))
}

func quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	return stat.Quantile(q, stat.Empirical, x, nil)
}
