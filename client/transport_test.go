package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"braid/scionnet"
	"braid/scionnet/conformance"
	"braid/units/await"
)

// What holds for every transport, whatever is below it.

// transportPair is a transport that dials and one that accepts.
type transportPair struct {
	dialler, acceptor Transport
	keys              bool // peers prove who they are
}

func transportPairs(t *testing.T) map[string]func(*testing.T) transportPair {
	listen := func(ip string) []Peer { return []Peer{mustPeer(t, ip+":0")} }
	closed := func(t *testing.T, p transportPair, err error) transportPair {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []Transport{p.dialler, p.acceptor} {
			t.Cleanup(func() {
				if err := x.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		return p
	}
	return map[string]func(*testing.T) transportPair{
		"tcp": func(t *testing.T) transportPair {
			d, err := openTCP(nil, "", nil, testLog(t))
			a, err2 := openTCP(listen("127.0.0.2"), "", nil, testLog(t))
			return closed(t, transportPair{d, a, false}, errors.Join(err, err2))
		},
		"tls": func(t *testing.T) transportPair {
			d, err := openTCP(nil, "", member(t, "one secret of many"), testLog(t))
			a, err2 := openTCP(listen("127.0.0.2"), "", member(t, "one secret of many"), testLog(t))
			return closed(t, transportPair{d, a, true}, errors.Join(err, err2))
		},
		"quic": func(t *testing.T) transportPair {
			d, err := openQUIC(nil, scionnet.IPConfig{Logger: testLog(t)})
			a, err2 := openQUIC(listen("127.0.0.2"), scionnet.IPConfig{Logger: testLog(t)})
			return closed(t, transportPair{d, a, true}, errors.Join(err, err2))
		},
		"scion": func(t *testing.T) transportPair {
			d, err := openSCION(t.Context(), scionHost(t, "127.0.0.1"), scionnet.ListenConfig{})
			a, err2 := openSCION(t.Context(), scionHost(t, "127.0.0.2"), scionnet.ListenConfig{})
			return closed(t, transportPair{d, a, true}, errors.Join(err, err2))
		},
	}
}

func TestTransports(t *testing.T) {
	for name, open := range transportPairs(t) {
		t.Run(name, func(t *testing.T) {
			for _, c := range conformance.Streams() {
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel() // a closed connection lingers
					d, a := open(t).connect(t)
					c.Test(t, d, a)
				})
			}
			for _, c := range []struct {
				name string
				test func(*testing.T, transportPair)
			}{
				{"LargeBothWays", func(t *testing.T, p transportPair) { largeBothWays(t, p, 1<<20) }},
				{"HalfClose", halfClose},
				{"Measure", measures},
				{"Keys", provenKeys},
				{"ManyConnections", func(t *testing.T, p transportPair) { manyConnections(t, p, 30) }},
				{"NobodyThere", nobodyThere},
				{"ClosedTransport", closedTransport},
			} {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.test(t, open(t))
				})
			}
		})
	}
}

func TestLargeTransports(t *testing.T) {
	for name, open := range transportPairs(t) {
		t.Run(name, func(t *testing.T) {
			t.Run("LargeBothWays", func(t *testing.T) { largeBothWays(t, open(t), 16<<20) })
			t.Run("ManyConnections", func(t *testing.T) { manyConnections(t, open(t), 100) })
		})
	}
}

func (p transportPair) dial(ctx context.Context, want *scionnet.PeerKey) (w Wire, err error) {
	to := p.acceptor.Listening()[0]
	paths, err := p.dialler.Paths(ctx, to)
	if err != nil {
		return nil, err
	}
	err = conformance.Insist(ctx, func() error {
		w, err = p.dialler.Dial(ctx, to, paths[0], want)
		return err
	})
	return w, err
}

// connect dials and accepts, with generous deadlines.
func (p transportPair) connect(t *testing.T) (dialled, accepted Wire) {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), await.Deadline(t))
	defer cancel()
	if !p.dialler.Reaches(p.acceptor.Listening()[0]) || p.dialler.Name() != p.acceptor.Name() {
		t.Fatalf("%s does not serve %v", p.dialler.Name(), p.acceptor.Listening())
	}
	dialled, err := p.dial(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { abort(dialled) })
	if accepted, err = p.acceptor.Accept(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { abort(accepted) })
	if dialled.Peer() != p.acceptor.Listening()[0] || accepted.Peer().origin().Host == "" {
		t.Errorf("peers %v and %v, listening on %v", dialled.Peer(), accepted.Peer(), p.acceptor.Listening())
	}
	for _, w := range []Wire{dialled, accepted} {
		if err := w.SetDeadline(await.Deadline(t)); err != nil {
			t.Fatal(err)
		}
	}
	return dialled, accepted
}

// abort ends a connection without the time that a closed one takes to deliver the rest.
func abort(w Wire) {
	if x, ok := w.(interface{ Abort() }); ok {
		x.Abort()
		return
	}
	w.Close()
}

