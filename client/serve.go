package client

import (
	"time"

	"braid/pathsel"
)

// serve decides which peers may fetch from us, and over which of their connections. The engine unchokes everybody; what
// it says passes the gates only where pathsel agrees. The gate of a peer without the fast extension cannot close.
func (t *Transfer) serve() {
	v := pathsel.UploadView{Now: time.Now(), MaxUploads: t.session.maxUploads, Memory: t.uploads}
	var links []*link
	if !t.isDone {
		v.Received = map[pathsel.PeerID]float64{}
	}
	add := func(r *row, path pathsel.Path) {
		l := r.link
		if l == nil || !l.Greeted() {
			return
		}
		who := uploadPeer(r)
		_, sent := l.Bytes()
		v.Uploads = append(v.Uploads, pathsel.Upload{
			Peer: who, Origin: l.Origin(), Conn: l.face.String(), Links: path.Interfaces, Wants: l.Filter.PeerInterested(), Sent: sent,
		})
		if links = append(links, l); v.Received != nil {
			v.Received[who] += r.in.rate / 8
		}
	}
	for _, p := range t.peers {
		for _, s := range p.paths {
			add(&s.row, s.candidate.Path)
		}
	}
	for _, r := range t.inbound {
		if r.link != nil {
			add(r, r.link.Path())
		}
	}
	plan := pathsel.ServeUploads(v)
	t.uploads = plan.Memory
	for i, l := range links {
		reason, barred := plan.Barred[v.Uploads[i].Conn]
		switch {
		case barred && !l.barred && l.Filter.Bar():
			l.barred = true
			t.log.Info("upload held back", "peer", l.Peer(), "path", l.Path().Fingerprint.Short(), "reason", reason)
		case !barred && l.barred:
			l.Filter.Unbar()
			l.barred = false
			t.log.Info("upload goes on", "peer", l.Peer(), "path", l.Path().Fingerprint.Short())
		}
	}
}

// uploadPeer is who is at the other end: the same for all connections of a peer, whichever side opened them.
func uploadPeer(r *row) pathsel.PeerID {
	if k := r.link.Key(); k != nil {
		return pathsel.PeerID(k[:])
	}
	return r.peer.ID()
}
