package server

import (
	"errors"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"braid/scionnet"
	"braid/tracker/wire"
)

// handler answers HTTP/1.1 and HTTP/3. The transport decides where a client's address comes from.
func (s *Server) handler(over transport) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := clientAddr(over, r)
		if err != nil {
			s.log.Error("the address of a client is unknown", "transport", over, "error", err)
			http.Error(w, "your address is unknown", http.StatusInternalServerError)
			return
		}
		claimed := over == overSCION && !scionnet.ClientProven(r.Context(), provenPatience)
		s.route(w, r, request{transport: over, from: from, claimed: claimed, at: time.Now()})
	})
}

func clientAddr(over transport, r *http.Request) (wire.Addr, error) {
	if over != overSCION {
		return clientHost(r.RemoteAddr)
	}
	a, ok := scionnet.ClientAddr(r.Context())
	if !ok {
		return wire.Addr{}, errors.New("the route to the client was dropped to make room")
	}
	return a, nil
}

func (s *Server) route(w http.ResponseWriter, r *http.Request, from request) {
	key, what := splitPath(r.URL.Path)
	reports := r.Method == http.MethodPost && what == "announce" && from.from.IsSCION()
	if r.Method != http.MethodGet && r.Method != http.MethodHead && !reports {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	switch {
	case what == "announce":
		s.serveAnnounce(w, r, from, key)
	case what == "scrape":
		s.serveScrape(w, r, from, key)
	case what == "healthz" && key == "":
		s.serveHealth(w)
	default:
		http.NotFound(w, r)
	}
}

// splitPath reads /what or /KEY/what.
func splitPath(p string) (key, what string) {
	dir, what := path.Split(p)
	return strings.Trim(dir, "/"), what
}

// scratch is memory for one answer at a time.
type scratch struct {
	body  []byte
	peers []wire.Peer
}

var scratches = sync.Pool{New: func() any { return &scratch{body: make([]byte, 0, 4096)} }}

// serve answers a request with the body that fill makes, or with its error. Refusals have status
// 200 too, since many clients read no other body.
func (s *Server) serve(w http.ResponseWriter, from request, fill func(*scratch) error) {
	x := scratches.Get().(*scratch)
	defer scratches.Put(x)
	if err := fill(x); err != nil {
		s.refused(from, err)
		x.body = wire.FailureOf(err).Append(x.body[:0])
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Content-Length", strconv.Itoa(len(x.body)))
	_, _ = w.Write(x.body) // it fails only if the client has gone
}

func (s *Server) serveAnnounce(w http.ResponseWriter, r *http.Request, from request, key string) {
	s.serve(w, from, func(x *scratch) error {
		a, err := wire.ParseAnnounce(r.URL.RawQuery)
		if err != nil {
			return err
		}
		if key != "" {
			a.Passkey = key
		}
		a.SCION = a.SCION || from.from.IsSCION()
		from.room = x.peers
		answer, err := s.announce(r.Context(), from, &a)
		if err != nil {
			return err
		}
		if r.Method == http.MethodPost {
			if err := s.learn(w, r, from); err != nil {
				return err
			}
		}
		x.body, x.peers = answer.Append(x.body[:0], &a), roomier(x.peers, answer.Peers)
		return nil
	})
}

// roomier is the slice with more capacity.
func roomier(a, b []wire.Peer) []wire.Peer {
	if cap(b) > cap(a) {
		return b
	}
	return a
}

func (s *Server) serveScrape(w http.ResponseWriter, r *http.Request, from request, key string) {
	s.serve(w, from, func(x *scratch) error {
		hashes, passkey, err := wire.ParseScrape(r.URL.RawQuery)
		if err != nil {
			return err
		}
		if key != "" {
			passkey = key
		}
		counts, err := s.scrape(r.Context(), from, hashes, passkey)
		if err != nil {
			return err
		}
		x.body = wire.AppendScrape(x.body[:0], counts, s.admission.Load().cfg.MinInterval.D())
		return nil
	})
}
