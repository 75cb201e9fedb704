package node

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"braid/client"
	"braid/dht"
	"braid/node/event"
	"braid/pathsel"
	"braid/scionnet"
)

// DHTConfig says in which DHTs a node takes part.
type DHTConfig struct {
	// SCION: take part in the DHT over SCION, if there is a SCION host.
	SCION bool
	// Port on SCION; 0: the port of the last run if it is free, otherwise any.
	Port uint16
	// IP are the UDP addresses of nodes in the DHTs over IP.
	IP []netip.AddrPort
	// OverIP adds nodes on IP at the addresses at which a session accepts peers.
	OverIP bool
	// Nodes are addresses of other nodes.
	Nodes []dht.Addr
	// Publish, if not nil, is a key. The node publishes addresses of nodes on SCION in the DHTs
	// over IP, as an item signed with this key (BEP 44).
	Publish ed25519.PrivateKey
	// Items are public keys. The node looks for the first nodes on SCION in the items of their
	// owners.
	Items []ed25519.PublicKey
	// File keeps the nodes and peers that were found; empty: they are forgotten.
	File   string
	Policy pathsel.Policy
	Logger *slog.Logger
}

const (
	// dhtSaveEvery is how often the found nodes are written to disk.
	dhtSaveEvery = 5 * time.Minute
	// maxKeptTorrents and maxKeptPeers bound the peers that are kept for the next run. keptFor
	// bounds their age.
	maxKeptTorrents, maxKeptPeers = 256, 50
	keptFor                       = 14 * 24 * time.Hour
	maxDHTFile                    = 8 << 20
)

// DHT is this program's nodes in DHTs. It is a Source.
type DHT struct {
	server  *dht.Server
	file    string
	log     *slog.Logger
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	workers sync.WaitGroup
	host    *scionnet.Host // nil: not on SCION
	heard   chan dht.Addr  // addresses of nodes, from peers
	policy  atomic.Pointer[pathsel.Policy]

	mu   sync.Mutex
	kept map[dht.ID]keptPeers
}

// dhtFile is the content of DHTConfig.File.
type dhtFile struct {
	Nodes []dht.State          `json:"nodes"`
	Peers map[dht.ID]keptPeers `json:"peers"`
}

// keptPeers are the peers that were found for a torrent.
type keptPeers struct {
	At    time.Time  `json:"at"` // when the last one was found
	Peers []dht.Addr `json:"peers"`
}

// OpenDHT opens the nodes that the configuration describes; host is nil without SCION. It returns
// nil if there are none.
func OpenDHT(ctx context.Context, cfg DHTConfig, host *scionnet.Host) (_ *DHT, err error) {
	d := &DHT{
		file:  cfg.File,
		log:   cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		host:  host,
		heard: make(chan dht.Addr, 16),
		kept:  map[dht.ID]keptPeers{},
	}
	d.policy.Store(&cfg.Policy)
	d.ctx, d.stop = context.WithCancel(context.Background())
	last := d.load()
	for hash, k := range last.Peers {
		if len(d.kept) == maxKeptTorrents {
			break
		}
		if len(k.Peers) <= maxKeptPeers && time.Since(k.At) < keptFor {
			k.Peers = slices.DeleteFunc(k.Peers, func(a dht.Addr) bool { return !a.Dialable() })
			d.kept[hash] = k
		}
	}
	var sockets []dht.Socket
	defer func() {
		if err != nil {
			for _, s := range sockets {
				_ = s.Close()
			}
		}
	}()
	if cfg.SCION && host != nil {
		s, err := d.openPort(ctx, cfg, last)
		if err != nil {
			return nil, fmt.Errorf("open a DHT node on SCION: %w", err)
		}
		sockets = append(sockets, s)
	}
	for _, at := range cfg.IP {
		s, err := dht.ListenUDP(ctx, at)
		if err != nil {
			return nil, err
		}
		sockets = append(sockets, s)
	}
	if len(sockets) == 0 {
		return nil, nil
	}
	onSCION, onIP := cfg.SCION && host != nil, len(cfg.IP) > 0
	if cfg.Publish != nil && !(onSCION && onIP) {
		return nil, errPublish
	}
	d.server = dht.Serve(dht.ServerConfig{Sockets: sockets, States: last.Nodes, Logger: d.log})
	d.server.AddNodes(cfg.Nodes...)
	d.workers.Go(d.run)
	if cfg.Publish != nil {
		d.workers.Go(func() { d.publish(cfg.Publish) })
	}
	if onSCION && onIP && len(cfg.Items) > 0 {
		d.workers.Go(func() { d.readItems(cfg.Items) })
	}
	return d, nil
}

// ports returns the ports of these nodes, which peers learn. Its function Heard takes addresses of
// nodes from peers. It drops addresses that come faster than run can check them.
func (d *DHT) ports() client.DHT {
	out := client.DHT{Heard: func(a scionnet.Addr) {
		select {
		case d.heard <- a:
		default:
		}
	}}
	ports := d.server.Ports()
	out.SCION, out.IP4, out.IP6 = ports[dht.OverSCION], ports[dht.OverIP4], ports[dht.OverIP6]
	return out
}

// SetPolicy says over which paths the node on SCION sends queries from now on.
func (d *DHT) SetPolicy(p pathsel.Policy) { d.policy.Store(&p) }

func (d *DHT) allowed(paths []pathsel.Path) []pathsel.Path {
	allowed, _ := d.policy.Load().Apply(paths)
	return allowed
}

