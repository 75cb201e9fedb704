package scionnet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"
	"golang.org/x/sync/errgroup"

	"braid/pathsel"
	"braid/units/await"
)

// fetch returns the body of an answer.
func fetch(ctx context.Context, c HTTPClient, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := c.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}

func TestHTTP(t *testing.T) {
	h := oneAS(t)
	server, err := h.OpenHTTP(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	client, err := h.OpenHTTP(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	began := make(chan struct{})
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a, ok := ClientAddr(r.Context())
			if r.URL.Path == "/slow" {
				close(began)
				<-ctx.Done()
			}
			fmt.Fprint(w, a, ok, r.URL.RawQuery)
		}), 5*time.Second)
	}()
	tr := client.ClientOf(server.Addr(), "")
	get := func(url string) (string, error) { return fetch(t.Context(), tr, url) }
	want := fmt.Sprint(client.Addr(), true, "q=1")
	for range 3 {
		if got, err := get("https://scion4-1-ff00-0-110_127-0-0-1:80/x?q=1"); got != want || err != nil {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	}
	// The server still answers a current request when it stops.
	slow := make(chan error, 1)
	go func() {
		got, err := get("https://x/slow")
		if got == "" {
			err = errors.Join(err, errors.New("no answer"))
		}
		slow <- err
	}()
	<-began
	stop()
	if err := errors.Join(<-slow, <-served); err != nil {
		t.Error(err)
	}
	if err := errors.Join(tr.Close(), client.Close(), server.Close()); err != nil {
		t.Error(err)
	}
}

// A client that begins a request and never ends it is cut off, even if it keeps the connection
// alive. A client with complete requests is not, unless this machine is too busy to make them in
// time.
func TestHTTPSlowClients(t *testing.T) {
	h := oneAS(t)
	server, client, honest := openHTTP(t, h), openHTTP(t, h), openHTTP(t, h)
	server.idle = 500 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "yes") }), 5*time.Second)
	}()
	config := client.config(leastPacket)
	config.KeepAlivePeriod = 100 * time.Millisecond
	path := h.localPath()
	f, err := h.resolvePath(t.Context(), server.Addr(), path)
	if err != nil {
		t.Fatal(err)
	}
	r := h.routes.dial(server.Addr(), f.trail, f.way)
	defer h.routes.unpin(r)
	c, err := client.quic.DialEarly(t.Context(), r.pseudo, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}}, config) //nolint:gosec // like the client
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.OpenStreamSync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte{1, 100, 0, 0}); err != nil { // a HEADERS frame without most of its content
		t.Fatal(err)
	}
	tr := honest.ClientOf(server.Addr(), "")
	for slow, last := true, time.Now(); slow; {
		began := time.Now()
		_, err := fetch(t.Context(), tr, "https://x/")
		if late := time.Since(last) >= server.idle; err != nil && !late {
			t.Fatal("one that asks is cut off: ", err)
		} else if err != nil {
			_ = tr.Close() // its connection is gone
			tr, last = honest.ClientOf(server.Addr(), ""), time.Now()
			continue
		}
		last = began
		select {
		case <-c.Context().Done():
			slow = false
		case <-time.After(20 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("half a request is waited for without end")
		}
	}
	stop()
	if err := errors.Join(<-served, tr.Close()); err != nil {
		t.Error(err)
	}
}

// An answer that waits for data keeps its connection, although neither side has anything to send. The
// connection ends once the answer waits for its client.
func TestHTTPWaits(t *testing.T) {
	t.Parallel()
	h := oneAS(t)
	server, client := openHTTP(t, h), openHTTP(t, h)
	server.idle = 2 * time.Second
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	ended := make(chan string, 100) // the paths of requests
	go func() {
		served <- server.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			done := Waiting(r.Context())
			Waiting(r.Context())() // a shorter answer to another on the same connection
			time.Sleep(2 * server.idle)
			done()
			var err error
			for err == nil {
				_, err = w.Write(make([]byte, 64<<10)) // until the client takes no more
			}
			ended <- r.URL.Path
		}), 5*time.Second)
	}()
	tr := client.ClientOf(server.Addr(), "")
	var req *http.Request
	var res *http.Response
	// On a busy machine the client may wake so late that it has not heard of the server in time.
	n := 0
	await.Success(t, "an answer after a long time", func() (err error) {
		n++
		req, err = http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprint("https://x/", n), nil)
		if err == nil {
			res, err = tr.RoundTrip(req)
		}
		return err
	})
	defer res.Body.Close()
	for await.Value(t, "the end of a connection whose client takes nothing", ended) != req.URL.Path {
	}
	stop()
	_, _ = <-served, tr.Close()
}

