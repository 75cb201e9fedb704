package client

import "braid/scionnet"

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
		at := addrOf(r.link.Peer())
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
	switch at := addrOf(r.link.Peer()); {
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
