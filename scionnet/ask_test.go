package scionnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/daemon"
	"github.com/scionproto/scion/pkg/daemon/private/engine"
	"github.com/scionproto/scion/pkg/daemon/types"
	"github.com/scionproto/scion/pkg/log"
	"github.com/scionproto/scion/pkg/snet"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"braid/pathsel"
)

// answer is one answer of a daemon: a number of paths, and the failure that it writes to its log,
// after some time.
type answer struct {
	paths   int
	failure error
	after   time.Duration
}

// answers is a daemon that gives these answers, the last one again and again.
type answers struct {
	daemon.Connector
	of    []answer
	asked int
}

func (a *answers) Paths(ctx context.Context, _, _ addr.IA, _ types.PathReqFlags) ([]snet.Path, error) {
	now := a.of[min(a.asked, len(a.of)-1)]
	a.asked++
	time.Sleep(now.after)
	log.FromCtx(ctx).Debug("Segment lookup failed", "try", 1, "err", now.failure)
	return make([]snet.Path, now.paths), nil
}

func TestPartOfAnAnswer(t *testing.T) {
	busy, locked := errors.New("no attempts left"), errors.New("database table is locked: chains")
	for name, c := range map[string]struct {
		of           []answer
		paths, asked int
		noControl    bool
	}{
		"whole":                {of: []answer{{paths: 7}}, paths: 7, asked: 1},
		"part, then whole":     {of: []answer{{paths: 2, failure: busy}, {paths: 7}}, paths: 7, asked: 2},
		"locked, then whole":   {of: []answer{{failure: locked}, {paths: 7}}, paths: 7, asked: 2},
		"part again and again": {of: []answer{{paths: 2, failure: busy}}, paths: 2, asked: askTries},
		"part after seconds":   {of: []answer{{paths: 2, failure: busy, after: 4 * time.Second}}, paths: 2, asked: 1},
		"no path":              {of: []answer{{}}, asked: 1},
		"no answer":            {of: []answer{{failure: busy}}, asked: 1, noControl: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &answers{of: c.of}
				paths, err := askPaths(t.Context(), a, 1, 2, false)
				if whole := a.of[min(a.asked, len(a.of))-1].failure == nil; whole != (err == nil) {
					t.Errorf("error %v", err)
				}
				if len(paths) != c.paths || a.asked != c.asked || errors.Is(err, ErrNoControl) != c.noControl {
					t.Errorf("%d paths after %d questions, %v", len(paths), a.asked, err)
				}
			})
		})
	}
}

// A daemon that was away is asked again as soon as it is back, though gRPC would wait.
func TestDaemonIsBack(t *testing.T) {
	at := ""
	for at == "" { // below the ports that the system gives to connections, so that it stays free
		if l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10_000+rand.IntN(20_000))); err == nil {
			at = l.Addr().String()
			l.Close()
		}
	}
	h := &Host{cfg: Config{Daemon: at}, log: slog.New(slog.DiscardHandler)}
	var err error
	if h.connector, err = (daemon.Service{Address: at}).Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer h.connector.Close()
	ask := map[string]func() error{
		"paths":                     func() error { _, err := h.query(t.Context(), peerIA, false); return err },
		"the AS's routers":          func() error { return h.loadInterfaces(t.Context()) },
		"the AS's control services": func() error { return h.CheckControl(t.Context()) },
	}
	for what, f := range ask {
		if err := f(); status.Code(err) != codes.Unavailable {
			t.Fatalf("%s: error %v without a daemon", what, err)
		}
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(codes.NotFound, "no path")
	}))
	go s.Serve(l)
	defer s.Stop()
	for what, f := range ask {
		if err := f(); status.Code(err) != codes.NotFound {
			t.Errorf("%s: error %v with a daemon", what, err)
		}
	}
}

// inProcess is scionproto's daemon in this process. It counts its questions to the control service.
type inProcess struct {
	daemon.Connector
	engine engine.DaemonEngine
	asked  atomic.Int64
}

func (p *inProcess) Paths(ctx context.Context, dst, src addr.IA, f types.PathReqFlags) ([]snet.Path, error) {
	return p.engine.Paths(ctx, dst, src, f)
}

func (p *inProcess) GetPaths(context.Context, addr.IA, addr.IA, bool) ([]snet.Path, error) {
	p.asked.Add(1)
	return nil, nil
}

// A lookup asks the control service once.
func TestDaemonAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &inProcess{}
		p.engine.Fetcher = p
		h := &Host{ia: usIA, connector: p, log: slog.New(slog.DiscardHandler)}
		l := newLookup(h.query, func(pathsel.IA, []found) {}, nil, h.log)
		if _, err := l.paths(t.Context(), peerIA); !errors.Is(err, ErrNoPath) {
			t.Error(err)
		}
		synctest.Wait()
		if n := p.asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		l.close()
	})
}
