package dhtbench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"braid/dht"
	"braid/dht/sim"
	"braid/scionnet"
	"braid/testbed"
)

// Network is a SCION network of a testbed with nodes of the DHT. All of them run in this process,
// on one host in each AS.
type Network struct {
	testbed *testbed.Network
	hosts   []*scionnet.Host
}

// OnNetwork is a run in such a network, which takes about two minutes. The number of ASes and their
// round trips are the network's own.
func OnNetwork(nodes int) sim.Config {
	cfg := sim.Default(nodes)
	cfg.Torrents, cfg.Searches = 20, 200
	cfg.Joining, cfg.Settling = 30*time.Second, 20*time.Second
	cfg.Keeping, cfg.Searching = 30*time.Second, 40*time.Second
	return cfg
}

// Star is a topology of so many ASes around one in the middle. Round trips between them take rtt.
func Star(ases int, rtt time.Duration) (testbed.Topology, error) {
	const middle = "1-ff00:0:100"
	var b strings.Builder
	fmt.Fprintf(&b, "ASes:\n  %q: {core: true, voting: true, authoritative: true, issuing: true}\n", middle)
	for i := range ases {
		fmt.Fprintf(&b, "  \"1-ff00:0:%x\": {cert_issuer: %s}\n", 0x101+i, middle)
	}
	b.WriteString("links:\n")
	for i := range ases {
		fmt.Fprintf(&b, "  - {a: \"%s-A#%d\", b: \"1-ff00:0:%x#1\", linkAtoB: CHILD, delay: %s}\n",
			middle, i+1, 0x101+i, rtt/4)
	}
	return testbed.ParseTopology("star", strings.NewReader(b.String()))
}

// Open starts a testbed with a star, and opens a host in each AS at its edge.
func Open(ctx context.Context, opts testbed.Options) (*Network, error) {
	net, err := testbed.Start(ctx, opts)
	if err != nil {
		return nil, err
	}
	n := &Network{testbed: net}
	for _, as := range opts.Topology.ASes[1:] {
		h, err := scionnet.Open(ctx, scionnet.Config{ConfigDir: net.ConfigDir(as.IA), LocalIP: net.HostIP(as.IA)})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open a host in %s: %w", as.IA, err), n.Close())
		}
		n.hosts = append(n.hosts, h)
	}
	return n, nil
}

// Close closes the hosts and the testbed.
func (n *Network) Close() error {
	var errs []error
	for _, h := range n.hosts {
		errs = append(errs, h.Close())
	}
	n.testbed.Close()
	return errors.Join(errs...)
}

// Measure runs nodes of that case, and searches.
func (n *Network) Measure(ctx context.Context, c Case, cfg sim.Config) (Row, error) {
	began := time.Now()
	c.change(&cfg)
	w := &world{Network: n, cfg: cfg, rand: rand.New(rand.NewPCG(cfg.Seed, 1))}
	for range cfg.Torrents {
		var hash dht.ID
		for i := range hash {
			hash[i] = byte(w.rand.Uint32())
		}
		w.targets = append(w.targets, hash)
	}
	defer w.close()
	r, err := w.run(ctx)
	return Row{c.Name, r, time.Since(began).Seconds()}, err
}

// node is an honest node that runs.
type node struct {
	*dht.Server
	addr dht.Addr
	busy atomic.Int32 // announces and searches; meanwhile it is not replaced
}

// world is the nodes of one measurement. One goroutine uses it; searches have their own.
type world struct {
	*Network
	cfg       sim.Config
	rand      *rand.Rand
	targets   []dht.ID
	wanted    []dht.Addr // the peer of each torrent
	nodes     []*node
	attackers []*attacker
}

func (w *world) run(ctx context.Context) (sim.Result, error) {
	hostile := int(w.cfg.Attackers * float64(w.cfg.Nodes))
	for i := range w.cfg.Nodes {
		err := testbed.Sleep(ctx, w.cfg.Joining/time.Duration(w.cfg.Nodes))
		if err == nil && (i+1)*hostile/w.cfg.Nodes > i*hostile/w.cfg.Nodes {
			err = w.attack(ctx)
		} else if err == nil {
			err = w.join(ctx, i)
		}
		if err != nil {
			return sim.Result{}, err
		}
	}
	if err := w.age(ctx, w.cfg.Settling); err != nil {
		return sim.Result{}, err
	}
	for i, hash := range w.targets {
		x := w.some()
		x.busy.Add(1)
		w.wanted = append(w.wanted, x.addr)
		f, err := x.Follow(hash, map[dht.Network]uint16{dht.OverSCION: x.addr.Port}, func([]dht.Addr) {})
		if err != nil {
			return sim.Result{}, fmt.Errorf("announce torrent %d: %w", i, err)
		}
		f.Hungry(false)
	}
	if err := w.age(ctx, w.cfg.Keeping/2); err != nil {
		return sim.Result{}, err
	}
	before, at := w.bytes(), time.Now()
	if err := w.age(ctx, w.cfg.Keeping/2); err != nil {
		return sim.Result{}, err
	}
	after, seconds := w.bytes(), time.Since(at).Seconds()
	var loads []sim.NodeLoad
	for x, n := range after {
		if began, ok := before[x]; ok { // else it has replaced another one meanwhile
			load := sim.NodeLoad{Bytes: float64(n-began) / seconds, Table: x.Status()[0].Nodes}
			loads = append(loads, load)
		}
	}
	searches, err := w.search(ctx)
	return sim.Summarize(w.cfg.Nodes, searches, loads), err
}

