package dht

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// serve runs a server at 127.0.0.1, and returns a function that asks it something.
func serve(t *testing.T) (ask func(*Message) *Message) {
	t.Helper()
	s := serveLocal(t)
	c, err := net.Dial("udp4", s.States()[0].Addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return func(m *Message) *Message {
		t.Helper()
		m.T, m.ID, m.ReadOnly = "aa", ID{1}, true
		if _, err := c.Write(m.Encode()); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 2048)
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseMessage(b[:n])
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
}

// An item that is too large, or has too large a salt, is refused with the code of BEP 44.
func TestItemTooBig(t *testing.T) {
	ask := serve(t)
	token := ask(&Message{Query: Get, Target: ID{2}}).Token
	for _, tt := range []struct{ value, salt, code int }{{1001, 0, ErrTooBig}, {10, 65, ErrSalt}} {
		text := bytes.Repeat([]byte("x"), tt.value)
		i := &Item{Value: fmt.Appendf(nil, "%d:%s", len(text), text), Salt: bytes.Repeat([]byte("s"), tt.salt)}
		if got := ask(&Message{Query: Put, Token: token, Item: i}); got.Code != tt.code {
			t.Errorf("%+v: %d, %s", tt, got.Code, got.Text)
		}
	}
}

// The nodes on IPv4 and IPv6 keep their own IDs over a restart.
func TestStatesOfBothFamilies(t *testing.T) {
	states := []State{
		{ID: ID{4}, Addr: Addr{Host: netip.IPv4Unspecified(), Port: 1}},
		{ID: ID{6}, Addr: Addr{Host: netip.IPv6Unspecified(), Port: 1}},
	}
	var sockets []Socket
	for _, at := range []string{"0.0.0.0:0", "[::]:0"} {
		socket, err := ListenUDP(t.Context(), netip.MustParseAddrPort(at))
		if err != nil {
			t.Skip(err) // a host without IPv6
		}
		sockets = append(sockets, socket)
	}
	s := Serve(ServerConfig{Sockets: sockets, States: states})
	defer s.Close()
	for i, got := range s.States() {
		if got.ID != states[i].ID {
			t.Errorf("node at %s has ID %s, want %s", got.Addr, got.ID, states[i].ID)
		}
	}
}

// moving is a socket without packets whose address changes.
type moving struct {
	Socket
	at     atomic.Pointer[Addr]
	closed chan struct{}
}

func (m *moving) Network() Network        { return OverSCION }
func (m *moving) Addr() Addr              { return *m.at.Load() }
func (m *moving) Close() error            { close(m.closed); return nil }
func (m *moving) Send([]byte, Addr, bool) {}

func (m *moving) Receive([]byte) (int, Origin, net.Addr, error) {
	<-m.closed
	return 0, Origin{}, nil, net.ErrClosed
}

// A NAT has given the host another address. Others would ignore a node with the ID of the old one.
func TestNodeMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := addr(t, "1-ff00:0:110,[192.0.2.1]:7"), addr(t, "1-ff00:0:110,[198.51.100.1]:8")
		socket := &moving{closed: make(chan struct{})}
		socket.at.Store(&before)
		s := Serve(ServerConfig{Sockets: []Socket{socket}})
		defer s.Close()
		id := s.States()[0].ID
		time.Sleep(2 * time.Minute)
		if x := s.States()[0]; x.ID != id || !IsBound(id, before) {
			t.Errorf("ID %s became %s", id, x.ID)
		}
		socket.at.Store(&after)
		time.Sleep(2 * time.Minute)
		if x := s.States()[0]; x.Addr != after || !IsBound(x.ID, after) {
			t.Errorf("node %s at %s, which is now at %s", x.ID, x.Addr, after)
		}
	})
}

// However many messages strangers send, the answers of nodes that were asked are handled.
func TestAnswersInFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := addr(t, "1-ff00:0:110,[192.0.2.1]:7")
		socket := &moving{closed: make(chan struct{})}
		socket.at.Store(&own)
		s := Serve(ServerConfig{Sockets: []Socket{socket}})
		defer s.Close()
		m := s.members[0]
		for i := range 2 * maxRate {
			stranger := boundContact(2+i%20, i, m.cfg.Rand).Addr
			if admitted := s.admit(m, Origin{Addr: stranger, Proven: true}); admitted != (i < maxRate) {
				t.Fatalf("message %d of strangers is handled: %v", i, admitted)
			}
		}
		asked := Contact{Addr: addr(t, "1-ff00:0:111,[192.0.2.1]:7")}
		s.do(func(now time.Time) { m.ask(now, &query{to: asked, m: &Message{Query: Ping}}) })
		if !s.admit(m, Origin{Addr: asked.Addr}) {
			t.Error("the answer of a node that was asked is dropped")
		}
	})
}

// Thousands of torrents say every second whether they lack peers. Without a change that costs
// nothing: it does not even wait for the lock on the nodes.
func TestHungryAgain(t *testing.T) {
	s := serveLocal(t)
	f, err := s.Follow(ID{1}, nil, func([]Addr) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, hungry := range []bool{true, false} {
		f.Hungry(hungry)
		s.mu.Lock()
		done := make(chan struct{})
		go func() { f.Hungry(hungry); close(done) }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Errorf("hungry %v: the second call waits", hungry)
		}
		if got := f.torrents[s.members[0]].hungry; got != hungry {
			t.Errorf("the node takes it for hungry: %v, want %v", got, hungry)
		}
		s.mu.Unlock()
		<-done
	}
}

// A torrent may be followed while its peers are looked for: the end of that search is not the end
// of the other.
func TestSearchesForOneTarget(t *testing.T) {
	m := &member{}
	f := &finder{target: ID{1}, pending: map[*member]int{m: 2}, done: make(chan struct{})}
	for number := 1; number <= 3; number++ {
		f.take(m, Event{Target: ID{1}, Done: &Result{Number: number}})
		if want := min(number-1, 1); len(f.found.Results) != want {
			t.Errorf("search %d has ended: %d results, want %d", number, len(f.found.Results), want)
		}
	}
	<-f.done
}
