package server

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"braid/scionnet"
	"braid/tracker/wire"
)

// handler answers HTTP of either version. The transport says where a client's address is found.
func (s *Server) handler(over transport) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := clientAddr(over, r)
		if err != nil {
			s.log.Error("a request without an address", "transport", over, "error", err)
			http.Error(w, "no address", http.StatusInternalServerError)
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
		return wire.Addr{}, errors.New("the route has been pushed out")
	}
	return wire.Addr(a), nil
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
	case key != "":
		http.NotFound(w, r)
	case what == "healthz":
		s.serveHealth(w)
	default:
		http.NotFound(w, r)
	}
}

// splitPath reads /what or /KEY/what.
func splitPath(p string) (key, what string) {
	p = strings.TrimPrefix(p, "/")
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i], p[i+1:]
	}
	return "", p
}

// scratch is memory for one answer at a time.
type scratch struct {
	body  []byte
	peers []wire.Peer
}

var scratches = sync.Pool{New: func() any { return &scratch{body: make([]byte, 0, 4096)} }}

func (s *Server) serveAnnounce(w http.ResponseWriter, r *http.Request, from request, key string) {
	x := scratches.Get().(*scratch)
	defer scratches.Put(x)
	from.room = x.peers
	a, err := wire.ParseAnnounce(r.URL.RawQuery)
	var answer wire.Answer
	if err == nil {
		if key != "" {
			a.Passkey = key
		}
		a.SCION = a.SCION || from.from.IsSCION()
		answer, err = s.announce(r.Context(), from, &a)
		if err == nil && r.Method == http.MethodPost {
			if err = s.learn(w, r, from); err != nil {
				s.refused(from, err)
			}
		}
	} else {
		s.refused(from, err)
	}
	if err != nil {
		x.body = wire.FailureOf(err).Append(x.body[:0])
	} else {
		x.body, x.peers = answer.Append(x.body[:0], &a), roomier(x.peers, answer.Peers)
	}
	reply(w, x.body)
}

// roomier is the one of two slices that has more room.
func roomier(a, b []wire.Peer) []wire.Peer {
	if cap(b) > cap(a) {
		return b
	}
	return a
}

func (s *Server) serveScrape(w http.ResponseWriter, r *http.Request, from request, key string) {
	x := scratches.Get().(*scratch)
	defer scratches.Put(x)
	hashes, passkey, err := wire.ParseScrape(r.URL.RawQuery)
	var counts []wire.Counts
	if err == nil {
		if key != "" {
			passkey = key
		}
		counts, err = s.scrape(r.Context(), from, hashes, passkey)
	} else {
		s.refused(from, err)
	}
	if err != nil {
		x.body = wire.FailureOf(err).Append(x.body[:0])
	} else {
		x.body = wire.AppendScrape(x.body[:0], counts, s.gate.Load().cfg.MinInterval.D())
	}
	reply(w, x.body)
}

// reply sends a bencoded answer. Refusals have status 200 too: many clients do not read the body of another.
func reply(w http.ResponseWriter, b []byte) {
	h := w.Header()
	h["Content-Type"] = plain
	if len(b) > countedAnyway {
		h["Content-Length"] = []string{strconv.Itoa(len(b))}
	}
	_, _ = w.Write(b) // the client has gone: there is nobody to tell
}

var plain = []string{"text/plain"}

// countedAnyway is how long an answer may be that net/http holds back until its end, and then says how long it is.
const countedAnyway = 2048
