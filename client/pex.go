package client

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/anacrolix/torrent"
	pp "github.com/anacrolix/torrent/peer_protocol"

	"braid/pathsel"
	"braid/scionnet"
)

// exchanger tells connected peers of each other, and takes the addresses that they name (peer
// exchange: ut_pex for peers on IP, scion_pex for peers on SCION).
//
// The engine's own peer exchange is off. It would tell peers the made-up engine addresses, and dial
// the addresses that it hears of, which is the business of this package.
//
// A peer is told only of peers to which this transfer is connected. Nobody is told of anything
// before it is known that the torrent is not private (BEP 27).
type exchanger struct {
	*core
	connector *connector
	admission pexGate
	reported  map[pathsel.PeerID]*[pexKinds]pexTold // of connected peers
}

// extensions are the extensions that we offer on a connection over a transport. An address on IP
// does not tell whether its peer speaks TCP or QUIC. So connections over SCION exchange addresses
// on IP only if the session has TCP. Over WebRTC none are exchanged: browsers cannot dial them.
func (x *exchanger) extensions(transport string) *torrent.LocalLtepProtocolMap {
	names := []pp.ExtensionName{pp.ExtensionNameMetadata}
	for _, t := range x.transports {
		if transport == rtcName {
			break
		}
		switch t.Name() {
		case rtcName:
		case "scion":
			names = append(names, pexNames[pexSCION])
		case "tcp", transport:
			names = append(names, pexNames[pexIP])
		}
	}
	return &torrent.LocalLtepProtocolMap{Index: names}
}

// maySpeak tells whether it is known that the torrent is not private.
func (x *exchanger) maySpeak() bool { return x.described.Load() != nil && !x.isPrivate() }

// tell sends the messages that are due. It is called every second.
func (x *exchanger) tell(now time.Time) {
	if !x.maySpeak() || !x.pex.Load() {
		return
	}
	peers := x.peers.connectedPeers()
	all, before := map[pathsel.PeerID][]pexPeer{}, x.reported
	x.reported = map[pathsel.PeerID]*[pexKinds]pexTold{}
	for _, rows := range peers {
		id := rows[0].remoteID()
		all[id] = x.addresses(rows)
		x.reported[id] = cmp.Or(before[id], &[pexKinds]pexTold{})
	}
	for _, rows := range peers {
		told := x.reported[rows[0].remoteID()]
		for kind := range pexKinds {
			x.tellOne(rows, kind, &told[kind], all, now)
		}
	}
}

// tellOne sends a peer with these connections one kind of addresses, over the first connection that
// takes them.
func (x *exchanger) tellOne(
	rs []*row, kind pexKind, told *pexTold, all map[pathsel.PeerID][]pexPeer, now time.Time,
) {
	if now.Before(told.next) {
		return
	}
	for _, r := range rs {
		g := r.link.gauge.Load()
		offered := x.extensions(r.transport).Index
		if !g.exchanges[kind].Load() || !slices.Contains(offered, pexNames[kind]) {
			continue
		}
		if m, ok := told.tell(x.present(r, kind, all), now); ok {
			if err := g.conn.WriteExtendedMessage(pexNames[kind], m.encode()); err != nil {
				x.log.Debug("peer exchange failed", "peer", r.peer, "error", err)
			}
		}
		return
	}
}

// present lists the addresses of one kind that a peer may be told of, in a stable order.
func (x *exchanger) present(
	to *row, kind pexKind, all map[pathsel.PeerID][]pexPeer,
) (out []pexPeer) {
	home, own := x.home()
	at, its, itself := to.link.Peer().Addr(), to.peer.Addr(), to.remoteID()
	for id, peers := range all {
		for _, p := range peers {
			other := id != itself && p.at != its
			if other && p.kind() == kind && mayName(at, p.at, home, own) {
				out = append(out, p)
			}
		}
	}
	slices.SortFunc(out, func(a, b pexPeer) int { return compareAddrs(a.at, b.at) })
	return slices.CompactFunc(out, func(a, b pexPeer) bool { return a.at == b.at })
}

