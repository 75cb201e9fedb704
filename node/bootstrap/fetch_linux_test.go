package bootstrap

import (
	"net"
	"syscall"
	"testing"
	"time"
)

// A server that drops all packets does not keep the others waiting.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// A full queue of connections drops packets, too.
	if ctl := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }); ctl != nil || err != nil {
		t.Fatal(ctl, err)
	}
	for full := false; !full; {
		c, err := net.DialTimeout("tcp", l.Addr().String(), 200*time.Millisecond)
		if full = err != nil; !full {
			defer c.Close()
		}
	}
	start := time.Now()
	_, err = Fetch(t.Context(), l.Addr().String(), nil)
	if took := time.Since(start); err == nil || took > fetchPatience/2 {
		t.Errorf("given up after %v: %v", took, err)
	}
}
