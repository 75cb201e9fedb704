package scionnet

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"braid/units/await"
)

// TestNetworkGoesDown takes a host's address away during a connection, for less than the idle
// timeout. Then neither end can send. The connection goes on when the address is back. A dial
// meanwhile fails at once, with the system's reason.
func TestNetworkGoesDown(t *testing.T) {
	runtime.LockOSThread() // and never unlock: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("no network of its own: %v", err)
	}
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput(); err != nil {
			t.Skipf("ip %q: %v: %s", args, err, out)
		}
	}
	ip("link", "set", "lo", "up")
	ip("addr", "add", "192.0.2.1/32", "dev", "lo")
	ip("addr", "add", "192.0.2.2/32", "dev", "lo")
	a, b := listenIP(t, "192.0.2.1:0"), listenIP(t, "192.0.2.2:0")
	d, c := pairOnIP(t, a, b, b.Addr())
	say(t, d)
	hear(t, c)

	ip("addr", "del", "192.0.2.2/32", "dev", "lo")
	say(t, d)
	say(t, c)
	_, err := a.Dial(t.Context(), netip.MustParseAddrPort("192.0.2.3:9"), nil)
	ip("addr", "add", "192.0.2.2/32", "dev", "lo")
	if !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("error of the dial: %v, want ENETUNREACH", err)
	}
	hear(t, c)
	hear(t, d)
}

func listenIP(t *testing.T, at string) *IPEndpoint {
	t.Helper()
	e, err := ListenIP(IPConfig{Listen: netip.MustParseAddrPort(at)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// pairOnIP connects two endpoints. The first dials an address that leads to the second.
func pairOnIP(t *testing.T, from, to *IPEndpoint, at netip.AddrPort) (dialled, accepted *IPConn) {
	t.Helper()
	d, err := from.Dial(t.Context(), at, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := to.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d, c
}

func say(t *testing.T, from io.Writer) {
	t.Helper()
	if _, err := from.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, at *IPConn) {
	t.Helper()
	_ = at.SetReadDeadline(await.Deadline(t))
	if _, err := io.ReadFull(at, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
}

// TestNoCongestionMarks looks at the packets of a connection. None may invite routers to mark it
// instead of dropping it, since the congestion controllers do not hear of marks.
func TestNoCongestionMarks(t *testing.T) {
	relay, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := relay.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTOS, 1)
	}); err != nil {
		t.Fatal(err)
	}
	a, b := listenIP(t, "127.0.0.1:0"), listenIP(t, "127.0.0.1:0")
	var seen, marked atomic.Int64
	var done sync.WaitGroup
	done.Go(func() {
		p, oob := make([]byte, 1<<16), make([]byte, 100)
		for {
			n, m, _, from, err := relay.ReadMsgUDPAddrPort(p, oob)
			if err != nil {
				return
			}
			all, err := unix.ParseSocketControlMessage(oob[:m])
			if err == nil && len(all) == 1 && len(all[0].Data) > 0 {
				seen.Add(1)
				marked.Add(int64(min(all[0].Data[0]&3, 1)))
			}
			to := a.Addr()
			if unmapped(from) == to {
				to = b.Addr()
			}
			_, _ = relay.WriteToUDPAddrPort(p[:n], to) // lost, as on a wire
		}
	})
	defer done.Wait()
	defer relay.Close()
	d, c := pairOnIP(t, a, b, ipOf(relay.LocalAddr()))
	for range 64 {
		say(t, d)
		hear(t, c)
		say(t, c)
		hear(t, d)
	}
	if seen.Load() == 0 || marked.Load() > 0 {
		t.Errorf("%d of %d packets carry a mark", marked.Load(), seen.Load())
	}
}
