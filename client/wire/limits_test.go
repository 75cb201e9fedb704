package wire

import (
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"braid/pathsel"
	"braid/scionnet"
)

// pipeConn is one end of a pipe, with a peer and a path.
type pipeConn struct {
	net.Conn
	host string
	path atomic.Pointer[pathsel.Path]

	claimed atomic.Bool // the peer's address is not proven
}

func (w *pipeConn) Key() *scionnet.PeerKey { return nil }
func (w *pipeConn) Measure() Measurement   { return Measurement{} }

func (w *pipeConn) Origin() pathsel.Origin {
	if w.claimed.Load() {
		return pathsel.OriginUnproven("")
	}
	if ip, err := netip.ParseAddr(w.host); err == nil {
		return pathsel.OriginIP(ip, "")
	}
	return pathsel.Origin{Net: w.host, Host: w.host}
}

func (w *pipeConn) Path() pathsel.Path {
	if p := w.path.Load(); p != nil {
		return *p
	}
	return pathsel.Path{}
}

func pipeTo(t *testing.T, host string) (*pipeConn, net.Conn) {
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	return &pipeConn{Conn: a, host: host}, b
}

func through(ids ...uint64) *pathsel.Path {
	p := &pathsel.Path{Fingerprint: "x"}
	for _, id := range ids {
		p.Interfaces = append(p.Interfaces, pathsel.Interface{IA: 1<<48 | 1, ID: id}, pathsel.Interface{IA: 2<<48 | 2, ID: id})
	}
	return p
}

func pattern(t *testing.T, s string) pathsel.Pattern {
	t.Helper()
	p, err := pathsel.ParsePattern(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sendOver sends without end and counts what arrives; receiveOver likewise.
func sendOver(w Conn, other net.Conn) *atomic.Int64 {
	var n atomic.Int64
	go func() {
		b := make([]byte, 40_000)
		for {
			m, err := other.Read(b)
			n.Add(int64(m))
			if err != nil {
				return
			}
		}
	}()
	go func() {
		for b := make([]byte, 40_000); ; {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	}()
	return &n
}

func receiveOver(w Conn, other net.Conn) *atomic.Int64 {
	var n atomic.Int64
	go func() {
		b := make([]byte, 40_000)
		for {
			if _, err := other.Write(b); err != nil {
				return
			}
		}
	}()
	go func() {
		b := make([]byte, 128<<10)
		for {
			m, err := w.Read(b)
			n.Add(int64(m))
			if err != nil {
				return
			}
		}
	}()
	return &n
}

func closeTo(got int64, want float64) bool {
	return float64(got) > 0.95*want && float64(got) < 1.05*want
}

// Both directions have their rates, and a peer with eight connections has as much as one with one.
func TestLimitsOverWires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(Limits{Upload: 80e6, Download: 8e6})
		var sent, received, many []*atomic.Int64
		for i := range 9 {
			peer := "10.0.0.1"
			if i > 0 {
				peer = "10.0.0.2"
			}
			raw, other := pipeTo(t, peer)
			w := l.wrap(raw)
			defer w.Close()
			n := sendOver(w, other)
			if sent = append(sent, n); i > 0 {
				many = append(many, n)
			}
			raw, other = pipeTo(t, peer)
			w = l.wrap(raw)
			defer w.Close()
			received = append(received, receiveOver(w, other))
		}
		time.Sleep(10 * time.Second)
		sum := func(c []*atomic.Int64) (n int64) {
			for _, x := range c {
				n += x.Load()
			}
			return n
		}
		if n := sum(sent); !closeTo(n, 100e6) {
			t.Errorf("%d bytes sent in 10 s, want 10 MB/s", n)
		}
		if n := sum(received); !closeTo(n, 10e6) {
			t.Errorf("%d bytes received in 10 s, want 1 MB/s", n)
		}
		if x, y := sent[0].Load(), sum(many); !closeTo(x, float64(y)) {
			t.Errorf("one connection has sent %d bytes, eight of the other peer %d", x, y)
		}
	})
}

