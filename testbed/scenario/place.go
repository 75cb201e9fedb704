package scenario

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"braid/testbed"
)

// Where peers run: in an AS of the SCION network, or as hosts on IP, each in a namespace of its
// own.

// trackerName is the peer that tells other clients of each other.
const trackerName = "tracker"

// Tracker is its role.
const Tracker = "tracker"

// The tracker on IP is always the first host, and reaches all ASes without a link. trackerURL is in
// every torrent of a swarm with other clients.
const (
	trackerPort = 6969
	trackerURL  = "http://10.66.0.1:6969/announce"
)

// introduced tells whether peers find each other by themselves.
func (s Scenario) introduced() bool { return s.Tracker || s.DHT }

// startTracker starts the tracker or the node of the DHT, and waits until it serves.
func (a *attempt) startTracker(ctx context.Context) error {
	p := Peer{Name: trackerName, Role: Tracker, Client: Braid, Transport: SCION}
	args := []string{a.braid, "tracker", "--json", "--interval", "30s", "--min-interval", "1s"}
	scheme := "scion://"
	if a.DHT {
		args, scheme = []string{a.braid, "dht", "--json", "--sample", "1h"}, ""
	}
	var h *testbed.IPHost
	if a.introduced() {
		ia := a.Peers[slices.IndexFunc(a.Peers, func(p Peer) bool { return p.Role == Seed })].AS
		args = append(args, "--config-dir", a.network.ConfigDir(ia), "--listen", scheme+a.network.HostAddr(ia, 0))
	} else {
		p.Transport = TCP
		h = a.ip.AddHost(0)
		scheme = "http"
		if a.webRTC() {
			scheme = "ws"
		}
		args = append(args, "--listen", fmt.Sprintf("%s://%s:%d", scheme, h.Addr(), trackerPort))
	}
	ps, err := a.startProcess(p, h, "", args)
	if err != nil {
		return err
	}
	return a.awaitReady(ctx, ps)
}

// awaitReady goes on with the run until a process serves or has ended.
func (a *attempt) awaitReady(ctx context.Context, ps *process) error {
	return a.follow(ctx, func() bool { return ps.ready || ps.ended })
}

// start starts a peer. If others download from it, start waits until it serves.
func (a *attempt) start(ctx context.Context, p Peer) error {
	a.writer.event("start", p.Name)
	if p.Client != Braid {
		ps, err := a.startForeign(p)
		if err != nil || p.Role != Seed {
			return err
		}
		if p.Client == Iperf3 {
			return a.awaitReady(ctx, ps)
		}
		// It serves once the tracker has answered; handshake and answer are longer than this.
		const answered = 250
		return a.follow(ctx, func() bool { in, _ := ps.host.Traffic(); return in > answered || ps.ended })
	}
	torrents, _ := a.data.wanted(p)
	if p.Role == Leech && p.Transport == Gateway {
		return a.startBehindGateway(ctx, p, torrents)
	}
	out := ""
	if p.Role == Leech {
		out = filepath.Join(a.scratch, p.Name)
	}
	command, host := a.command(p, torrents, out)
	ps, err := a.startProcess(p, host, out, command)
	if err != nil || !a.serves(p) {
		return err
	}
	return a.awaitReady(ctx, ps)
}

// A leecher behind a gateway is any client on IP: it knows the gateway's tracker, and nothing of
// SCION. Its gateway is a process of its own in the same AS, which finds the seeds through the
// swarm's tracker on SCION. Between the two is no link: both are on the machine's loopback
// interface, where the programs of SCION are, too.

// gatewaySuffix follows the name of a leecher in that of its gateway. No name in a file has it.
const gatewaySuffix = "+gateway"

// startBehindGateway starts a gateway, waits until it serves, and starts the leecher. The flags and
// the selector of the leecher are the gateway's, which is the end on SCION.
func (a *attempt) startBehindGateway(ctx context.Context, p Peer, torrents []string) error {
	g := Peer{Name: p.Name + gatewaySuffix, Role: Gateway, Client: Braid, Transport: SCION, AS: p.AS}
	cache, local := filepath.Join(a.scratch, g.Name), a.network.HostIP(p.AS).String()+":0"
	args := append([]string{a.braid, "gateway"}, torrents...)
	args = append(args, "--cache", cache, "--tracker-listen", "http://"+local, "--listen", local,
		"--listen", a.network.HostAddr(p.AS, 0), "--tracker", a.peers[0].listen, "--path-selection", p.Selector)
	args = slices.Concat(args, a.network.HostFlags(p.AS), a.common(g.Name), p.Args)
	gateway, err := a.startProcess(g, nil, "", args)
	if err != nil {
		return err
	}
	if err := a.awaitReady(ctx, gateway); err != nil {
		return err
	}
	out := filepath.Join(a.scratch, p.Name)
	args = append(a.download(p, torrents, out), "--transport", TCP, "--tracker", gateway.listen)
	_, err = a.startProcess(p, nil, out, append(args, a.common(p.Name)...))
	return err
}

