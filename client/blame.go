package client

import (
	"net/netip"
	"slices"

	"github.com/anacrolix/torrent"
)

// wrongPieces is how many wrong pieces one host alone must have sent to be banned by us. One could be the fault of a
// host that has just left; and the engine bans by itself where one connection sent the whole piece.
const wrongPieces = 2

// maxGone is how many connections that have ended are remembered for the pieces that they had a part in.
const maxGone = 2 * maxConns

// judge finds hosts that send wrong data. The engine bans a host when a single connection has sent the whole of a
// wrong piece, or when a good copy shows who was wrong. The blocks of a piece that come over several paths
// of one bad peer are neither; but when of all connections only those of one host had a part in wrong pieces,
// it is guilty. Connections that have ended count as well: who sends one wrong block and leaves would otherwise have those
// banned that have sent the rest.
func (t *Transfer) judge() {
	ended := t.session.gauges.takeEnded(t.torrent)
	t.gone = append(t.gone, ended...)
	if n := len(t.gone) - maxGone; n > 0 {
		t.gone = slices.Delete(t.gone, 0, n)
		t.blind = true // who had a part in what is not certain any more
	}
	now := map[*torrent.PeerConn]int64{}
	blamed := map[string]int64{}
	for _, c := range slices.Concat(t.torrent.PeerConns(), t.gone) {
		if _, seen := now[c]; seen {
			continue
		}
		st := c.Stats()
		n := st.PiecesDirtiedBad.Int64()
		now[c] = n
		if n > t.suspects[c] {
			blamed[hostOf(c.RemoteAddr.String())] += n - t.suspects[c]
		}
	}
	t.suspects = now
	if len(blamed) == 1 && !t.blind {
		for host, n := range blamed {
			if t.wrong[host] += n; t.wrong[host] >= wrongPieces {
				if ip, err := netip.ParseAddr(host); err == nil {
					t.session.offers.ban(ip)
				}
			}
		}
	}
	for _, ip := range t.session.engine.BadPeerIPs() {
		if a, err := netip.ParseAddr(ip); err == nil {
			t.session.offers.ban(a)
		}
	}
	t.shutOut()
}

func hostOf(faceString string) string {
	ap, err := netip.ParseAddrPort(faceString)
	if err != nil {
		return ""
	}
	return ap.Addr().String()
}

// shutOut ends what there is with hosts that are banned.
func (t *Transfer) shutOut() {
	for _, p := range t.peers {
		if p.banned || !t.session.offers.isBanned(faceOf(p.peer)) {
			continue
		}
		p.banned = true
		t.log.Warn("peer banned: it has sent wrong data", "peer", p.peer)
		for _, s := range p.paths {
			t.close(s, errBanned.Error())
			s.err = errBanned
		}
	}
	for _, r := range t.inbound {
		if r.link != nil && t.session.offers.isBanned(r.link.face.host) {
			r.err = errBanned
			r.link.Close()
		}
	}
}
