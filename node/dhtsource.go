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

// distances looks up paths to at most maxRanked ASes, for at most rankPatience. A slow control
// service must not hold up the found peers.
const (
	maxRanked    = 16
	rankPatience = time.Second
)

// openDHT opens the node's part in DHTs, or returns nil if it has none.
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

// dhtAddresses returns the UDP addresses for nodes on IP: the first IPv4 and the first IPv6 address
// at which the session accepts peers. If there is none, it returns any port on all IPv4 addresses.
// With QUIC the session uses the UDP port itself, so the node gets another port.
func dhtAddresses(listening []client.Peer, quic bool) (out []netip.AddrPort) {
	for _, at := range families(listening) {
		sameKind := func(x netip.AddrPort) bool { return x.Addr().Is4() == at.Host.Is4() }
		if at.IsSCION() || slices.ContainsFunc(out, sameKind) {
			continue
		}
		if quic {
			at.Port = 0
		}
		out = append(out, at.AddrPort())
	}
	if len(out) == 0 {
		out = []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), 0)}
	}
	return out
}

// families returns the addresses of listening peers. The address :: stands for all of IPv4, too.
func families(listening []client.Peer) (out []dht.Addr) {
	for _, p := range listening {
		at := p.Addr()
		if at.Host == netip.IPv6Unspecified() && !at.IsSCION() {
			out = append(out, dht.Addr{Host: netip.IPv4Unspecified(), Port: at.Port})
		}
		if at.Host.IsValid() {
			out = append(out, at)
		}
	}
	return out
}

// dhtPorts returns the port at which peers are accepted in each network.
func dhtPorts(listening []client.Peer) map[dht.Network]uint16 {
	ports := map[dht.Network]uint16{}
	for _, at := range families(listening) {
		ports[dht.NetworkOf(at)] = at.Port
	}
	return ports
}

// Start searches for peers of a torrent, and announces it if this node accepts peers. It refuses
// private torrents, whose peers come from trackers only (BEP 27).
func (d *DHT) Start(s Swarm) (Search, error) {
	if s.Private() {
		return nil, ErrNoWay
	}
	d.server.AddNodes(s.Nodes...)
	x := &dhtSearch{dht: d, swarm: s, in: make(chan []dht.Addr, 16)}
	hash := dht.ID(s.InfoHash)
	x.found(d.keptPeers(hash))
	var err error
	if x.followed, err = d.server.Follow(hash, dhtPorts(s.Listen), x.found); err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, x.stop = context.WithCancel(context.Background())
	x.worker.Go(func() { x.pass(ctx) })
	return x, nil
}

// dhtSearch is the search for one torrent.
type dhtSearch struct {
	dht      *DHT
	swarm    Swarm
	followed *dht.Followed
	in       chan []dht.Addr
	stop     context.CancelFunc
	worker   sync.WaitGroup
}

// found takes peers from the network. It drops peers that come too fast; later answers name them
// again.
func (x *dhtSearch) found(peers []dht.Addr) {
	if len(peers) == 0 {
		return
	}
	select {
	case x.in <- peers:
	default:
	}
}

// pass passes found peers to the torrent, the nearest first.
func (x *dhtSearch) pass(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case peers := <-x.in:
			if x.swarm.Private() { // a peer has described the magnet link
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
	if p := x.swarm.Progress(); !hungry && p.Phase == client.Complete && p.Missing == 0 {
		x.followed.Seeding()
	}
	x.followed.Hungry(hungry)
}

// Completed does nothing: Hungry finds seeds, also those that were complete at the start.
func (x *dhtSearch) Completed() {}

// Announce searches now.
func (x *dhtSearch) Announce() { x.followed.Now() }

// Close ends the search.
func (x *dhtSearch) Close() {
	x.followed.Close()
	x.stop()
	x.worker.Wait()
}

// distance is the distance to an AS along its shortest path.
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

// nearest returns the length of the shortest path. Paths without an announced latency come last,
// and are compared by hops.
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
	turns, turn := map[pathsel.IA]int{}, map[dht.Addr]int{}
	for _, p := range peers {
		turns[p.IA]++
		turn[p] = turns[p.IA]
	}
	out := slices.Clone(peers)
	slices.SortStableFunc(out, func(a, b dht.Addr) int {
		x, okA := at[a.IA]
		y, okB := at[b.IA]
		if okA != okB {
			if okA {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(turn[a], turn[b]), compareDistances(x, y))
	})
	return out
}
