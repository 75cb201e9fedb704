package scionnet

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// relay forwards packets to a host, like a border router on a new path.
type relay struct {
	socket *net.UDPConn
	passed atomic.Int64
	done   sync.WaitGroup
}

func newRelay(t *testing.T, to netip.AddrPort) *relay {
	t.Helper()
	s, err := net.ListenUDP("udp", &net.UDPAddr{IP: to.Addr().AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	r := &relay{socket: s}
	r.done.Go(func() {
		b := make([]byte, 1<<16)
		for {
			n, err := s.Read(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				r.passed.Add(1)
				_, _ = s.WriteToUDPAddrPort(b[:n], to) // lost, as on a wire
			}
		}
	})
	t.Cleanup(func() { s.Close(); r.done.Wait() })
	return r
}

func (r *relay) addr() netip.AddrPort { return r.socket.LocalAddr().(*net.UDPAddr).AddrPort() }

// stream sends data one way and compares what arrives. It calls between after each chunk.
func stream(t *testing.T, from, to *Conn, between func(chunk int)) {
	t.Helper()
	const chunks, size = 32, 64 << 10
	data := make([]byte, chunks*size)
	rand.NewChaCha8([32]byte{7}).Read(data)
	sent := make(chan error, 1)
	go func() {
		_, err := from.Write(data)
		sent <- err
	}()
	got := make([]byte, size)
	for i := range chunks {
		if _, err := io.ReadFull(to, got); err != nil {
			t.Fatalf("chunk %d: %v", i, err)
		}
		if !bytes.Equal(got, data[i*size:][:size]) {
			t.Fatalf("chunk %d is not what was sent", i)
		}
		between(i)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// TestPathChange moves a live connection to another next hop and back during a transfer, many
// times, as renewed hop fields may do. No data may be lost, and the connection must not notice.
func TestPathChange(t *testing.T) {
	for name, cfg := range packetConns {
		t.Run(name, func(t *testing.T) {
			h := oneAS(t)
			a, b := listen(t, h, cfg), listen(t, h, cfg)
			d, c := pair(t, a, b)
			ping(t, d, c)
			for _, way := range []struct{ from, to *Conn }{{d, c}, {c, d}} {
				direct := way.from.route.way.Load()
				r := newRelay(t, direct.nextHop)
				detour := *direct
				detour.nextHop = r.addr()
				stream(t, way.from, way.to, func(i int) {
					next := *direct
					if i%2 == 0 {
						next = detour
					}
					way.from.route.way.Store(&next)
				})
				way.from.route.way.Store(&detour)
				before := r.passed.Load()
				ping(t, way.from, way.to)
				if r.passed.Load() == before {
					t.Error("nothing came along the new way")
				}
				way.from.route.way.Store(direct)
			}
		})
	}
}

// TestStall silences the path during a transfer, for less than the idle timeout. The transfer must
// then go on.
func TestStall(t *testing.T) {
	t.Parallel()
	for name, open := range roughIO {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := oneAS(t)
			var silent atomic.Bool
			cfg := ListenConfig{packetIO: open(0, &silent)}
			a, b := listen(t, h, cfg), listen(t, h, cfg)
			d, c := pair(t, a, b)
			ping(t, d, c)
			stream(t, d, c, func(i int) {
				if i == 10 {
					silent.Store(true)
					time.AfterFunc(idleTimeout/4, func() { silent.Store(false) })
				}
			})
			ping(t, c, d)
		})
	}
}
