package bootstrap

import (
	"net"
	"strings"
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
	_, err = Fetch(t.Context(), l.Addr().String(), nil)
	if err != nil && strings.Contains(err.Error(), "awaiting response headers") {
		// On a busy machine the queue was not full yet, but now it is.
		_, err = Fetch(t.Context(), l.Addr().String(), nil)
	}
	if err == nil || !strings.Contains(err.Error(), "i/o timeout") {
		t.Errorf("given up at the end of all patience: %v", err)
	}
}