// A path's limit holds for the connections over it, beside the one for all, and leaves the others
// their rate.
func TestPathLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(Limits{Upload: 8e6, Paths: []PathLimit{{pattern(t, "1-1#1"), 800e3}, {pattern(t, "1"), 80e6}, {pattern(t, "3"), MinRate}}})
		counts := map[string]*atomic.Int64{}
		for name, path := range map[string]*pathsel.Path{"narrow": through(1), "both": through(2, 1), "free": through(2), "tcp": nil} {
			raw, other := pipeTo(t, name)
			raw.path.Store(path)
			w := l.wrap(raw)
			defer w.Close()
			counts[name] = sendOver(w, other)
		}
		time.Sleep(10 * time.Second)
		for name, want := range map[string]float64{"narrow": 500e3, "both": 500e3, "free": 4.5e6, "tcp": 4.5e6} {
			if n := counts[name].Load(); !closeTo(n, want) {
				t.Errorf("%s: %d bytes in 10 s, want %.0f", name, n, want)
			}
		}
	})
}

// An accepted connection learns its path late, and is limited from then on.
func TestLimitOfPathThatIsKnownLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(Limits{Download: 80e6, Paths: []PathLimit{{pattern(t, "2-2"), 800e3}}})
		raw, other := pipeTo(t, "a")
		w := l.wrap(raw)
		defer w.Close()
		n := receiveOver(w, other)
		time.Sleep(10 * time.Second)
		if !closeTo(n.Load(), 100e6) {
			t.Errorf("%d bytes before the path is known", n.Load())
		}
		raw.path.Store(through(7))
		time.Sleep(2 * lookAgain)
		before := n.Load()
		time.Sleep(10 * time.Second)
		if d := n.Load() - before; !closeTo(d, 1e6) {
			t.Errorf("%d bytes in 10 s over a path of 100 kB/s", d)
		}
	})
}

// Connections that only claim an address share what one peer has, until it is proven.
func TestLimitOfClaimedAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(Limits{Upload: 8e6})
		var wires []*pipeConn
		var sent []*atomic.Int64
		for i := range 5 {
			raw, other := pipeTo(t, "10.0."+string(rune('0'+i))+".1")
			raw.claimed.Store(i > 0)
			w := l.wrap(raw)
			defer w.Close()
			wires, sent = append(wires, raw), append(sent, sendOver(w, other))
		}
		time.Sleep(10 * time.Second)
		if n := sent[0].Load(); !closeTo(n, 5e6) {
			t.Errorf("the proven peer had %d bytes of 10 MB", n)
		}
		wires[1].claimed.Store(false)
		time.Sleep(2 * lookAgain)
		before := sent[1].Load()
		time.Sleep(9 * time.Second)
		if n := sent[1].Load() - before; !closeTo(n, 3e6) {
			t.Errorf("the peer that was proven later had %d bytes of 9 MB", n)
		}
	})
}

// Close wakes a write and a read that wait for their turn, at once, and what others wait for goes
// on.
func TestCloseWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(Limits{Upload: MinRate, Download: MinRate})
		raw, other := pipeTo(t, "a")
		w := l.wrap(raw)
		go func() { _, _ = io.Copy(io.Discard, other) }()
		go func() { _, _ = other.Write(make([]byte, 100_000)) }()
		results := make(chan error, 2)
		go func() {
			_, err := w.Write(make([]byte, 100_000))
			results <- err
		}()
		go func() {
			_, err := io.Copy(io.Discard, struct{ io.Reader }{w})
			results <- err
		}()
		time.Sleep(3 * time.Second)
		start := time.Now()
		w.Close()
		for range 2 {
			if err := <-results; err == nil {
				t.Error("a closed connection was read or written to its end")
			}
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("woken after %v", d)
		}
		if _, err := w.Write([]byte("x")); err == nil {
			t.Error("written after Close")
		}
		if r := l.rules[0]; len(r.up.share.root.below)+len(r.down.share.root.below) != 0 {
			t.Error("what is closed is still in the queue")
		}
		// The next peer is not held up by what the closed one had claimed.
		raw, other = pipeTo(t, "b")
		w = l.wrap(raw)
		defer w.Close()
		n := sendOver(w, other)
		time.Sleep(80 * time.Second)
		if !closeTo(n.Load(), 100_000) {
			t.Errorf("%d bytes in 80 s, want 100000", n.Load())
		}
	})
}

