package linkemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"braid/units/await"
)

var wires = []struct {
	name string
	open func([2]Endpoint, clock) (wire, error)
}{
	{"system", openWire},
	{"portable", newPortableWire},
}

// onEachWire runs a test with every implementation of wire, over both IP versions.
func onEachWire(t *testing.T, test func(t *testing.T, link func(Config) (*Link, [2]*net.UDPConn))) {
	for _, w := range wires {
		for _, host := range []string{"127.0.0.1", "::1"} {
			t.Run(w.name+"/"+host, func(t *testing.T) {
				test(t, func(cfg Config) (*Link, [2]*net.UDPConn) { return startLink(t, w.open, host, cfg) })
			})
		}
	}
}

// startLink runs a link between two sockets that stand for the routers.
func startLink(t *testing.T, open func([2]Endpoint, clock) (wire, error), host string, cfg Config) (*Link, [2]*net.UDPConn) {
	t.Helper()
	l, routers := bindLink(t, open, host, cfg)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := l.Run(t.Context()); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(wg.Wait)
	return l, routers
}

// bindLink makes a link that does not run.
func bindLink(t *testing.T, open func([2]Endpoint, clock) (wire, error), host string, cfg Config) (*Link, [2]*net.UDPConn) {
	t.Helper()
	var routers [2]*net.UDPConn
	var ends [2]Endpoint
	addrs := free(t, host, 4)
	for i := range ends {
		local, router := addrs[2*i], addrs[2*i+1]
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(router), net.UDPAddrFromAddrPort(local))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.SetReadDeadline(await.Deadline(t)); err != nil {
			t.Fatal(err)
		}
		routers[i], ends[i] = conn, Endpoint{Local: local, Router: router}
	}
	l, err := newLink(open, ends[0], ends[1], cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l, routers
}

// free returns different addresses that nobody is bound to.
func free(t *testing.T, host string, n int) []netip.AddrPort {
	t.Helper()
	addrs, err := freeAddrs(host, n)
	if err != nil {
		t.Skipf("no loopback for %s: %v", host, err)
	}
	return addrs
}

// exchange sends packets of the sizes from one router, a few at a time so that no socket buffer
// overflows, and expects them at the other one: all, in order, unchanged.
func exchange(t *testing.T, from, to *net.UDPConn, sizes []int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 1<<16)
	for len(sizes) > 0 {
		var sent [][]byte
		for _, size := range sizes[:min(8, len(sizes))] {
			p := make([]byte, size)
			for i := range p {
				p[i] = byte(r.Uint32())
			}
			if _, err := from.Write(p); err != nil {
				t.Fatal(err)
			}
			sent = append(sent, p)
		}
		for i, want := range sent {
			n, err := to.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(buf[:n], want) {
				t.Fatalf("packet %d: got %d bytes, want %d; or they differ", i, n, len(want))
			}
		}
		sizes = sizes[len(sent):]
	}
}

var mixedSizes = []int{1, 1400, 1400, 1400, 700, 0, 1400, 9000, 9000, 100, 100, 100, 1, 2, 3, 60000, 60000, 65000, 1200}

func TestPassesPacketsUnchanged(t *testing.T) {
	configs := []Config{
		{},
		{Rate: 1e9},
		{Delay: 3 * time.Millisecond, Jitter: 2 * time.Millisecond},
		{Rate: 500e6, Delay: 2 * time.Millisecond, QueueBytes: 1 << 20},
	}
	onEachWire(t, func(t *testing.T, link func(Config) (*Link, [2]*net.UDPConn)) {
		for _, cfg := range configs {
			t.Run(cfg.String(), func(t *testing.T) {
				l, routers := link(cfg)
				exchange(t, routers[0], routers[1], mixedSizes)
				exchange(t, routers[1], routers[0], mixedSizes)
				total := 0
				for _, n := range mixedSizes {
					total += n
				}
				ab, ba := l.Counters()
				for _, c := range []Counters{ab, ba} {
					c.Late = 0 // up to the machine
					if want := (Counters{Packets: uint64(len(mixedSizes)), Bytes: uint64(total)}); c != want {
						t.Errorf("counters %+v, want %+v", c, want)
					}
				}
			})
		}
	})
}