// addresses are the addresses at which others can reach a peer: those at which we have reached it,
// and the one at which it says that it listens. It leaves out unproven addresses, and web seeds,
// which serve no peers.
func (x *exchanger) addresses(rs []*row) (out []pexPeer) {
	pieces, _ := x.torrent.Size()
	for _, r := range rs {
		g := r.link.gauge.Load()
		if !r.link.Proven() || !r.link.Peer().Dialable() {
			continue
		}
		p := pexPeer{at: r.listens()}
		if g.conn.Stats().RemotePieceCount == pieces {
			p.flags |= pexFlagSeed
		}
		if !r.accepted {
			p.flags |= pexFlagReachable
		}
		known := slices.ContainsFunc(out, func(q pexPeer) bool { return q.at == p.at })
		if p.at.Dialable() && !known {
			out = append(out, p)
		}
	}
	return out
}

// home is our own address on SCION; zero without SCION.
func (x *exchanger) home() (ia pathsel.IA, host netip.Addr) {
	for _, p := range x.Listening() {
		if a, ok := p.SCION(); ok {
			return a.IA, a.Host
		}
	}
	return 0, netip.Addr{}
}

// onMessage takes the added addresses in a peer's message of peer exchange. It ignores the dropped
// ones: perhaps we can reach them all the same.
func (x *exchanger) onMessage(l *link, payload []byte) {
	if x.isPrivate() || !x.pex.Load() {
		return
	}
	m, err := parsePEX(payload)
	if err != nil {
		x.log.Debug("a message of a peer is ignored", "peer", l.Peer(), "error", err)
		return
	}
	home, own := x.home()
	from := l.Peer().Addr()
	if !l.Proven() {
		from.IA = ^home // so that it counts as a host in another AS
	}
	named := slices.DeleteFunc(m.added, func(p pexPeer) bool {
		return !mayName(from, p.at, home, own)
	})
	var peers []Peer
	for _, p := range x.admission.admit(l.Origin(), named, time.Now()) {
		peers = append(peers, PeerAt(p.at))
	}
	x.connector.addAll(peers, FromPEX, true)
	if d := x.dht.Load(); d != nil && m.dht != 0 && from.IA != 0 && l.Proven() {
		d.Heard(scionnet.Addr{IA: from.IA, Host: from.Host, Port: m.dht})
	}
}

// nodes exchanges the ports of DHT nodes with connected peers, but not for private torrents. On IP
// the port is in a port message (BEP 5), on SCION it is the integer "dht" of scion_pex (PEX.md).
// nodes is called every second.
func (x *exchanger) nodes() {
	d := x.dht.Load()
	if d == nil || !x.maySpeak() {
		return
	}
	for r := range x.peers.connected() {
		g := r.link.gauge.Load()
		if !r.link.Peer().Dialable() {
			continue
		}
		at := r.link.Peer().Addr()
		if port := g.node.Swap(0); port != 0 && at.IA == 0 && at.Host.IsValid() {
			d.Heard(scionnet.Addr{Host: at.Host, Port: uint16(port)})
		}
		if !g.toldNode {
			g.toldNode = x.tellNode(d, r, g)
		}
	}
}

// tellNode tells a peer of our node in the network of its connection. It returns false if it must
// be called again later.
func (x *exchanger) tellNode(d *DHT, r *row, g *gauge) bool {
	switch at := r.link.Peer().Addr(); {
	case at.IA != 0 && d.SCION != 0 && x.pex.Load():
		if !g.exchanges[pexSCION].Load() {
			return false
		}
		m := pexMessage{dht: d.SCION}
		if err := g.conn.WriteExtendedMessage(pexNames[pexSCION], m.encode()); err != nil {
			x.log.Debug("the peer was not told of our node", "peer", r.peer, "error", err)
		}
	case at.IA == 0 && at.Host.Is4() && d.IP4 != 0 && g.conn.TakesPort():
		r.link.Filter.TellPort(d.IP4)
	case at.IA == 0 && at.Host.Is6() && d.IP6 != 0 && g.conn.TakesPort():
		r.link.Filter.TellPort(d.IP6)
	}
	return true
}
