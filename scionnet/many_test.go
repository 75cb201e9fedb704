package scionnet

import (
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
)

func TestManyAtOnce(t *testing.T) { manyAtOnce(t, 100) }

func TestLargeManyAtOnce(t *testing.T) { manyAtOnce(t, 2000) }

// manyAtOnce keeps working connections open at once.
func manyAtOnce(t *testing.T, count int) {
	h := oneAS(t)
	a, b := listen(t, h, ListenConfig{}), listen(t, h, ListenConfig{limits: limits{2 * count, 2 * count, 2 * count, count}}) // aborted attempts count for a while
	go func() {
		for {
			c, err := b.Accept(t.Context())
			if err != nil {
				return
			}
			go func() {
				defer c.Abort()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	conns := make([]*Conn, count)
	var g sync.WaitGroup
	// More handshakes than processors only wait for each other, and on a busy machine until they
	// count as lost.
	slots := make(chan struct{}, 2*runtime.GOMAXPROCS(0))
	for i := range conns {
		slots <- struct{}{}
		g.Go(func() {
			defer func() { <-slots }()
			var err error
			for range 3 { // thousands of others send keep-alives meanwhile: a busy machine may have no time for one
				if conns[i], err = a.Dial(t.Context(), b.Addr(), h.localPath(), nil); !errors.Is(err, ErrSilent) {
					break
				}
			}
			if err != nil {
				t.Errorf("connection %d: %v", i, err)
			}
		})
	}
	g.Wait()
	if t.Failed() {
		return
	}
	for i, c := range conns {
		if err := echoed(c, byte(i)); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
}

func echoed(c *Conn, b byte) error {
	if _, err := c.Write([]byte{b}); err != nil {
		return err
	}
	got := make([]byte, 1)
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if got[0] != b {
		return errors.New("another connection's data")
	}
	return nil
}