// An answer that is cut off because the context of its request ends fails with the context's error.
func TestHTTPCutOff(t *testing.T) {
	h := oneAS(t)
	server, client := openHTTP(t, h), openHTTP(t, h)
	served := make(chan error, 1)
	serving, stop := context.WithCancel(t.Context())
	go func() {
		served <- server.Serve(serving, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("begin"))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}), 0)
	}()
	tr := client.ClientOf(server.Addr(), "")
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, make([]byte, 5)); err != nil {
		t.Error(err)
	}
	cancel()
	if _, err := io.ReadAll(res.Body); !errors.Is(err, context.Canceled) {
		t.Errorf("the answer ends with %v", err)
	}
	stop()
	if err := errors.Join(<-served, tr.Close()); err != nil {
		t.Error(err)
	}
}

// Requests of many clients at the same time take one of the server's few places for connections.
// The connection ends with the last client, and later ones make another.
func TestClientsShareConnection(t *testing.T) {
	h := oneAS(t)
	server, client := openHTTP(t, h), openHTTP(t, h)
	var arrived atomic.Int32
	ctx, stop := context.WithCancel(t.Context())
	all := make(chan struct{})
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if arrived.Add(1) == maxRequests { // as many as one connection takes at a time
				close(all)
			}
			<-all
			fmt.Fprint(w, "yes")
		}), time.Second)
	}()
	get := func() error {
		tr := client.ClientOf(server.Addr(), "")
		defer tr.Close()
		_, err := fetch(ctx, tr, "https://x/")
		return err
	}
	var some errgroup.Group
	for range 2 * maxRequests {
		some.Go(get)
	}
	<-all
	server.places.mu.Lock()
	held := server.places.held
	server.places.mu.Unlock()
	if err := some.Wait(); err != nil || held != 1 {
		t.Errorf("%d connections; %v", held, err)
	}
	if err := get(); err != nil {
		t.Error(err)
	}
	if n := len(client.shared); n != 0 {
		t.Errorf("%d connections are still shared", n)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func openHTTP(t *testing.T, h *Host) *HTTP {
	t.Helper()
	p, err := h.OpenHTTP(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// A client reaches a server over a path that loses all but the smallest packets, and remembers that.
func TestHTTPOverNarrowPath(t *testing.T) {
	t.Parallel()
	h := oneAS(t)
	var narrow atomic.Bool
	narrow.Store(true)
	var ports [2]*HTTP
	for i := range ports {
		p, err := h.OpenHTTP(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		p.quic.Conn = narrowConn{p.packets, &narrow}
		ports[i] = p
	}
	server, client := ports[0], ports[1]
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, http.NotFoundHandler(), 0) }()
	tr := client.ClientOf(server.Addr(), "")
	if _, err := fetch(t.Context(), tr, "https://x/"); err != nil {
		t.Fatal(err)
	}
	if _, known := h.memory.mtu(hostPath{h.ia, h.localIP, ""}, time.Now()); !known {
		t.Error("the path is not known to be narrow")
	}
	stop()
	if err := errors.Join(tr.Close(), <-served); err != nil {
		t.Error(err)
	}
}

// A client tries the only path that avoids a broken link, though many others are shorter.
func TestHTTPAvoidsBrokenLink(t *testing.T) {
	h := oneAS(t)
	first, err := h.listenUDP(0) // the router of the long path
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	client, err := h.OpenHTTP(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	raw := rawPath(t, false, segment{true, false, 1000, [][2]uint16{{0, 41}, {51, 61}, {81, 0}}})
	var paths []found
	add := func(mtu int, out uint64, between ...uint64) {
		f := found{path: pathsel.Path{Src: h.ia, Dst: peerIA, MTU: mtu, Expiry: time.Now().Add(time.Hour)}}
		f.path.Interfaces = append(f.path.Interfaces, pathsel.Interface{IA: h.ia, ID: out})
		for _, id := range between {
			f.path.Interfaces = append(f.path.Interfaces, pathsel.Interface{IA: otherIA, ID: id})
		}
		f.path.Interfaces = append(f.path.Interfaces, pathsel.Interface{IA: peerIA, ID: 81})
		f.trail = trailOf(f.path.Interfaces)
		f.way = &way{raw: raw, expiry: f.path.Expiry, nextHop: first.LocalAddr().(*net.UDPAddr).AddrPort()}
		paths = append(paths, f)
	}
	for i := range uint64(2 * pathsTried) {
		add(leastPacket-1, 41, 51, 61+i) // fails at once
	}
	add(1400, 42, 52, 62, 63, 64)
	h.lookup.add(peerIA, paths)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		tr := client.ClientOf(Addr{peerIA, h.localIP, 1024}, "")
		defer tr.Close()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://x/", nil)
		if err == nil {
			_, err = tr.RoundTrip(r) //nolint:bodyclose // there is no answer
		}
		_ = first.SetReadDeadline(time.Unix(1, 0))
		failed <- err
	}()
	if _, err := first.Read(make([]byte, 2048)); err != nil {
		t.Errorf("the path is not tried: %v", <-failed)
		return
	}
	cancel()
	<-failed
}

// A client uses no path that the policy forbids, and says why there is none.
func TestHTTPObeysPolicy(t *testing.T) {
	h := oneAS(t)
	client := openHTTP(t, h)
	var paths []found
	for i := range 2 {
		f := found{path: pathsel.Path{Src: h.ia, Dst: peerIA, MTU: 500 + i, Expiry: time.Now().Add(time.Hour)}} // fails at once
		f.path.Interfaces = []pathsel.Interface{{IA: h.ia, ID: uint64(41 + i)}, {IA: peerIA, ID: 81}}
		f.trail = trailOf(f.path.Interfaces)
		f.way = &way{raw: rawPath(t, false, segment{true, false, 1000, [][2]uint16{{0, 41}, {81, 0}}}), expiry: f.path.Expiry}
		paths = append(paths, f)
	}
	h.lookup.add(peerIA, paths)
	server := Addr{peerIA, h.localIP, 1024}
	for acl, want := range map[string]string{
		fmt.Sprintf("- %s#41, +", h.ia):      "packets of 501",
		fmt.Sprintf("- %s#42, +", h.ia):      "packets of 500",
		fmt.Sprintf("- %s#81, +", server.IA): fmt.Sprintf("connect to %s: none of the 2 paths to %s is allowed: 2 by acl", server, server.IA),
	} {
		parsed, err := pathsel.ParseACL(acl)
		if err != nil {
			t.Fatal(err)
		}
		client.SetPolicy(pathsel.Policy{ACL: parsed})
		if _, err := client.dial(t.Context(), server, client.tls()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", acl, err, want)
		}
	}
}

// A connection over a path that a new policy forbids ends, but not one whose path the caller chose.
func TestHTTPPolicyEndsConnections(t *testing.T) {
	h := oneAS(t)
	server, client := openHTTP(t, h), openHTTP(t, h)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, http.NotFoundHandler(), 0) }()
	free, chosen := client.ClientOf(server.Addr(), ""), client.ClientOver(server.Addr(), h.localPath())
	get := func(c HTTPClient) error {
		_, err := fetch(t.Context(), c, "https://x/")
		return err
	}
	if err := errors.Join(get(free), get(chosen)); err != nil {
		t.Fatal(err)
	}
	client.SetPolicy(pathsel.Policy{Chosen: map[pathsel.IA][]pathsel.Fingerprint{h.ia: nil}})
	if err := get(free); !errors.As(err, new(*pathsel.RefusedError)) {
		t.Errorf("%v, want that the path is refused", err)
	}
	if err := get(chosen); err != nil {
		t.Error(err)
	}
	client.SetPolicy(pathsel.Policy{})
	if err := errors.Join(get(free), free.Close(), chosen.Close()); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