func say(t *testing.T, w io.Writer, s string) {
	t.Helper()
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, r io.Reader, s string) {
	t.Helper()
	b := make([]byte, len(s))
	if _, err := io.ReadFull(r, b); err != nil || string(b) != s {
		t.Fatalf("read %q, %v, want %q", b, err, s)
	}
}

func noise(seed byte, size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b) // never fails
	return b
}

func largeBothWays(t *testing.T, p transportPair, size int) {
	d, a := p.connect(t)
	if err := conformance.Exchange(d, a, 0, size); err != nil {
		t.Fatal(err)
	}
}

// Who has nothing more to say may still listen.
func halfClose(t *testing.T, p transportPair) {
	d, a := p.connect(t)
	say(t, d, "the question")
	half, _ := d.(interface{ CloseWrite() error })
	if w, ok := d.(*tcpWire); ok {
		half = w.tcp
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(a); err != nil || string(b) != "the question" {
		t.Fatalf("read %q, %v", b, err)
	}
	say(t, a, "the answer")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(d); err != nil || string(b) != "the answer" {
		t.Fatalf("read %q, %v", b, err)
	}
	if _, err := d.Write([]byte("x")); err == nil {
		t.Error("more can be written after the end")
	}
}

// The same is known of a connection over every transport, in the same units.
func measures(t *testing.T, p transportPair) {
	begin := time.Now()
	d, a := p.connect(t)
	// More than one packet, so that something is acknowledged.
	sent := make(chan error, 1)
	data := noise(4, 64<<10)
	go func() {
		_, err := d.Write(data)
		sent <- err
	}()
	if _, err := io.ReadFull(a, make([]byte, len(data))); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	say(t, a, "x")
	hear(t, d, "x")
	m := d.Measure()
	if m.RTT <= 0 || m.RTT > time.Since(begin) || m.MinRTT <= 0 || m.MinRTT > m.RTT*100 || m.Handshake <= 0 || m.PacketsSent == 0 || m.PacketsLost > m.PacketsSent {
		t.Errorf("%+v", m)
	}
	if p.dialler.Name() != "tcp" && m.PacketsReceived == 0 {
		t.Errorf("nothing was received: %+v", m)
	}
	if d.Path().Fingerprint != "" || a.Path().Fingerprint != "" {
		t.Error("a path with a name where there is one way")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	_ = d.Measure() // whatever it says, it does not fail
}

func provenKeys(t *testing.T, p transportPair) {
	d, a := p.connect(t)
	if !p.keys {
		if d.Key() != nil || a.Key() != nil {
			t.Error("a key without a proof")
		}
		return
	}
	if d.Key() == nil || a.Key() == nil || *d.Key() == *a.Key() {
		t.Fatalf("keys %v and %v", d.Key(), a.Key())
	}
	ctx, cancel := context.WithDeadline(t.Context(), await.Deadline(t))
	defer cancel()
	again, err := p.dial(ctx, d.Key())
	if err != nil {
		t.Fatal(err)
	}
	defer abort(again)
	if *again.Key() != *d.Key() {
		t.Error("another key the second time")
	}
	var wrong *scionnet.WrongKeyError
	if _, err := p.dial(ctx, a.Key()); !errors.As(err, &wrong) {
		t.Errorf("the wrong peer: %v", err)
	}
}

func manyConnections(t *testing.T, p transportPair, count int) {
	// On one processor all handshakes can be through before the acceptor runs.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ctx, cancel := context.WithDeadline(t.Context(), await.Deadline(t))
	defer cancel()
	go func() {
		for {
			w, err := p.acceptor.Accept(ctx)
			if err != nil {
				return
			}
			go func() {
				defer w.Close()
				_, _ = io.Copy(struct{ io.Writer }{w}, struct{ io.Reader }{w}) // until the dialler ends
			}()
		}
	}()
	echo := func(i int) error {
		w, err := p.dial(ctx, nil)
		if err != nil {
			return err
		}
		defer w.Close()
		mine := noise(byte(i), 10_000)
		if _, err := w.Write(mine); err != nil {
			return err
		}
		got := make([]byte, len(mine))
		if _, err := io.ReadFull(w, got); err != nil {
			return err
		}
		if !bytes.Equal(got, mine) {
			return fmt.Errorf("connection %d got what is not its own", i)
		}
		return nil
	}
	errs := make(chan error, count)
	for i := range count {
		go func() { errs <- conformance.Insist(ctx, func() error { return echo(i) }) }()
	}
	for range count {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func nobodyThere(t *testing.T, p transportPair) {
	ctx, cancel := context.WithCancel(t.Context())
	to := p.acceptor.Listening()[0]
	if err := p.acceptor.Close(); err != nil {
		t.Fatal(err)
	}
	paths, err := p.dialler.Paths(ctx, to)
	if err != nil {
		t.Fatal(err)
	}
	go cancel()
	if w, err := p.dialler.Dial(ctx, to, paths[0], nil); err == nil {
		w.Close()
		t.Error("somebody answers at a closed address")
	}
}

func closedTransport(t *testing.T, p transportPair) {
	if err := p.acceptor.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.acceptor.Accept(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed transport accepts: %v", err)
	}
}
