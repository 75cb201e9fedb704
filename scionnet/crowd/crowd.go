// Package crowd bounds the connections of a server on TCP, so that no network or host keeps others
// out.
package crowd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"braid/pathsel"
)

// crowd is a listener with a bounded number of connections. When it is full, a new connection
// replaces the oldest one that has sent nothing. If there is none, it replaces one of a network with
// more connections than its own or, in its own network, of a host with more. So nobody can keep
// others out by holding connections open.
type crowd struct {
	net.Listener
	most int

	mu    sync.Mutex
	conns map[*crowdConn]struct{}
	of    map[string]int // number of connections of each network and of each host
	// silent are connections that have sent nothing yet, the oldest first. It may contain closed
	// ones.
	silent []*crowdConn
}

type crowdConn struct {
	net.Conn
	crowd *crowd
	from  pathsel.Origin
	heard atomic.Bool
	once  sync.Once
}

func originOf(remote net.Addr) pathsel.Origin {
	a, _ := netip.ParseAddrPort(remote.String()) // others are one host
	return pathsel.OriginIP(a.Addr(), "")
}

// Listen bounds the connections of a listener.
func Listen(l net.Listener, most int) net.Listener {
	return &crowd{Listener: l, most: most, conns: map[*crowdConn]struct{}{}, of: map[string]int{}}
}

// Accept implements net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		k := &crowdConn{Conn: conn, crowd: c, from: originOf(conn.RemoteAddr())}
		victim, ok := c.enter(k)
		if victim != nil {
			victim.Close()
		}
		if ok {
			return k, nil
		}
		conn.Close()
	}
}

func (c *crowd) enter(k *crowdConn) (victim *crowdConn, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conns) >= c.most {
		for len(c.silent) > 0 && victim == nil {
			if c.isSilent(c.silent[0]) {
				victim = c.silent[0]
			}
			c.silent = c.silent[1:]
		}
		if victim == nil {
			victim = c.greedier(k.from)
		}
		if victim == nil {
			return nil, false
		}
		c.remove(victim)
	}
	c.conns[k] = struct{}{}
	c.of[k.from.Net]++
	c.of[k.from.Host]++
	if len(c.silent) > 2*c.most {
		c.silent = slices.DeleteFunc(c.silent, func(s *crowdConn) bool { return !c.isSilent(s) })
	}
	c.silent = append(c.silent, k)
	return victim, true
}

// isSilent reports whether the connection is open and has sent nothing.
func (c *crowd) isSilent(k *crowdConn) bool {
	_, open := c.conns[k]
	return open && !k.heard.Load()
}

// crowdSample is how many connections are examined to find a greedy network or host. The one with
// most of them is hardly missed.
const crowdSample = 16

// greedier is a connection of a network that has more of them than another one would have with one
// more, or nil. In the same network it compares hosts instead.
func (c *crowd) greedier(than pathsel.Origin) (out *crowdConn) {
	examined, most := 0, 1
	for k := range c.conns {
		more := c.of[k.from.Net] - c.of[than.Net]
		if k.from.Net == than.Net {
			more = c.of[k.from.Host] - c.of[than.Host]
		}
		if more > most {
			out, most = k, more
		}
		if examined++; examined == crowdSample {
			break
		}
	}
	return out
}

func (c *crowd) remove(k *crowdConn) {
	if _, there := c.conns[k]; !there {
		return
	}
	delete(c.conns, k)
	for _, o := range []string{k.from.Net, k.from.Host} {
		if c.of[o]--; c.of[o] == 0 {
			delete(c.of, o)
		}
	}
}

func (k *crowdConn) Read(b []byte) (int, error) {
	n, err := k.Conn.Read(b)
	if n > 0 && !k.heard.Load() {
		k.heard.Store(true)
	}
	return n, err
}

// NetConn returns the connection below.
func (k *crowdConn) NetConn() net.Conn { return k.Conn }

func (k *crowdConn) Close() error {
	k.once.Do(func() {
		k.crowd.mu.Lock()
		defer k.crowd.mu.Unlock()
		k.crowd.remove(k)
	})
	return k.Conn.Close()
}

// Serve answers HTTP requests at a listener until the context ends, and closes the listener. The
// requests at that time may go on for the grace.
func Serve(ctx context.Context, s *http.Server, l net.Listener, grace time.Duration) error {
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve HTTP at %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := s.Shutdown(patience)
	if errors.Is(err, context.DeadlineExceeded) { // cut off the slow ones
		err = s.Close()
	}
	<-served
	return err
}