func TestNoLimitCostsNothing(t *testing.T) {
	raw, other := pipeTo(t, "a")
	if w := NewLimiter(Limits{}).wrap(raw); w != Conn(raw) {
		t.Errorf("a connection without limits is a %T", w)
	}
	if w := NewLimiter(Limits{Download: 1e6}).wrap(raw); w == Conn(raw) {
		t.Error("a limit is passed over")
	}
	if (Limits{Paths: []PathLimit{{pattern(t, "1-1#2"), 5}}}).Validate() == nil {
		t.Error("a limit below the lowest is taken")
	}
	go func() { _, _ = other.Read(nil) }()
	if n, err := NewLimiter(Limits{Upload: 1e6}).wrap(raw).Write(nil); n != 0 || err != nil {
		t.Errorf("nothing written: %d, %v", n, err)
	}
}

// Limits that change hold for open connections; a torrent's limits hold in addition to the
// session's.
func TestLimitsThatChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session, torrent := &Limiter{}, &Limiter{}
		var sent []*atomic.Int64
		for _, name := range []string{"a", "b"} {
			raw, other := pipeTo(t, name)
			w := session.wrap(raw)
			defer w.Close()
			if name == "b" {
				(&Link{below: &counted{Conn: w}}).LimitBy(torrent)
			}
			n := sendOver(w, other)
			sent = append(sent, n)
			session.Set(Limits{Upload: 8e6})
		}
		for _, step := range []struct {
			change func()
			want   []float64 // bytes in 10 s
		}{
			{func() {}, []float64{5e6, 5e6}},
			{func() { torrent.Set(Limits{Upload: 800e3}) }, []float64{9e6, 1e6}},
			{func() { session.Set(Limits{Upload: 80e6}) }, []float64{99e6, 1e6}},
			{func() { torrent.Set(Limits{Download: MinRate}) }, []float64{50e6, 50e6}},
			{func() { torrent.Set(Limits{Upload: 160e6}); torrent.SetAlone(true) }, []float64{100e6, 200e6}},
			{func() { torrent.Set(Limits{}); torrent.SetAlone(false) }, []float64{50e6, 50e6}},
			{func() { session.Set(Limits{Upload: 16e3, Download: 8e6}) }, []float64{10e3, 10e3}},
			{func() { session.Set(Limits{Upload: 8e6}) }, []float64{5e6, 5e6}},
		} {
			step.change()
			time.Sleep(5 * time.Second) // until what waited at the old limits is through
			before := []int64{sent[0].Load(), sent[1].Load()}
			time.Sleep(10 * time.Second)
			for i, want := range step.want {
				if n := sent[i].Load() - before[i]; !closeTo(n, want) && !(want < 1e5 && float64(n) < 3*want) {
					t.Errorf("connection %d: %d bytes in 10 s, want %.0f of %v", i, n, want, step.want)
				}
			}
		}
		if x := session.rules[0].up.share.root.below; len(x) != 2 {
			t.Errorf("%d peers in the queue", len(x))
		}
	})
}

// Connections that wait for their turns at a low rate stop waiting when the rate is changed.
func TestChangedLimitHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(Limits{Upload: MinRate})
		var sent []*atomic.Int64
		for range 100 {
			raw, other := pipeTo(t, "a")
			w := l.wrap(raw)
			defer w.Close()
			sent = append(sent, sendOver(w, other))
		}
		time.Sleep(time.Second)
		before := make([]int64, len(sent))
		for i, n := range sent {
			before[i] = n.Load()
		}
		l.Set(Limits{Upload: 80e6})
		time.Sleep(time.Second)
		for i, n := range sent {
			if got := n.Load() - before[i]; got < 50_000 {
				t.Errorf("connection %d: %d bytes in a second", i, got)
			}
		}
	})
}

// A connection that is being closed may still read what had arrived, and asks the limit for it
// again and again. Nothing waits then: a limit that does would stop every connection that it holds
// for.
func TestClosedConnectionHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, closed := newLimit(8e6), make(chan struct{})
		f := l.join(pathsel.Origin{})
		if err := l.wait(f, 1, closed); err != nil {
			t.Fatal(err)
		}
		close(closed)
		for range 100 {
			if err := l.wait(f, 1, closed); err == nil {
				t.Fatal("a closed connection got a turn")
			}
		}
		l.leave(f)
		if err := l.wait(l.join(pathsel.Origin{}), 1, nil); err != nil {
			t.Error(err)
		}
	})
}
