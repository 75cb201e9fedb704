package send

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anacrolix/torrent/metainfo"

	"braid/client"
	"braid/scionnet"
)

func member(t *testing.T, k Key) *scionnet.Identity {
	t.Helper()
	id, err := k.Member()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Who has the key hears of each new line, also while it waits; nobody else hears anything.
func TestNews(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	line := Line{Key: Key{1}}
	n, served := NewNews(), make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { served <- n.ServeTCP(ctx, l, member(t, line.Key)) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	at, err := client.ParsePeer(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	over := OverTCP(member(t, line.Key))
	defer over.CloseIdleConnections()
	ask := func(over http.RoundTripper, not metainfo.Hash) (Line, bool, error) {
		return Ask(t.Context(), over, line, at, not)
	}
	first, second := line, line
	first.InfoHash[0], second.InfoHash[0] = 1, 2
	second.Peers = peers(t, "192.0.2.1:80")
	n.Publish(first)
	got, changed, err := ask(over, metainfo.Hash{})
	if err != nil || !changed || got.InfoHash != first.InfoHash {
		t.Fatalf("%+v, %v, %v", got, changed, err)
	}
	go n.Publish(second)
	got, changed, err = ask(over, first.InfoHash)
	if err != nil || !changed || got.InfoHash != second.InfoHash || len(got.Peers) != 2 || got.Peers[0].String() != "127.0.0.1:80" {
		t.Errorf("%+v, %v, %v", got, changed, err)
	}
	stranger := OverTCP(member(t, Key{2}))
	defer stranger.CloseIdleConnections()
	if got, _, err := ask(stranger, metainfo.Hash{}); err == nil {
		t.Errorf("a stranger hears %+v", got)
	}
	second.Key = Key{3}
	n.Publish(second)
	if got, _, err := ask(over, first.InfoHash); err == nil {
		t.Errorf("a line with another key is accepted: %+v", got)
	}
}

// pipes is a listener whose connections are made in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	p <- theirs
	return ours, nil
}

// Strangers who hold connections open do not keep a receiver waiting.
func TestNewsAmongStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, served := make(pipes), make(chan error)
		line, n := Line{Key: Key{1}, InfoHash: metainfo.Hash{1}}, NewNews()
		n.Publish(line)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { served <- n.ServeTCP(ctx, l, member(t, line.Key)) }()
		for range maxNewsConnections {
			c, err := l.dial(ctx, "", "")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		over, began := OverTCP(member(t, line.Key)), time.Now()
		over.DialContext = l.dial
		if _, _, err := Ask(ctx, over, line, peers(t, "192.0.2.1:80")[0], metainfo.Hash{}); err != nil || time.Since(began) > time.Second {
			t.Errorf("answered after %v: %v", time.Since(began), err)
		}
		over.CloseIdleConnections()
		cancel()
		close(l)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// Files that are being written are left alone.
func TestAtRest(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	write := func(text string, at int64) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, time.Time{}, time.Unix(at, 0)); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		f, began := Files{Root: dir}, time.Now()
		write("a", 1)
		go func() {
			for i := range 5 {
				time.Sleep(rest - 100*time.Millisecond)
				write("a", int64(i+2))
			}
		}()
		first, err := f.AtRest(t.Context(), "", func(error) {})
		if took := time.Since(began); err != nil || took < 5*(rest-100*time.Millisecond)+rest/2 {
			t.Errorf("published after %v, %v", took, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := f.AtRest(ctx, first, func(error) {}); err == nil {
			t.Error("published without a change")
		}
	})
}
