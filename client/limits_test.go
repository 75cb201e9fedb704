package client

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"braid/pathsel"
	"braid/scionnet"
	"braid/storage"
)

// pipeWire is one end of a pipe, with a peer and a path.
type pipeWire struct {
	net.Conn
	peer Peer
	path atomic.Pointer[pathsel.Path]

	claimed atomic.Bool // the peer's address is not proven
	key     *scionnet.PeerKey
}

func (w *pipeWire) Peer() Peer             { return w.peer }
func (w *pipeWire) Key() *scionnet.PeerKey { return w.key }
func (w *pipeWire) Measure() Measurement   { return Measurement{} }

func (w *pipeWire) Origin() pathsel.Origin {
	if w.claimed.Load() {
		return pathsel.OriginUnproven("")
	}
	return w.peer.origin()
}

func (w *pipeWire) Path() pathsel.Path {
	if p := w.path.Load(); p != nil {
		return *p
	}
	return pathsel.Path{}
}

func pipeTo(t *testing.T, peer string) (*pipeWire, net.Conn) {
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	return &pipeWire{Conn: a, peer: mustPeer(t, peer)}, b
}

func pattern(t *testing.T, s string) pathsel.Pattern {
	t.Helper()
	p, err := pathsel.ParsePattern(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// burst is how much of a limit may go at once.
const burst = 50 * time.Millisecond

// fromTCP is a fan that dials from one address, so that two peers on one machine have two hosts.
type fromTCP struct {
	fan
	local string
}

func (f fromTCP) Dial(ctx context.Context, p Peer, path pathsel.Path, _ *scionnet.PeerKey) (Wire, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(f.local)}}
	c, err := d.DialContext(ctx, "tcp", p.String())
	if err != nil {
		return nil, err
	}
	return fanWire{newTCPWire(c.(*net.TCPConn), 0), path}, nil
}

func TestLimitBelowTheLowest(t *testing.T) {
	_, err := New(t.Context(), Config{Limits: Limits{Paths: []PathLimit{{Pattern: pattern(t, "1-1#2"), Rate: 5}}}})
	if err == nil {
		t.Error("a limit below the lowest is taken")
	}
}

// A real seeder with an upload limit and two leechers, one of them over eight connections: the rate
// holds, which no loaded machine can change, and neither leecher gets much more than the other.
func TestUploadRateIsSharedBetweenPeers(t *testing.T) {
	const size, rate = 4 << 20, 16e6
	dir := t.TempDir()
	randomFiles(t, dir, "set", size)
	src := makeTorrent(t, dir+"/set", CreateOptions{PieceLength: 16 << 10}).Source
	seeder := openSession(t, Config{Listen: []Peer{mustPeer(t, "127.0.0.1:0")}, Limits: Limits{Upload: rate}})
	var gate sync.RWMutex
	serving, err := seeder.Add(src, gated{storage.OpenVerified(dir, testLog(t)), &gate, nil}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	all, err := pathsel.New("all")
	if err != nil {
		t.Fatal(err)
	}
	gate.Lock()
	open := sync.OnceFunc(gate.Unlock)
	defer open()
	var both []*Transfer
	for local, paths := range map[string]int{"127.0.0.8": 8, "127.0.0.9": 1} {
		tcp, err := openTCP(nil, "", nil, testLog(t))
		if err != nil {
			t.Fatal(err)
		}
		s, err := newSession(Config{Selector: all}, testLog(t), []Transport{fromTCP{fan{tcp, paths}, local}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		tr, err := s.Add(src, openStore(t, t.TempDir()), Options{Peers: seeder.Listening()})
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, tr)
	}
	until(t, serving, "connected to both", func(p Progress) bool { return len(p.Paths) == 9 })
	start := time.Now()
	open()
	by := map[string]uint64{}
	until(t, serving, "three quarters sent", func(p Progress) bool {
		clear(by)
		var sum uint64
		for _, x := range p.Paths {
			host, _, _ := net.SplitHostPort(x.Peer)
			by[host] += x.BytesWritten
			sum += x.BytesWritten
		}
		return sum > 2*size*3/4
	})
	if x, y := float64(by["127.0.0.8"]), float64(by["127.0.0.9"]); x < 0.6*y || x > 1.6*y {
		t.Errorf("eight connections had %.0f bytes, one had %.0f", x, y)
	}
	for _, tr := range both {
		wait(t, tr)
	}
	least := time.Duration((2*size - rate/8*burst.Seconds()) / (rate / 8) * float64(time.Second))
	if d := time.Since(start); d < least {
		t.Errorf("twice %d bytes in %v, which the rate allows in %v", size, d, least)
	} else {
		t.Logf("twice %d bytes in %v; the rate allows %v", size, d, least)
	}
}

// A download limit holds as well, over all connections together.
func TestDownloadRate(t *testing.T) {
	const size, rate = 2 << 20, 16e6
	dir := t.TempDir()
	randomFiles(t, dir, "set", size)
	src := makeTorrent(t, dir+"/set", CreateOptions{PieceLength: 16 << 10}).Source
	seeder := openFan(t, Config{}, "127.0.0.1", 1)
	if _, err := seeder.Add(src, storage.OpenVerified(dir, testLog(t)), Options{}); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	tr, err := openFan(t, Config{Limits: Limits{Download: rate}}, "127.0.0.1", 4).Add(src, openStore(t, t.TempDir()), Options{Peers: seeder.Listening()})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, tr)
	least := time.Duration((size - rate/8*burst.Seconds()) / (rate / 8) * float64(time.Second))
	if d := time.Since(start); d < least {
		t.Errorf("%d bytes in %v, which the rate allows in %v", size, d, least)
	} else {
		t.Logf("%d bytes in %v; the rate allows %v", size, d, least)
	}
}
