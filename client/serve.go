package client

import (
	"time"

	"braid/pathsel"
)

// server applies pathsel's decision which peers may fetch from us, and over which of their
// connections. The engine unchokes everybody. A filter keeps the unchoke back where the decision is
// against it, unless the peer lacks the fast extension.
type server struct {
	*core
	memory pathsel.UploadMemory
}

// view is the input of the decision, and the connection behind each upload.
func (s *server) view() (v pathsel.UploadView, links []*link) {
	v = pathsel.UploadView{Now: time.Now(), MaxUploads: s.cfg.MaxUploads, Memory: s.memory}
	if !s.isDone {
		v.Received = map[pathsel.PeerID]float64{}
	}
	for r := range s.peers.rows() {
		l := r.link
		if l == nil || !l.Greeted() {
			continue
		}
		path := r.path
		if r.accepted {
			path = l.Path()
		}
		id := r.remoteID()
		_, sent := l.Bytes()
		v.Uploads = append(v.Uploads, pathsel.Upload{
			Peer: id, Origin: l.Origin(), Conn: l.addr.String(), Links: path.Interfaces,
			Wants: l.Filter.PeerInterested(), Sent: sent,
		})
		if links = append(links, l); v.Received != nil {
			v.Received[id] += r.useful.rate / 8
		}
	}
	return v, links
}

func (s *server) serve() {
	v, links := s.view()
	plan := pathsel.ServeUploads(v)
	s.memory = plan.Memory
	for i, l := range links {
		reason, barred := plan.Barred[v.Uploads[i].Conn]
		switch {
		case barred && !l.barred && l.Filter.Bar():
			l.barred = true
			l.log(s.log).Info("upload held back", "reason", reason)
		case !barred && l.barred:
			l.Filter.Unbar()
			l.barred = false
			l.log(s.log).Info("upload goes on")
		}
	}
}
