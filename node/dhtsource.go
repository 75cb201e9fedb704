package node

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"braid/client"
	"braid/dht"
	"braid/pathsel"
	"braid/scionnet"
)

// maxRanked bounds the ASes of peers whose paths are looked up for one answer, and rankPatience the
// time for that. Peers should not wait for a slow control service.
const (
	maxRanked    = 16
	rankPatience = time.Second
)

// openDHT opens the nodes of a session's DHTs, or none.
func (c Config) openDHT(
	ctx context.Context, host *scionnet.Host, listening []client.Peer,
) (*DHT, error) {
	if c.DHT == nil {
		return nil, nil
	}
	cfg := *c.DHT
	cfg.Policy, cfg.Logger = c.Client.Policy, c.Logger
	if cfg.OverIP && c.Client.IP != client.NoIP {
		cfg.IP = append(cfg.IP, dhtAddresses(listening, c.Client.IP == client.QUIC)...)
	}
	return OpenDHT(ctx, cfg, host)
}

// dhtAddresses are the UDP addresses for nodes on IP: those at which peers are accepted over TCP,
// one of each kind; without any, all addresses of IPv4. QUIC has the UDP port of its address
// already.
func dhtAddresses(listening []client.Peer, quic bool) (out []netip.AddrPort) {
	for _, p := range listening {
		at, err := netip.ParseAddrPort(p.String())
		if err != nil || slices.ContainsFunc(out, func(x netip.AddrPort) bool { return x.Addr().Is4() == at.Addr().Is4() }) {
			continue
		}
		if quic {
			at = netip.AddrPortFrom(at.Addr(), 0)
		}
		out = append(out, at)
	}
	if len(out) == 0 {
		out = []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), 0)}
	}
	return out
}

// Start searches for peers of a torrent, and announces it if this node accepts peers. Private
// torrents are left to their trackers (BEP 27).
func (d *DHT) Start(s Swarm) (Search, error) {
	if s.Private() {
		return nil, ErrNoWay
	}
	d.server.AddNodes(s.Nodes...)
	x := &dhtSearch{dht: d, swarm: s, in: make(chan []dht.Addr, 16)}
	ports := map[dht.Network]uint16{}
	for _, p := range s.Listen {
		if _, ok := p.SCION(); ok {
			ports[dht.OverSCION] = p.Port()
		} else if at, err := netip.ParseAddrPort(p.String()); err == nil && at.Addr().Unmap().Is4() {
			ports[dht.OverIP4] = p.Port()
		} else if err == nil {
			ports[dht.OverIP6] = p.Port()
		}
	}
	hash := dht.ID(s.InfoHash)
	x.found(d.keptPeers(hash))
	var err error
	if x.followed, err = d.server.Follow(hash, ports, x.found); err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, x.stop = context.WithCancel(context.Background())
	x.worker.Go(func() { x.pass(ctx) })
	return x, nil
}

// dhtSearch is the work for one torrent.
type dhtSearch struct {
	dht      *DHT
	swarm    Swarm
	followed *dht.Followed
	in       chan []dht.Addr
	stop     context.CancelFunc
	worker   sync.WaitGroup
}

// found takes peers from the network. Those that come too fast are dropped: others name them again.
func (x *dhtSearch) found(peers []dht.Addr) {
	if len(peers) == 0 {
		return
	}
	select {
	case x.in <- peers:
	default:
	}
}

// pass hands found peers to the torrent, best first.
func (x *dhtSearch) pass(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case peers := <-x.in:
			if x.swarm.Private() { // as the description behind a magnet link says
				x.followed.Close()
				return
			}
			x.dht.keep(dht.ID(x.swarm.InfoHash), peers)
			x.swarm.Found(client.FromDHT, peersAt(spread(peers, x.dht.distances(ctx, peers)))...)
		}
	}
}

// Hungry says whether the torrent has too few peers.
func (x *dhtSearch) Hungry(hungry bool) {
	if x.swarm.Private() {
		x.followed.Close()
		return
	}
	x.followed.Hungry(hungry)
}

// Completed says that the download has become complete.
func (x *dhtSearch) Completed() { x.followed.Seeding() }

// Announce searches now.
func (x *dhtSearch) Announce() { x.followed.Now() }

// Close ends the search.
func (x *dhtSearch) Close() {
	x.followed.Close()
	x.stop()
	x.worker.Wait()
}

// distance says how far an AS is, as its paths announce it.
type distance struct {
	latency time.Duration
	hops    int
}

// distances looks up the paths to the ASes of peers.
func (d *DHT) distances(ctx context.Context, peers []dht.Addr) map[pathsel.IA]distance {
	out := map[pathsel.IA]distance{}
	if d.host == nil {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, rankPatience)
	defer cancel()
	for _, p := range peers {
		if _, known := out[p.IA]; known || !p.IsSCION() || len(out) == maxRanked {
			continue
		}
		if paths, err := d.host.PathsOnce(ctx, p.IA); err == nil {
			out[p.IA] = nearest(paths)
		}
	}
	return out
}

// nearest is the shortest of some paths: by announced latency, or by hops where none is announced.
func nearest(paths []pathsel.Path) distance {
	best := distance{latency: time.Hour, hops: 1 << 16}
	for _, p := range paths {
		x := distance{time.Hour, p.Hops()}
		if p.LatencyKnown {
			x.latency = p.Latency
		}
		if compareDistances(x, best) < 0 {
			best = x
		}
	}
	return best
}

func compareDistances(a, b distance) int {
	return cmp.Or(cmp.Compare(a.latency, b.latency), cmp.Compare(a.hops, b.hops))
}

// spread orders peers: near ASes first, and one peer of each AS before the second of any. Peers on
// IP, and in ASes without a known distance, come last.
func spread(peers []dht.Addr, at map[pathsel.IA]distance) []dht.Addr {
	type placed struct {
		dht.Addr
		turn int
	}
	turns := map[pathsel.IA]int{}
	var all []placed
	for _, p := range peers {
		turns[p.IA]++
		all = append(all, placed{p, turns[p.IA]})
	}
	slices.SortStableFunc(all, func(a, b placed) int {
		x, okA := at[a.IA]
		y, okB := at[b.IA]
		if okA != okB {
			if okA {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.turn, b.turn), compareDistances(x, y))
	})
	out := make([]dht.Addr, len(all))
	for i := range all {
		out[i] = all[i].Addr
	}
	return out
}
