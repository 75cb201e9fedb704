package client

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The engine waits 15 s for the other side's handshake. After Close nobody does.
func TestCloseEndsHandshakes(t *testing.T) {
	dir := t.TempDir()
	writeRandom(t, filepath.Join(dir, "file"), 100_000)
	src := makeTorrent(t, filepath.Join(dir, "file"), CreateOptions{}).Source
	isEnded := func(c net.Conn) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the connection is still open")
		}
		c.Close()
	}
	t.Run("dialled", func(t *testing.T) {
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		s := openSession(t, Config{})
		x, err := s.Add(src, openStore(t, t.TempDir()), Options{Peers: []Peer{tcpPeer(silent.Addr())}})
		if err != nil {
			t.Fatal(err)
		}
		c, err := silent.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 68)); err != nil {
			t.Fatal(err)
		}
		x.Close()
		isEnded(c)
	})
	t.Run("accepted", func(t *testing.T) {
		s := seed(t, src, dir)
		for { // until the engine accepts connections
			c, err := net.Dial("tcp", s.Listening()[0].String())
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(time.Second / 2))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				c.Close()
				continue
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			isEnded(c)
			return
		}
	})
}
