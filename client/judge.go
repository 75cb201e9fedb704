package client

import "braid/pathsel"

// judge bans the peers that blame or the engine has found guilty, and ends their connections.
func (c *connector) judge() {
	st := c.torrent.Stats()
	wrong := st.PiecesDirtiedBad.Int64()
	c.offers.ban(c.blame.judge(wrong)...)
	c.offers.banAddrs(c.engine.BadPeerIPs())
	isBanned := func(o pathsel.Origin) bool { return c.offers.isBanned(suspectOf(o)) }
	for _, p := range c.peers.dialled {
		guilty := isBanned(p.origin)
		for _, s := range p.paths {
			guilty = guilty || s.link != nil && isBanned(s.link.Origin())
		}
		if p.banned || !guilty {
			continue
		}
		p.banned = true
		c.log.Warn("peer banned: it has sent wrong data", "peer", p.peer, "wrong_pieces", wrong)
		for _, s := range p.paths {
			c.close(s, errBanned.Error())
			s.err = errBanned
		}
	}
	for _, r := range c.peers.accepted {
		if r.link != nil && isBanned(r.link.Origin()) {
			r.err = errBanned
			r.link.Close()
		}
	}
}
