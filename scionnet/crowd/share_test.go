package crowd

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
)

// arrivals is a listener with connections from these addresses. Each sends bytes without end.
type arrivals struct {
	net.Listener
	from []string
}

func (a *arrivals) Accept() (net.Conn, error) {
	if len(a.from) == 0 {
		return nil, net.ErrClosed
	}
	c := remote{addr: a.from[0]}
	a.from = a.from[1:]
	return c, nil
}

type remote struct {
	net.Conn
	addr string
}

func (r remote) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(r.addr))
}
func (remote) Read(b []byte) (int, error) { return len(b), nil }
func (remote) Close() error               { return nil }

// The owner of a network cannot keep others out, however many hosts it has, nor a host its
// neighbours.
func TestNetworksShare(t *testing.T) {
	for _, tt := range []struct{ crowd, newcomer string }{
		{"[2001:db8:1:%x::1]:1", "192.0.2.1:1"},
		{"192.0.2.%d:1", "198.51.100.1:1"},
		{"192.0.2.1:%d", "192.0.2.2:1"},
	} {
		const most = 20
		from := []string{}
		for i := range most {
			from = append(from, fmt.Sprintf(tt.crowd, i))
		}
		l := Listen(&arrivals{from: append(from, tt.newcomer)}, most)
		for range most {
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Accept(); err != nil {
			t.Errorf("%q keep out %s", tt.crowd, tt.newcomer)
		}
	}
}