// bytes returns how many bytes each node has sent and received.
func (w *world) bytes() map[*node]int {
	out := map[*node]int{}
	for _, x := range w.nodes {
		s := x.Status()[0]
		out[x] = s.Received + s.Sent
	}
	return out
}

// join starts a node. With attackers, the first AS is theirs.
func (w *world) join(ctx context.Context, i int) error {
	hosts := w.hosts
	if w.cfg.Attackers > 0 {
		hosts = hosts[1:]
	}
	s, err := dht.ListenSCION(ctx, hosts[i%len(hosts)], 0, nil)
	if err != nil {
		return fmt.Errorf("start a node: %w", err)
	}
	server := dht.Serve(dht.ServerConfig{Sockets: []dht.Socket{s}, Limits: w.cfg.Limits})
	x := &node{Server: server, addr: s.Addr()}
	var boot []dht.Addr
	for range min(3, len(w.nodes)) {
		boot = append(boot, w.some().addr)
	}
	w.nodes = append(w.nodes, x)
	x.AddNodes(boot...)
	return nil
}

func (w *world) some() *node { return w.nodes[w.rand.IntN(len(w.nodes))] }

// age waits. In a case with churn, nodes are replaced meanwhile.
func (w *world) age(ctx context.Context, d time.Duration) error {
	if w.cfg.Churn == 0 {
		return testbed.Sleep(ctx, d)
	}
	gap := time.Duration(float64(time.Minute) / (w.cfg.Churn * float64(w.cfg.Nodes)))
	for end := time.Now().Add(d); time.Now().Before(end); {
		if err := errors.Join(testbed.Sleep(ctx, gap), w.replace(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// replace ends a node that is not busy, and starts another one.
func (w *world) replace(ctx context.Context) error {
	for range 100 {
		x := w.some()
		if x.busy.Load() > 0 {
			continue
		}
		w.nodes = slices.DeleteFunc(w.nodes, func(o *node) bool { return o == x })
		return errors.Join(x.Server.Close(), w.join(ctx, w.rand.IntN(1<<16)))
	}
	return nil // all nodes announce or search
}

// search has nodes search for the torrents' peers, and waits for all of them.
func (w *world) search(ctx context.Context) ([]sim.Search, error) {
	results := make([]sim.Search, w.cfg.Searches)
	failed := make([]error, w.cfg.Searches)
	var all sync.WaitGroup
	defer all.Wait()
	for i := range results {
		torrent, x := i%len(w.targets), w.some()
		for x.addr == w.wanted[torrent] {
			x = w.some()
		}
		x.busy.Add(1)
		all.Go(func() {
			defer x.busy.Add(-1)
			results[i], failed[i] = find(ctx, x, w.targets[torrent], w.wanted[torrent])
		})
		if err := w.age(ctx, w.cfg.Searching/time.Duration(w.cfg.Searches)); err != nil {
			return nil, err
		}
	}
	all.Wait()
	return results, errors.Join(failed...)
}

func find(ctx context.Context, x *node, hash dht.ID, want dht.Addr) (sim.Search, error) {
	f, err := x.FindPeers(ctx, hash)
	if err != nil || len(f.Results) == 0 {
		return sim.Search{}, err
	}
	s := sim.Search{Hops: f.Results[0].Hops, Queries: f.Results[0].Queries}
	if slices.Contains(f.Peers, want) {
		s.Found = max(f.Results[0].First, 1)
	}
	return s, nil
}

func (w *world) close() {
	var all sync.WaitGroup
	for _, x := range w.nodes {
		all.Go(func() { _ = x.Server.Close() })
	}
	for _, a := range w.attackers {
		all.Go(a.close)
	}
	all.Wait()
}

// attacker is a node of the AS that has half of them. It stands next to a torrent, names only its
// own kind, and keeps nothing.
type attacker struct {
	dht.Contact
	socket dht.Socket
	worker sync.WaitGroup
}

func (a *attacker) close() {
	_ = a.socket.Close()
	a.worker.Wait()
}

// attack starts an attacker, and makes it known to honest nodes.
func (w *world) attack(ctx context.Context) error {
	s, err := dht.ListenSCION(ctx, w.hosts[0], 0, nil)
	if err != nil {
		return fmt.Errorf("start an attacker: %w", err)
	}
	a := &attacker{socket: s, Contact: dht.Contact{ID: w.targets[len(w.attackers)%len(w.targets)], Addr: s.Addr()}}
	for i := 2; i < len(a.ID); i++ {
		a.ID[i] ^= byte(w.rand.Uint32())
	}
	w.attackers = append(w.attackers, a)
	friends := slices.Clone(w.attackers)
	a.worker.Go(func() { a.deceive(friends, w.cfg.Torrents) })
	for range min(64, len(w.nodes)) {
		m := &dht.Message{T: "attack", Query: dht.FindNode, ID: a.ID, Target: a.ID}
		s.Send(m.Encode(), w.some().addr, false)
	}
	return nil
}

// deceive answers queries with the attackers that stand next to the same torrent.
func (a *attacker) deceive(friends []*attacker, torrents int) {
	b := make([]byte, 2048)
	for {
		n, _, back, err := a.socket.Receive(b)
		if err != nil {
			return
		}
		m, err := dht.ParseMessage(b[:n])
		if err != nil || !m.IsQuery() {
			continue
		}
		r := &dht.Message{T: m.T, ID: a.ID, Token: "deceived"}
		for i := len(friends) - 1; i >= 0 && len(r.Nodes) < 8; i -= torrents {
			r.Nodes = append(r.Nodes, friends[i].Contact)
		}
		a.socket.Reply(r.Encode(), back)
	}
}
