package client

// judge bans the peers that blame or the engine has found guilty, and ends their connections.
type judge struct {
	*core
	connect *connector
}

func (j *judge) judge() {
	st := j.torrent.Stats()
	wrong := st.PiecesDirtiedBad.Int64()
	j.offers.ban(j.blame.judge(wrong, func(p int) bool { return isComplete(j.torrent, p) })...)
	j.offers.banAddrs(j.engine.BadHosts())
	peers, rows := banned(&j.peers, j.offers.isBanned)
	for _, p := range peers {
		p.banned = true
		j.log.Warn("peer banned: it has sent wrong data", "peer", p.peer, "wrong_pieces", wrong)
		for _, s := range p.paths {
			j.connect.close(s, errBanned.Error())
			s.err = errBanned
		}
	}
	for _, r := range rows {
		r.err = errBanned
		r.link.Close()
	}
}

// banned finds the dialled peers whose address, or whose key on a connection, is banned; and the
// accepted connections that are banned.
func banned(all *peerSet, isBanned func(suspect) bool) (peers []*peerState, rows []*row) {
	for _, p := range all.dialled {
		guilty := isBanned(suspectOf(p.origin))
		for _, s := range p.paths {
			guilty = guilty || s.link != nil && isBanned(suspectOf(s.link.Origin()))
		}
		if guilty && !p.banned {
			peers = append(peers, p)
		}
	}
	for _, r := range all.accepted {
		if r.link != nil && isBanned(suspectOf(r.link.Origin())) {
			rows = append(rows, r)
		}
	}
	return peers, rows
}
