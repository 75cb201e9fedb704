// Package web serves a node over HTTP: braid's own interface, those of other clients, and the page.
//
//	Server   listens, and hands each request through the checks below to the routes
//	listen   a unix socket for its owner only; TCP on loopback, or anywhere if a password is set
//	Access   who may do what: allowed hosts, the password, sessions, the rate of failed logins
//	routes   the handlers, each of which is a package of its own below this one
//	metrics  figures for Prometheus
//
// A request passes, in this order: the list of allowed hosts (against DNS rebinding), the
// protection against requests that other sites make in a user's browser, the password, the limit of
// its body, its route. A GET changes nothing in any route.
//
// It refuses to decide anything about torrents: every route is a thin layer over package node.
package web

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	v1 "braid/node/web/v1"
	"braid/scionnet/crowd"
	"braid/units/lists"
)

// Config describes a server.
type Config struct {
	// Listen are the addresses: unix:PATH, or host:port.
	Listen []string
	// Access decides who may use the server.
	Access *Access
	Logger *slog.Logger
}

// Route is a handler and what may reach it.
type Route struct {
	Pattern string // as in http.ServeMux
	Handler http.Handler
	// Body is the largest body of a request in bytes; 0 is defaultBody.
	Body int64
	// Public routes need no password. They must not tell anything that does.
	Public bool
}

const (
	defaultBody = 1 << 20
	// maxConnections bounds what strangers can open on TCP. A browser has six, or one with streams.
	// When all are taken, silent ones and networks with many give way.
	maxConnections = 256
	// headerPatience is how long a client may take to send a header. Without it, idle connections
	// would use up maxConnections.
	headerPatience = 10 * time.Second
	bodyPatience   = 2 * time.Minute
	idlePatience   = 2 * time.Minute
	// closePatience is how long requests may go on after Close. Streams end at once.
	closePatience = 3 * time.Second
)

// Server answers HTTP requests.
type Server struct {
	http      *http.Server
	access    *Access
	log       *slog.Logger
	listeners []net.Listener
	open      context.Context // ends when the server is closed
	stop      context.CancelFunc
	serving   errgroup.Group
}

// New opens the listeners of a server. It answers once Serve is called.
func New(cfg Config, routes []Route) (_ *Server, err error) {
	s := &Server{access: cfg.Access, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))}
	s.open, s.stop = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	s.http = &http.Server{
		Handler:           s.handler(routes),
		ReadHeaderTimeout: headerPatience,
		ReadTimeout:       bodyPatience,
		IdleTimeout:       idlePatience,
		MaxHeaderBytes:    64 << 10,
		// Streams end with Close.
		BaseContext: func(net.Listener) context.Context { return s.open },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, ownerKey{}, c.LocalAddr().Network() == "unix")
		},
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	for _, address := range cfg.Listen {
		l, err := listen(address, cfg.Access.HasPassword())
		if err != nil {
			return nil, err
		}
		if l.Addr().Network() != "unix" {
			l = crowd.Listen(l, maxConnections)
		}
		s.listeners = append(s.listeners, l)
	}
	return s, nil
}

// ownerKey is the context's key for whether the connection came over the unix socket.
type ownerKey struct{}

// IsOwner tells whether a request came over the unix socket, which only its owner may open.
func (a *Access) IsOwner(r *http.Request) bool {
	owner, _ := r.Context().Value(ownerKey{}).(bool)
	return owner
}

// Addresses returns where the server listens, in the form of Config.Listen.
func (s *Server) Addresses() []string {
	return lists.Map(s.listeners, func(l net.Listener) string { return addressOf(l.Addr()) })
}

// Serve begins to answer, in the background.
func (s *Server) Serve() {
	for _, l := range s.listeners {
		s.serving.Go(func() error {
			err := crowd.Serve(s.open, s.http, l, closePatience)
			if err != nil {
				s.log.Error("the server no longer answers",
					"address", addressOf(l.Addr()), "error", err)
			}
			return err
		})
	}
}

// Close ends the server. Streams end at once; other requests have a few seconds.
func (s *Server) Close() error {
	s.stop()
	err := s.serving.Wait()
	for _, l := range s.listeners { // those that Serve has not got
		_ = l.Close()
	}
	return err
}

// headers keep other sites from embedding or reading answers. The Content-Security-Policy allows
// only what the server itself serves, and no code in HTML or CSS; the page has a stricter one.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; " +
		"img-src 'self' data:; connect-src 'self'; manifest-src 'self'; font-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
}

// isLocal tells whether a request came to a loopback address.
func isLocal(r *http.Request) bool {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// handler is the routes behind the checks.
func (s *Server) handler(routes []Route) http.Handler {
	public, private := http.NewServeMux(), http.NewServeMux()
	for _, r := range routes {
		mux := private
		if r.Public {
			mux = public
		}
		mux.Handle(r.Pattern, http.MaxBytesHandler(r.Handler, cmp.Or(r.Body, defaultBody)))
	}
	otherSites := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		if !s.access.allowsHost(r) {
			deny(w, r, http.StatusMisdirectedRequest, "this name is not allowed: "+
				"use the IP address, or allow it with braid daemon --allow-host NAME")
			return
		}
		if !s.access.IsOwner(r) && !s.access.HasPassword() && !isLocal(r) { // it was removed
			deny(w, r, http.StatusForbidden, ErrNeedsPassword.Error())
			return
		}
		if err := otherSites.Check(r); err != nil {
			deny(w, r, http.StatusForbidden, err.Error())
			return
		}
		if _, pattern := public.Handler(r); pattern != "" {
			public.ServeHTTP(w, r)
			return
		}
		if err := s.access.Allowed(r); err != nil {
			s.access.Refuse(w, r, err)
			return
		}
		private.ServeHTTP(w, r)
	})
}

// deny answers with an error: an object for braid's own interface, as its description says, and
// otherwise a line of text.
func deny(w http.ResponseWriter, r *http.Request, status int, text string) {
	if strings.HasPrefix(r.URL.Path, v1.Prefix+"/") {
		v1.Deny(w, status, text)
	} else {
		http.Error(w, text, status)
	}
}
