package client

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// leastFor is the time in which a limit, in bit/s, lets so many bytes pass. A burst may go at once.
func leastFor(bytes, rate float64) time.Duration {
	const burst = 50 * time.Millisecond
	return time.Duration(bytes/(rate/8)*float64(time.Second)) - burst
}

func TestLimitBelowTheLowest(t *testing.T) {
	_, err := New(t.Context(), Config{Limits: Limits{Paths: []PathLimit{{Pattern: pattern(t, "1-1#2"), Rate: 5}}}})
	if err == nil {
		t.Error("a limit below the lowest is taken")
	}
}

// A seeder has an upload limit and two leechers, one of them over eight connections. The rate holds
// and is used, and neither leecher gets much more than the other.
func TestUploadRateIsSharedBetweenPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, rate = 4 << 20, 16e6
		dir := t.TempDir()
		randomFiles(t, dir, "set", size)
		src := makeTorrent(t, dir+"/set", CreateOptions{PieceLength: 16 << 10}).Source
		var net pipes
		seeder := sessionOver(t, Config{Limits: Limits{Upload: rate}}, net.host())
		serving, err := seeder.Add(src, storage.OpenVerified(dir, testLog(t)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		all, err := pathsel.New("all")
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var leechers []*Transfer
		connections := map[string]int{}
		for _, paths := range []int{8, 1} {
			x := net.host()
			connections[x.self.host] = paths
			store := openStore(t, t.TempDir())
			t.Cleanup(func() { store.Close() })
			tr, err := sessionOver(t, Config{Selector: all}, fan{x, paths}).Add(src, store, Options{Peers: seeder.Listening()})
			if err != nil {
				t.Fatal(err)
			}
			leechers = append(leechers, tr)
		}
		by := map[int]uint64{}
		simulateUntil(t, serving, func(p Progress) bool {
			clear(by)
			for _, x := range p.Paths {
				host, _, _ := strings.Cut(x.Peer, ":")
				by[connections[host]] += x.BytesWritten
			}
			return by[8]+by[1] > 2*size*3/4
		})
		if x, y := float64(by[8]), float64(by[1]); x < 0.8*y || x > 1.25*y {
			t.Errorf("eight connections had %.0f bytes, one had %.0f", x, y)
		}
		for _, tr := range leechers {
			simulateWait(t, tr)
		}
		if took, least := time.Since(start), leastFor(2*size, rate); took < least || took > least*11/10+time.Second {
			t.Errorf("twice %d bytes in %v; the rate allows %v", size, took, least)
		}
	})
}

// A download limit holds as well, over all connections together.
func TestDownloadRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, rate = 2 << 20, 16e6
		dir := t.TempDir()
		randomFiles(t, dir, "set", size)
		src := makeTorrent(t, dir+"/set", CreateOptions{PieceLength: 16 << 10}).Source
		var net pipes
		seeder := sessionOver(t, Config{}, net.host())
		if _, err := seeder.Add(src, storage.OpenVerified(dir, testLog(t)), Options{}); err != nil {
			t.Fatal(err)
		}
		store := openStore(t, t.TempDir())
		t.Cleanup(func() { store.Close() })
		start := time.Now()
		leecher := sessionOver(t, Config{Limits: Limits{Download: rate}}, fan{net.host(), 4})
		tr, err := leecher.Add(src, store, Options{Peers: seeder.Listening()})
		if err != nil {
			t.Fatal(err)
		}
		simulateWait(t, tr)
		if took, least := time.Since(start), leastFor(size, rate); took < least || took > least*11/10+time.Second {
			t.Errorf("%d bytes in %v; the rate allows %v", size, took, least)
		}
	})
}
