package files

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"braid/node"
	"braid/scionnet"
	"braid/scionnet/crowd"
)

const (
	// maxConnections bounds the connections on TCP. When all are taken, networks with many give way.
	maxConnections = 512
	// headerPatience is how long a client may take to send its request.
	headerPatience = 10 * time.Second
	idlePatience   = time.Minute
	// grace is how long current answers may go on when the server is closed.
	grace = time.Second
)

// Server serves a Handler at some addresses.
type Server struct {
	addresses []string
	http      *http.Server
	log       *slog.Logger
	closers   []func() error
	open      context.Context // ends when the server is closed
	stop      context.CancelFunc
	serving   errgroup.Group
}

// IsSCION tells whether an address in the form of Serve is on SCION.
func IsSCION(address string) bool { return strings.Contains(address, ",") }

// Serve opens the addresses and answers in the background: HOST:PORT on TCP, or a SCION address of
// the node's host, such as 1-ff00:0:110,[127.0.0.1]:8080, for HTTP/3. Port 0 is any free port. For
// private, see Handler. The caller closes the server before the node.
func Serve(
	ctx context.Context, n *node.Node, addresses []string, private bool, log *slog.Logger,
) (_ *Server, err error) {
	s := &Server{log: log}
	s.open, s.stop = context.WithCancel(context.Background())
	s.http = &http.Server{ // without ReadTimeout, which would end long answers
		Handler:           Handler(n, private),
		ReadHeaderTimeout: headerPatience,
		IdleTimeout:       idlePatience,
		WriteTimeout:      patience,
		MaxHeaderBytes:    16 << 10,
		// Broken connections are no news.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	for _, a := range addresses {
		if IsSCION(a) {
			err = s.serveSCION(ctx, n, a)
		} else {
			err = s.serveTCP(ctx, a)
		}
		if err != nil {
			return nil, fmt.Errorf("serve files at %s: %w", a, err)
		}
	}
	return s, nil
}

// serve answers in the background.
func (s *Server) serve(at fmt.Stringer, answer func() error) {
	s.addresses = append(s.addresses, at.String())
	s.serving.Go(func() error {
		err := answer()
		if err != nil {
			s.log.Error("files are no longer served", "address", at, "error", err)
		}
		return err
	})
}

func (s *Server) serveTCP(ctx context.Context, address string) error {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	few := crowd.Listen(l, maxConnections)
	s.serve(l.Addr(), func() error { return crowd.Serve(s.open, s.http, few, grace) })
	return nil
}

func (s *Server) serveSCION(ctx context.Context, n *node.Node, address string) error {
	a, err := scionnet.ParseAddr(address)
	if err != nil {
		return err
	}
	p, err := n.OpenHTTP(ctx, a.Port)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, p.Close)
	if at := p.Addr(); at.IA != a.IA || at.Host != a.Host {
		return fmt.Errorf("this host is in AS %s, with the address %s", at.IA, at.Host)
	}
	s.serve(p.Addr(), func() error { return p.Serve(s.open, s.http.Handler, grace) })
	return nil
}

// Addresses are those at which the server answers, in the form of Serve.
func (s *Server) Addresses() []string { return s.addresses }

// URLs are those at which the server answers, without a path.
func (s *Server) URLs() []string {
	var out []string
	for _, a := range s.addresses {
		scheme := "http://"
		if IsSCION(a) {
			scheme = "scion://"
		}
		out = append(out, scheme+a)
	}
	return out
}

// Close ends the server, and soon after that all answers.
func (s *Server) Close() error {
	s.stop()
	err := s.serving.Wait()
	for _, c := range s.closers {
		err = errors.Join(err, c())
	}
	return err
}
