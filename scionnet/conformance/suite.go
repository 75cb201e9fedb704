// Package conformance is the test suite for all packet connections of scionnet. It runs inside one
// AS and through real routers.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	"braid/pathsel"
	"braid/scionnet"
	"braid/units/await"
)

// Pair is two endpoints and the paths from the first to the second. The suite closes neither.
type Pair struct {
	Dialer, Acceptor *scionnet.Endpoint
	Paths            []pathsel.Path
	// Short asks for less data, if the race detector or a slow link would take too long.
	Short bool
}

// Run runs the suite. start is called once for each test and cleans up after itself.
func Run(t *testing.T, start func(t *testing.T) Pair) {
	for _, c := range Streams() {
		t.Run(c.Name, func(t *testing.T) {
			p := start(t)
			d, a := Connect(t, p, p.Paths[0])
			c.Test(t, d, a)
		})
	}
	for _, c := range []struct {
		name string
		test func(*testing.T, Pair)
	}{
		{"LargeBothWays", largeBothWays},
		{"EveryPathAtOnce", everyPathAtOnce},
		{"Keys", keys},
		{"WrongKey", wrongKey},
		{"CloseWhileSending", closeWhileSending},
		{"CloseTwice", closeTwice},
		{"AbortIsNoEOF", abortIsNoEOF},
		{"EndpointCloseIsNoEOF", endpointCloseIsNoEOF},
		{"Stats", stats},
		{"ManyShortConnections", manyShortConnections},
		{"DialCancelled", dialCancelled},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, start(t)) })
	}
}

// RunLossy runs the tests whose outcome must be the same on a path that damages packets and loses
// many of them.
func RunLossy(t *testing.T, start func(t *testing.T) Pair) {
	t.Run("CloseDelivers", func(t *testing.T) {
		p := start(t)
		d, a := Connect(t, p, p.Paths[0])
		closeDelivers(t, d, a)
	})
	t.Run("CloseWhileSending", func(t *testing.T) { closeWhileSending(t, start(t)) })
	t.Run("SeveralAtOnce", func(t *testing.T) {
		p := start(t)
		p.Paths = slices.Repeat(p.Paths, 4)
		everyPathAtOnce(t, p)
	})
}

// Connect dials over a path and accepts. Both connections are aborted at the end of the test.
func Connect(t *testing.T, p Pair, path pathsel.Path) (dialled, accepted *scionnet.Conn) {
	t.Helper()
	return connect(t, p, path, nil)
}

func connect(t *testing.T, p Pair, path pathsel.Path, want *scionnet.PeerKey) (dialled, accepted *scionnet.Conn) {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), await.Deadline(t))
	defer cancel()
	err := Insist(ctx, func() (err error) {
		dialled, err = p.Dialer.Dial(ctx, p.Acceptor.Addr(), path, want)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dialled.Abort)
	if accepted, err = p.Acceptor.Accept(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(accepted.Abort)
	for _, c := range []*scionnet.Conn{dialled, accepted} {
		if err := c.SetDeadline(await.Deadline(t)); err != nil {
			t.Fatal(err)
		}
	}
	return dialled, accepted
}

func wantError(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("error %v, want %v", got, want)
	}
}

func (p Pair) size() int {
	if p.Short {
		return 1 << 20
	}
	return 8 << 20
}

func largeBothWays(t *testing.T, p Pair) {
	d, a := Connect(t, p, p.Paths[0])
	if err := Exchange(d, a, 0, p.size()); err != nil {
		t.Fatal(err)
	}
}

