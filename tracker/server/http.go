package server

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"braid/scionnet"
	"braid/tracker/wire"
)

// handler answers HTTP of either version. The transport says where a client's address is found.
func (s *Server) handler(transport string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := clientAddr(transport, r)
		if err != nil {
			s.log.Error("a request without an address", "transport", transport, "error", err)
			http.Error(w, "no address", http.StatusInternalServerError)
			return
		}
		s.route(w, r, request{transport, from})
	})
}

func clientAddr(transport string, r *http.Request) (wire.Addr, error) {
	if transport != transportSCION {
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
	case !s.gate.Load().operator(from.from):
		http.NotFound(w, r)
	case what == "stats":
		s.serveStats(w, r)
	case what == "metrics":
		s.metrics.handler.ServeHTTP(w, r)
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

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4096); return &b }}

func (s *Server) serveAnnounce(w http.ResponseWriter, r *http.Request, from request, key string) {
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
	reply(w, func(b []byte) []byte {
		if err != nil {
			return wire.FailureOf(err).Append(b)
		}
		return answer.Append(b, &a)
	})
}

func (s *Server) serveScrape(w http.ResponseWriter, r *http.Request, from request, key string) {
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
	reply(w, func(b []byte) []byte {
		if err != nil {
			return wire.FailureOf(err).Append(b)
		}
		return wire.AppendScrape(b, counts, s.gate.Load().cfg.MinInterval.d())
	})
}

// reply sends a bencoded answer. Refusals have status 200 too: many clients do not read the body of another.
func reply(w http.ResponseWriter, fill func([]byte) []byte) {
	p := buffers.Get().(*[]byte)
	defer buffers.Put(p)
	b := fill((*p)[:0])
	*p = b
	h := w.Header()
	h["Content-Type"] = plain
	h["Content-Length"] = []string{strconv.Itoa(len(b))}
	_, _ = w.Write(b) // the client has gone: there is nobody to tell
}

var plain = []string{"text/plain"}