// Routers with segmentation offload send and take runs of packets in one piece; the link must see
// each packet, and neither join nor cut any.
func TestRunsOfPackets(t *testing.T) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			l, ends, err := openBench(w.open, Config{Delay: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			defer ends.close()
			go l.Run(t.Context())
			var sent [][]byte
			for i, size := range slices.Concat(slices.Repeat([]int{1400}, 100), mixedSizes[:14], slices.Repeat([]int{1}, 70)) {
				sent = append(sent, bytes.Repeat([]byte{byte(i)}, size))
			}
			for taken := 0; taken < len(sent); {
				taken += ends.send(0, sent[taken:])
			}
			got := 0
			for deadline := l.clock.now() + time.Until(await.Deadline(t)); got < len(sent); {
				if l.clock.now() > deadline {
					t.Fatalf("%d of %d packets came", got, len(sent))
				}
				ends.wait(deadline, true)
				if err := ends.receive(1, func(p []byte, _ instant) {
					if got == len(sent) || !bytes.Equal(p, sent[got]) {
						t.Fatalf("packet %d differs: %d bytes", got, len(p))
					}
					got++
				}); err != nil {
					t.Fatal(err)
				}
			}
			if ab, _ := l.Counters(); ab.Packets != uint64(len(sent)) {
				t.Errorf("the link counted %d packets, want %d", ab.Packets, len(sent))
			}
		})
	}
}

func TestNothingBeforeItIsDue(t *testing.T) {
	const delay = 30 * time.Millisecond
	onEachWire(t, func(t *testing.T, link func(Config) (*Link, [2]*net.UDPConn)) {
		_, routers := link(Config{Delay: delay})
		for range 3 {
			start := time.Now()
			exchange(t, routers[0], routers[1], []int{1000})
			if took := time.Since(start); took < delay {
				t.Errorf("arrived after %s on a link of %s", took, delay)
			}
		}
	})
}

func TestSetWhileRunning(t *testing.T) {
	onEachWire(t, func(t *testing.T, link func(Config) (*Link, [2]*net.UDPConn)) {
		l, routers := link(Config{})
		exchange(t, routers[0], routers[1], []int{100})
		if err := l.Set(Config{Rate: -1}, Config{}); err == nil {
			t.Error("a negative rate was accepted")
		}
		if err := l.Set(Config{Down: true}, Config{}); err != nil {
			t.Fatal(err)
		}
		if ab, ba := l.Config(); !ab.Down || ba.Down {
			t.Errorf("Config() = %v, %v after Set(down, up)", ab, ba)
		}
		if _, err := routers[0].Write(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		exchange(t, routers[1], routers[0], []int{200, 300})
		await.True(t, "the packet to be dropped", func() bool { ab, _ := l.Counters(); return ab.DroppedDown == 1 })
		if err := l.Set(Config{}, Config{}); err != nil {
			t.Fatal(err)
		}
		exchange(t, routers[0], routers[1], []int{400})
	})
}

// A packet that would take minutes must come through at once when the link gets faster: a loop that
// sleeps for the old time would miss it.
func TestSetWakesTheLoop(t *testing.T) {
	onEachWire(t, func(t *testing.T, link func(Config) (*Link, [2]*net.UDPConn)) {
		l, routers := link(Config{Rate: 100})
		if _, err := routers[0].Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the packet to wait", func() bool { ab, _ := l.Counters(); return ab.QueueBytes == 1000 })
		if err := l.Set(Config{Rate: 1e6}, Config{}); err != nil {
			t.Fatal(err)
		}
		if n, err := routers[1].Read(make([]byte, 2000)); n != 1000 || err != nil {
			t.Fatalf("read %d bytes, %v", n, err)
		}
	})
}

func TestRouterThatComesUpLater(t *testing.T) {
	onEachWire(t, func(t *testing.T, link func(Config) (*Link, [2]*net.UDPConn)) {
		l, routers := link(Config{})
		addr := routers[1].LocalAddr().(*net.UDPAddr)
		peer := routers[1].RemoteAddr().(*net.UDPAddr)
		routers[1].Close()
		for i := range uint64(20) {
			if _, err := routers[0].Write(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			await.True(t, "the packet to be sent", func() bool { ab, _ := l.Counters(); return ab.Packets == i+1 })
		}
		back, err := net.DialUDP("udp", addr, peer)
		if err != nil {
			t.Fatal(err)
		}
		defer back.Close()
		if err := back.SetReadDeadline(await.Deadline(t)); err != nil {
			t.Fatal(err)
		}
		exchange(t, routers[0], back, []int{500, 600, 700})
		exchange(t, back, routers[0], []int{500, 600, 700})
	})
}

func TestStrangersAreIgnored(t *testing.T) {
	onEachWire(t, func(t *testing.T, link func(Config) (*Link, [2]*net.UDPConn)) {
		l, routers := link(Config{})
		stranger, err := net.DialUDP("udp", nil, routers[0].RemoteAddr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer stranger.Close()
		for range 10 {
			// Refused, as by a port that nobody listens at, or dropped.
			if _, err := stranger.Write([]byte("let me in")); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatal(err)
			}
		}
		exchange(t, routers[0], routers[1], []int{50})
		if ab, _ := l.Counters(); ab.Packets != 1 {
			t.Errorf("%d packets forwarded, want only the router's", ab.Packets)
		}
	})
}

func TestAddressInUse(t *testing.T) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			taken, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			defer taken.Close()
			used := taken.LocalAddr().(*net.UDPAddr).AddrPort()
			addrs := free(t, "127.0.0.1", 3)
			a := Endpoint{Local: addrs[0], Router: addrs[1]}
			b := Endpoint{Local: used, Router: addrs[2]}
			for _, ends := range [][2]Endpoint{{a, b}, {b, a}} {
				_, err = newLink(w.open, ends[0], ends[1], Config{})
				if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), used.String()) {
					t.Fatalf("error %v, want one that names %s as in use", err, used)
				}
			}
			// The failed attempts have given the other address back.
			conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(a.Local))
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		})
	}
}

