package client

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/time/rate"

	"braid/pathsel"
	"braid/scionnet"
)

// fan is TCP that claims to have several paths to every peer, so that path-level peers can be had
// without a network.
type fan struct {
	Transport
	paths int
}

func (f fan) Paths(context.Context, Peer) ([]pathsel.Path, error) {
	var out []pathsel.Path
	for i := range f.paths {
		out = append(out, pathsel.Path{Fingerprint: pathsel.Fingerprint(fmt.Sprintf("%064d", i))})
	}
	return out, nil
}

func (f fan) Dial(ctx context.Context, p Peer, path pathsel.Path, want *scionnet.PeerKey) (Wire, error) {
	w, err := f.Transport.Dial(ctx, p, path, want)
	if err != nil {
		return nil, err
	}
	return fanWire{w, path}, nil
}

type fanWire struct {
	Wire
	path pathsel.Path
}

func (w fanWire) Path() pathsel.Path { return w.path }

// openFan opens a session that listens on the host's loopback address and sees that many paths to
// everybody.
func openFan(t *testing.T, cfg Config, host string, paths int) *Session {
	t.Helper()
	log := testLog(t)
	tcp, err := openTCP([]Peer{mustPeer(t, host+":0")}, "", nil, log)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSession(cfg, log, []Transport{fan{tcp, paths}})
	if err != nil {
		tcp.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// slow is a transport whose accepted connections write at a limited rate.
type slow struct {
	Transport
	limit *rate.Limiter
}

func (s slow) Accept(ctx context.Context) (Wire, error) {
	w, err := s.Transport.Accept(ctx)
	if err != nil {
		return nil, err
	}
	open, end := context.WithCancel(context.Background())
	return slowWire{w, s.limit, open, end}, nil
}

type slowWire struct {
	Wire
	limit *rate.Limiter
	open  context.Context
	end   context.CancelFunc
}

// Close ends a Write that waits for its turn: nothing may wait when a bubble ends.
func (w slowWire) Close() error {
	w.end()
	return w.Wire.Close()
}

func (w slowWire) Write(b []byte) (int, error) {
	for rest := len(b); rest > 0; {
		n := min(rest, w.limit.Burst())
		if err := w.limit.WaitN(w.open, n); err != nil {
			return 0, err
		}
		rest -= n
	}
	return w.Wire.Write(b)
}

type hinted struct {
	fan
	got *pathsel.Hints
}

func (h hinted) Hint(x pathsel.Hints) { *h.got = x }

// A hint reaches the transports, which pass its rate on, and the selector, which tries its path
// first.
func TestHintReachesTransport(t *testing.T) {
	tcp, err := openTCP([]Peer{mustPeer(t, "127.0.0.1:0")}, "", nil, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	var got pathsel.Hints
	s, err := newSession(Config{}, testLog(t), []Transport{hinted{fan{tcp, 2}, &got}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data := filepath.Join(t.TempDir(), "file")
	writeRandom(t, data, 1<<20)
	src := makeTorrent(t, data, CreateOptions{}).Source
	tr, err := s.Add(src, openStore(t, t.TempDir()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := pathsel.Hints{1: {{Path: "a", Rate: 5}}}
	tr.Hint(want)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the transport got %v, want %v", got, want)
	}
	until(t, tr, "known to the selector", func(Progress) (ranked bool) {
		tr.do(func() { ranked = tr.loop.chooser.hints.Rank(pathsel.Path{Dst: 1, Fingerprint: "a"}) == 1 })
		return ranked
	})
}