func everyPathAtOnce(t *testing.T, p Pair) {
	const each = 2 // connections on a path
	errs := make(chan error, each*len(p.Paths))
	n := uint64(0)
	for _, path := range p.Paths {
		for range each {
			d, a := Connect(t, p, path)
			if d.Path().Fingerprint != path.Fingerprint {
				t.Errorf("dialled over %s, is on %s", path.Fingerprint, d.Path().Fingerprint)
			}
			n++
			seed := n
			go func() { errs <- Exchange(d, a, seed, p.size()/8) }()
		}
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func keys(t *testing.T, p Pair) {
	key := p.Acceptor.Key()
	d, a := connect(t, p, p.Paths[0], &key)
	if d.PeerKey() != p.Acceptor.Key() || a.PeerKey() != p.Dialer.Key() {
		t.Errorf("keys %s and %s, want %s and %s", d.PeerKey(), a.PeerKey(), p.Acceptor.Key(), p.Dialer.Key())
	}
	if d.RemoteSCION() != p.Acceptor.Addr() || a.RemoteSCION() != p.Dialer.Addr() {
		t.Errorf("addresses %s and %s, want %s and %s",
			d.RemoteSCION(), a.RemoteSCION(), p.Acceptor.Addr(), p.Dialer.Addr())
	}
}

func wrongKey(t *testing.T, p Pair) {
	ctx, cancel := context.WithDeadline(t.Context(), await.Deadline(t))
	defer cancel()
	other := p.Dialer.Key()
	err := Insist(ctx, func() error {
		_, err := p.Dialer.Dial(ctx, p.Acceptor.Addr(), p.Paths[0], &other)
		return err
	})
	var wrong *scionnet.WrongKeyError
	if !errors.As(err, &wrong) || wrong.Want != other || wrong.Got != p.Acceptor.Key() {
		t.Fatalf("error %v, want a WrongKeyError with both keys", err)
	}
}

// lingers is how long a closed connection delivers what was written before. A busy machine may need
// more. Then the reader gets ErrReset, and must not take the data for complete.
const lingers = 2 * time.Second

// gaveUp tells whether a reader's error means that the closed connection has used all of its time.
func gaveUp(err error, closing time.Time) bool {
	return errors.Is(err, scionnet.ErrReset) && time.Since(closing) >= lingers
}

func closeWhileSending(t *testing.T, p Pair) {
	d, a := Connect(t, p, p.Paths[0])
	sent := make(chan int, 1)
	go func() {
		b := make([]byte, 64<<10)
		total := 0
		for {
			n, err := d.Write(b)
			total += n
			if err != nil {
				sent <- total
				return
			}
		}
	}()
	if _, err := io.ReadFull(a, make([]byte, 256<<10)); err != nil { // it is under way
		t.Fatal(err)
	}
	closing := time.Now()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.Copy(io.Discard, a)
	if gaveUp(err, closing) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, n := 256<<10+int(rest), <-sent; got != n {
		t.Fatalf("%d bytes arrived, Write said %d", got, n)
	}
}

func closeTwice(t *testing.T, p Pair) {
	d, _ := Connect(t, p, p.Paths[0])
	for range 2 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func abortIsNoEOF(t *testing.T, p Pair) {
	d, a := Connect(t, p, p.Paths[0])
	write(t, d, "x")
	want(t, a, "x")
	d.Abort()
	_, err := a.Read(make([]byte, 1))
	wantError(t, err, scionnet.ErrReset)
	for range 100 { // the first writes may succeed before the end is known
		if _, err = a.Write(make([]byte, 64<<10)); err != nil {
			break
		}
	}
	wantError(t, err, scionnet.ErrReset)
}

func endpointCloseIsNoEOF(t *testing.T, p Pair) {
	d, a := Connect(t, p, p.Paths[0])
	write(t, d, "x")
	want(t, a, "x")
	if err := p.Dialer.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := a.Read(make([]byte, 1))
	wantError(t, err, scionnet.ErrReset)
	_, err = p.Dialer.Accept(t.Context())
	if err == nil {
		t.Error("a closed endpoint accepts")
	}
}

func stats(t *testing.T, p Pair) {
	d, a := Connect(t, p, p.Paths[0])
	write(t, d, "12345")
	want(t, a, "12345")
	write(t, a, "123")
	want(t, d, "123")
	s, r := d.Stats(), a.Stats()
	if s.BytesWritten != 5 || s.BytesRead != 3 || r.BytesWritten != 3 || r.BytesRead != 5 {
		t.Errorf("bytes: %+v and %+v", s, r)
	}
	if s.RTT <= 0 || s.MinRTT <= 0 || s.Handshake <= 0 || s.PacketsSent == 0 || s.PacketSize < 1200 {
		t.Errorf("dialler: %+v", s)
	}
	if r.PacketSize != s.PacketSize {
		t.Errorf("packets of %d bytes one way and %d the other", s.PacketSize, r.PacketSize)
	}
}

func manyShortConnections(t *testing.T, p Pair) {
	count := 1000
	if p.Short {
		count = 40
	}
	ctx, cancel := context.WithDeadline(t.Context(), await.Deadline(t))
	defer cancel()
	go func() {
		for {
			c, err := p.Acceptor.Accept(ctx)
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c) // until either side closes
				c.Close()
			}()
		}
	}()
	errs := make(chan error, count)
	// More handshakes than processors only wait for each other, and on a busy machine until they
	// count as lost.
	slots := make(chan struct{}, 2*runtime.GOMAXPROCS(0))
	for i := range count {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			path, text := p.Paths[i%len(p.Paths)], fmt.Sprintf("hello %d", i)
			errs <- Insist(ctx, func() error { return greet(ctx, p, path, text) })
		}()
	}
	for range count {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// Insist repeats an exchange over a new connection as long as the machine is too busy to keep up
// with the timeouts of connections.
func Insist(ctx context.Context, exchange func() error) error {
	// An acceptor waits that long for a handshake. A refusal for want of room comes at once.
	const handshake = 5 * time.Second
	for {
		began := time.Now()
		err := exchange()
		late := errors.Is(err, scionnet.ErrRefused) && time.Since(began) >= handshake
		if !late && !errors.Is(err, scionnet.ErrSilent) || ctx.Err() != nil {
			return err
		}
	}
}

func greet(ctx context.Context, p Pair, path pathsel.Path, s string) error {
	c, err := p.Dialer.Dial(ctx, p.Acceptor.Addr(), path, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, s); err != nil {
		return err
	}
	b := make([]byte, len(s))
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if string(b) != s {
		return fmt.Errorf("echo %q of %q", b, s)
	}
	return nil
}

func dialCancelled(t *testing.T, p Pair) {
	ctx, cancel := context.WithCancel(t.Context())
	nobody := p.Acceptor.Addr()
	nobody.Port ^= 1 // almost surely unused; otherwise it does not speak QUIC
	go cancel()
	_, err := p.Dialer.Dial(ctx, nobody, p.Paths[0], nil)
	wantError(t, err, context.Canceled)
}