// openPort opens the port of the last run if it can, so that others find the node again.
func (d *DHT) openPort(ctx context.Context, cfg DHTConfig, last dhtFile) (dht.Socket, error) {
	for _, x := range last.Nodes {
		if cfg.Port == 0 && x.Addr.IA == d.host.IA() && x.Addr.Host == d.host.LocalIP() {
			if s, err := dht.ListenSCION(ctx, d.host, x.Addr.Port, d.allowed); err == nil {
				return s, nil
			}
		}
	}
	return dht.ListenSCION(ctx, d.host, cfg.Port, d.allowed)
}

// load reads the file. A file that cannot be read is ignored.
func (d *DHT) load() (f dhtFile) {
	if d.file == "" {
		return f
	}
	b, err := os.ReadFile(d.file)
	if err == nil && len(b) <= maxDHTFile {
		err = json.Unmarshal(b, &f)
	}
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			d.log.Warn("the file with nodes of the DHT is not used", "file", d.file, "error", err)
		}
		return dhtFile{}
	}
	return f
}

// parseNodes reads the nodes that a torrent names. On IP it takes only public addresses, as for the
// peers of a magnet link: a torrent must not make braid contact hosts on the local network.
func parseNodes(named []string) (out []dht.Addr) {
	for _, text := range named {
		a, err := dht.ParseAddr(text)
		if err == nil && (a.IsSCION() || scionnet.ScopeOf(a.Host) == scionnet.ScopePublic) {
			out = append(out, a)
		}
	}
	return out
}

// isPrivate tells whether peers of a torrent may come from its trackers only. A magnet link is not
// private until a peer has described it.
func isPrivate(s client.Source, t *client.Transfer) bool {
	if s.IsMagnet() {
		s, _ = t.Described() // the zero Source, which is not private, without a description
	}
	return s.IsPrivate()
}

// run passes nodes that peers have named to the server, which checks them, and saves now and then.
func (d *DHT) run() {
	tick := time.NewTicker(dhtSaveEvery)
	defer tick.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case a := <-d.heard:
			d.server.Suggest(a)
		case <-tick.C:
			d.save()
		}
	}
}

// save writes the file, unless that would make the last one worse: no nodes and no peers are known.
func (d *DHT) save() {
	if d.file == "" {
		return
	}
	f := dhtFile{Nodes: d.server.States()}
	d.mu.Lock()
	f.Peers = maps.Clone(d.kept)
	d.mu.Unlock()
	for _, last := range d.load().Nodes {
		i := slices.IndexFunc(f.Nodes, func(x dht.State) bool {
			return dht.NetworkOf(x.Addr) == dht.NetworkOf(last.Addr)
		})
		if i < 0 { // this run has no node there, such as on a host that is away from SCION
			f.Nodes = append(f.Nodes, last)
		} else if len(f.Nodes[i].Nodes) == 0 {
			f.Nodes[i].Nodes = last.Nodes
		}
	}
	knowsNodes := func(x dht.State) bool { return len(x.Nodes) > 0 }
	if len(f.Peers) == 0 && !slices.ContainsFunc(f.Nodes, knowsNodes) {
		return
	}
	err := os.MkdirAll(filepath.Dir(d.file), 0o700)
	if err == nil {
		err = WriteJSON(d.file, f, false)
	}
	if err != nil {
		d.log.Warn("nodes of the DHT are not kept for the next run", "error", err)
	}
}

// Close ends the nodes.
func (d *DHT) Close() error {
	d.stop()
	d.workers.Wait()
	d.save()
	return d.server.Close()
}

// Listening returns the addresses of the nodes.
func (d *DHT) Listening() (out []string) {
	for _, s := range d.server.Status() {
		out = append(out, s.Listen)
	}
	return out
}

// Nodes returns how many other nodes these nodes know.
func (d *DHT) Nodes() (known int) {
	for _, s := range d.server.Status() {
		known += s.Nodes
	}
	return known
}

// Status is the event that describes the nodes.
func (d *DHT) Status() event.DHT {
	out := event.DHT{Event: "dht"}
	for _, s := range d.server.Status() {
		out.Networks = append(out.Networks, event.DHTNode{
			Network:       s.Network,
			Listen:        s.Listen,
			ID:            s.ID.String(),
			Nodes:         s.Nodes,
			ByAS:          s.ByAS,
			Torrents:      s.Torrents,
			Peers:         s.Peers,
			Items:         s.Items,
			Queries:       s.Queries,
			Refused:       s.Refused,
			Dropped:       s.Dropped,
			Asked:         s.Asked,
			Answers:       s.Answers,
			Timeouts:      s.Timeouts,
			Searches:      s.Searches,
			ReceivedBytes: s.Received,
			SentBytes:     s.Sent,
		})
	}
	return out
}

// keep remembers found peers for the next run.
func (d *DHT) keep(hash dht.ID, peers []dht.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.kept[hash]
	for _, p := range peers {
		if !slices.Contains(k.Peers, p) {
			k.Peers = append(k.Peers, p)
		}
	}
	k.Peers = k.Peers[max(0, len(k.Peers)-maxKeptPeers):]
	k.At = time.Now()
	d.kept[hash] = k
	for len(d.kept) > maxKeptTorrents {
		oldest := hash
		for h, x := range d.kept {
			if x.At.Before(d.kept[oldest].At) {
				oldest = h
			}
		}
		delete(d.kept, oldest)
	}
}

// keptPeers returns the found peers of a torrent, also those of earlier runs.
func (d *DHT) keptPeers(hash dht.ID) []dht.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.kept[hash].Peers)
}