func TestRunAndClose(t *testing.T) {
	for _, w := range wires {
		open := func(t *testing.T) *Link {
			l, _ := bindLink(t, w.open, "127.0.0.1", Config{})
			return l
		}
		t.Run(w.name+"/context ends", func(t *testing.T) {
			l := open(t)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- l.Run(ctx) }()
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if err := l.Run(t.Context()); err == nil {
				t.Error("a second Run succeeded")
			}
			for range 2 {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
		})
		t.Run(w.name+"/close", func(t *testing.T) {
			l := open(t)
			done := make(chan error)
			go func() { done <- l.Run(t.Context()) }()
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if err := l.Run(t.Context()); err != nil {
				t.Errorf("Run of a closed link: %v", err)
			}
			if err := l.Set(Config{Down: true}, Config{}); err != nil {
				t.Errorf("Set of a closed link: %v", err)
			}
		})
	}
}

// The link allocates neither for a packet nor for a round of its loop.
func TestAllocsOfALink(t *testing.T) {
	l, router := bindLink(t, openWire, "127.0.0.1", Config{Rate: 1e9})
	buf := make([]byte, 2000)
	sent := uint64(0)
	allocs := testing.AllocsPerRun(100, func() {
		for range 10 {
			if _, err := router[0].Write(buf[:1400]); err != nil {
				t.Fatal(err)
			}
		}
		for sent += 10; l.lines[0].Packets < sent; {
			if _, err := l.serve(); err != nil {
				t.Fatal(err)
			}
			l.wire.wait(l.clock.now()+10*time.Microsecond, true)
		}
		for range 10 {
			if _, err := router[1].Read(buf); err != nil {
				t.Fatal(err)
			}
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations for 10 packets", allocs)
	}
}

// TestTooBig has what is larger than the MTU answered, or not, to the side that it came from.
func TestTooBig(t *testing.T) {
	l, routers := bindLink(t, openWire, "127.0.0.1", Config{MTU: 100, TooBig: true})
	l.Answer(func(p []byte, mtu int) []byte { return fmt.Appendf(nil, "a: %d above %d", len(p), mtu) },
		func([]byte, int) []byte { return nil })
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := l.Run(t.Context()); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(wg.Wait)
	hear := func(at int, want string) {
		t.Helper()
		b := make([]byte, 1000)
		if n, err := routers[at].Read(b); err != nil || string(b[:n]) != want {
			t.Errorf("side %d: %q, %v; want %q", at, b[:n], err, want)
		}
	}
	say := func(at int, p []byte) {
		t.Helper()
		if _, err := routers[at].Write(p); err != nil {
			t.Fatal(err)
		}
	}
	say(0, make([]byte, 101))
	hear(0, "a: 101 above 100")
	say(1, make([]byte, 101)) // no answer is one that says nothing
	say(0, []byte("small"))
	hear(1, "small")
	if err := l.Set(Config{MTU: 100}, Config{MTU: 100}); err != nil {
		t.Fatal(err)
	}
	say(0, make([]byte, 101))
	say(1, []byte("also small"))
	hear(0, "also small")
	say(0, []byte("the last"))
	hear(1, "the last")
	if ab, ba := l.Counters(); ab.DroppedLoss != 2 || ba.DroppedLoss != 1 || ab.Packets != 2 || ba.Packets != 2 {
		t.Errorf("counters %+v and %+v", ab, ba)
	}
}
