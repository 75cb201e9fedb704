package client

import (
	"io"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"braid/pathsel"
	"braid/storage"
)

// The engine waits 15 s for the other side's handshake. After Close nobody does.
func TestCloseEndsHandshakes(t *testing.T) {
	// isOpenUntil reports whether the connection ends when end is called, and not before.
	isOpenUntil := func(t *testing.T, c net.Conn, end func()) {
		t.Helper()
		var ended time.Time
		go func() {
			_, _ = io.Copy(io.Discard, c) // until it ends
			ended = time.Now()
		}()
		time.Sleep(5 * time.Second)
		if !ended.IsZero() {
			t.Error("the handshake was not waited for")
		}
		closed := time.Now()
		end()
		synctest.Wait()
		if took := ended.Sub(closed); ended.IsZero() || took > time.Second {
			t.Errorf("the connection has ended %v after Close", took)
		}
	}
	t.Run("dialled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var net pipes
			silent := net.host()
			s := sessionOver(t, Config{}, net.host())
			store := openStore(t, t.TempDir())
			t.Cleanup(func() { store.Close() })
			x, err := s.Add(smallTorrent(t), store, Options{Peers: silent.Listening()})
			if err != nil {
				t.Fatal(err)
			}
			c, err := silent.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			isOpenUntil(t, c, x.Close)
		})
	})
	t.Run("accepted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			writeRandom(t, filepath.Join(dir, "file"), 100_000)
			src := makeTorrent(t, filepath.Join(dir, "file"), CreateOptions{}).Source
			var net pipes
			s := sessionOver(t, Config{}, net.host())
			if _, err := s.Add(src, storage.OpenVerified(dir, testLog(t)), Options{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // until the engine accepts connections
			c, err := net.host().Dial(t.Context(), s.Listening()[0], pathsel.Path{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			isOpenUntil(t, c, func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	})
}