// command returns the command that starts a braid peer, and its host; nil on SCION.
func (a *attempt) command(p Peer, torrents []string, out string) (args []string, host *testbed.IPHost) {
	listen, transport := "--listen", p.Transport
	switch {
	case p.Role == Leech:
		args = append(a.download(p, torrents, out), "--path-selection", p.Selector)
		for _, x := range a.peers {
			if !a.introduced() && x.listen != "" && a.downloads(p, x.peer) {
				args = append(args, a.source(x)...)
			}
		}
	case p.Transport == Web:
		args = append(append([]string{a.braid, "serve"}, torrents...), "--data", a.data.dir)
		listen = "--http"
	default:
		args = append(append([]string{a.braid, "seed"}, torrents...), "--data", a.data.dir)
	}
	switch {
	case a.Tracker:
		args = append(args, "--tracker", a.peers[0].listen)
	case a.DHT:
		args = append(args, "--dht-node", a.peers[0].listen)
	case p.Transport == WebRTC: // all addresses of the testbed are local ones
		args = append(args, "--ice-local", "--tracker", a.peers[0].listen)
	}
	var addr string
	if p.onIP() {
		host = a.ip.AddHost(p.AS)
		addr = host.Addr().String() + ":0"
	} else {
		args = append(args, a.network.HostFlags(p.AS)...)
		addr, transport = a.network.HostAddr(p.AS, 0), SCION
	}
	if a.serves(p) && p.Transport != WebRTC { // whose peers meet over the tracker
		args = append(args, listen, addr)
	}
	args = append(args, "--transport", transport)
	return slices.Concat(args, a.common(p.Name), p.Args), host
}

// download returns the command of a leecher, as far as every way of transfer has it.
func (a *attempt) download(p Peer, torrents []string, out string) []string {
	args := append([]string{a.braid, "download"}, torrents...)
	args = append(args, "-o", out, "--sample", a.Sample.String(), "--piece-events")
	if p.Stays {
		args = append(args, "--seed-after")
	}
	return args
}

// common returns the arguments of every braid with peers. Each needs its own key, because peers
// with the same key are one peer. Peer exchange is off, so that peers know only the peers of the
// scenario, unless its args turn it on.
func (a *attempt) common(name string) []string {
	return []string{"--identity", filepath.Join(a.scratch, name+".pem"), "--json", "--pex", "off"}
}

// source returns the arguments that name a peer to a leecher.
func (a *attempt) source(x *process) []string {
	if x.peer.Transport == Web {
		return []string{"--web-seed", fmt.Sprintf("scion://%s/torrent/%s/", x.listen, a.data.infoHash)}
	}
	return []string{"--peer", x.listen}
}

// downloads tells whether p knows the earlier peer x.
func (s Scenario) downloads(p, x Peer) bool {
	if !x.listens() || apart(p, x) || x.Transport != p.Transport || (x.Client == Iperf3) != (p.Client == Iperf3) {
		return false
	}
	if len(p.From) == 0 {
		return x.Role == Seed
	}
	return slices.Contains(p.From, x.Name) || slices.Contains(p.From, everybody)
}

// listens tells whether other peers can connect to p. Leechers of some transports do not listen.
func (p Peer) listens() bool {
	return p.Role == Seed || p.Role == Leech && !slices.Contains([]string{Web, Gateway, WebRTC}, p.Transport)
}

// serves tells whether other peers know p.
func (s Scenario) serves(p Peer) bool {
	if p.Role == Seed || s.foreign() {
		return true
	}
	i := slices.IndexFunc(s.Peers, func(x Peer) bool { return x.Name == p.Name })
	return slices.ContainsFunc(s.Peers[i+1:], func(x Peer) bool { return s.downloads(x, p) })
}

// exchanges tells whether p can exchange data with the earlier peer x, of which it knows or hears.
func (s Scenario) exchanges(p, x Peer) bool {
	return s.downloads(p, x) || (s.foreign() || s.meets(p, x)) && !apart(p, x)
}

// apart tells whether two peers have different torrents.
func apart(p, x Peer) bool { return p.torrent > 0 && x.torrent > 0 && p.torrent != x.torrent }

// meets tells whether a tracker over WebSocket tells p and x of each other.
func (s Scenario) meets(p, x Peer) bool { return p.Transport == WebRTC && x.Transport == WebRTC }
