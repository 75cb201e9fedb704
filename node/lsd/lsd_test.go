package lsd

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"braid/scionnet"
	"braid/units/await"
)

func addr(t testing.TB, s string) scionnet.Addr {
	t.Helper()
	if strings.Contains(s, ",") {
		a, err := scionnet.ParseAddr(s)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	at, err := netip.ParseAddrPort(s)
	if err != nil {
		t.Fatal(err)
	}
	return scionnet.Addr{Host: at.Addr(), Port: at.Port()}
}

func TestMessage(t *testing.T) {
	full := Message{Port: 65535, SCION: addr(t, "65535-ffff:ffff:ffff,[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65535"), Cookie: strings.Repeat("c", 26)}
	for i := range maxHashes {
		full.Hashes = append(full.Hashes, Hash{byte(i)})
	}
	for _, m := range []Message{full, {Port: 1, Hashes: []Hash{{1}}, Cookie: "x"}, {Hashes: []Hash{{2}}, SCION: addr(t, "1-ff00:0:110,[10.0.0.1]:31000")}} {
		for _, group := range []netip.AddrPort{group4, group6} {
			b := m.encode(group)
			got, err := parse(b)
			if err != nil || !reflect.DeepEqual(got, m) || len(b) > maxMessage {
				t.Errorf("%d bytes, %v\n got %+v\nwant %+v", len(b), err, got, m)
			}
		}
	}
}

// The example of PROTOCOL.md, and what other clients write and a stranger may.
func TestParse(t *testing.T) {
	const hash = "3132333435363738393031323334353637383930"
	head := "BT-SEARCH * HTTP/1.1\r\nHost: 239.192.152.143:6771\r\n"
	one := []Hash{Hash([]byte("12345678901234567890"))}
	for text, want := range map[string]Message{
		head + "Port: 6881\r\nInfohash: " + hash + "\r\nSCION: 1-ff00:0:110,[10.0.0.1]:31000\r\ncookie: 1f\r\n\r\n\r\n": {
			Port: 6881, Hashes: one, SCION: addr(t, "1-ff00:0:110,[10.0.0.1]:31000"), Cookie: "1f"},
		head + "Port: 6881\r\nInfohash: " + hash + "\r\n\r\n\r\n":                                       {Port: 6881, Hashes: one},              // transmission
		head + "PORT: 6881\r\ninfohash: " + strings.ToUpper(hash) + "\r\nX-New: 1\r\ncookie: a\r\n\r\n": {Port: 6881, Hashes: one, Cookie: "a"}, // other letters
		head + "Infohash: " + hash + "\r\nInfohash: " + hash + hash[:24] + "\r\n\r\n":                   {Hashes: one},                          // one of v2
		head + "Infohash: " + hash + "\r\nInfohash: " + hash + "\r\n\r\n":                               {Hashes: slices.Concat(one, one)},      // twice
		head + "\r\n": {},
	} {
		if got, err := parse([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v\n got %+v\nwant %+v", text, err, got, want)
		}
	}
	for _, bad := range []string{
		"", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", head, head + "Port: 70000\r\n\r\n", head + "Port: -1\r\n\r\n",
		head + "Infohash: " + strings.Repeat("g", 40) + "\r\n\r\n", head + "SCION: 10.0.0.1:1\r\n\r\n", head + "SCION: 0-0,[10.0.0.1]:1\r\n\r\n",
		head + "SCION: 1-ff00:0:110,[0.0.0.0]:1\r\n\r\n", head + "SCION: 1-ff00:0:110,[10.0.0.1]:0\r\n\r\n", head + "cookie: " + strings.Repeat("x", 65) + "\r\n\r\n",
		head + "X: " + strings.Repeat("x", maxMessage) + "\r\n\r\n",
	} {
		if m, err := parse([]byte(bad)); err == nil {
			t.Errorf("read %q: %+v", bad, m)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Message{Port: 1, Hashes: []Hash{{1}, {2}}, SCION: addr(f, "1-ff00:0:110,[10.0.0.1]:31000"), Cookie: "x"}.encode(group4))
	f.Add(Message{Hashes: []Hash{{1}}}.encode(group6))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err != nil {
			return
		}
		if len(m.Hashes) > maxMessage/len("Infohash:")/2 || len(m.Cookie) > maxCookie {
			t.Fatalf("%d hashes, a cookie of %d bytes", len(m.Hashes), len(m.Cookie))
		}
		if m.SCION.IA != 0 && !m.SCION.Dialable() {
			t.Fatalf("the address %s", m.SCION)
		}
	})
}

// Each torrent is named every five minutes, and there is at most one message a minute, however many
// torrents there are and whoever asks for them.
func TestCalendar(t *testing.T) {
	start := time.Unix(1e9, 0)
	for _, tt := range []struct{ torrents, messages, named int }{
		{1, 12, 12},                         // in an hour
		{2, 12, 24},                         // in one message
		{maxHashes, 12, 12 * maxHashes},     //
		{5 * maxHashes, 60, 60 * maxHashes}, // all minutes are full
		{1000, 60, 60 * maxHashes},          // they take turns
		{0, 0, 0},
	} {
		var c calendar
		messages, named := 0, map[Hash]int{}
		for i := range tt.torrents {
			c.soon(Hash{byte(i), byte(i >> 8)}, start)
		}
		for s := range 3600 {
			if hashes := c.take(start.Add(time.Duration(s) * time.Second)); len(hashes) > 0 {
				messages++
				for _, h := range hashes {
					named[h]++
				}
			}
		}
		sum, least, most := 0, 1000, 0
		for _, n := range named {
			sum, least, most = sum+n, min(least, n), max(most, n)
		}
		if messages != tt.messages || sum != tt.named || tt.torrents > 0 && most-least > 1 || tt.torrents <= tt.named && len(named) != tt.torrents {
			t.Errorf("%d torrents: %d messages that name %d of them, %d in all, each %d to %d times", tt.torrents, messages, len(named), sum, least, most)
		}
	}
	var c calendar
	c.soon(Hash{1}, start)
	if got := c.take(start); len(got) != 1 {
		t.Fatal(got)
	}
	for s := range 60 { // somebody asks all the time
		now := start.Add(time.Duration(s) * time.Second)
		c.soon(Hash{1}, now)
		c.soon(Hash{2}, now)
		if got := c.take(now); got != nil {
			t.Errorf("%d s later: %v", s, got)
		}
	}
	c.drop(Hash{2})
	if got := c.take(start.Add(time.Minute)); !slices.Equal(got, []Hash{{1}}) {
		t.Errorf("a minute later: %v", got)
	}
}

func TestGate(t *testing.T) {
	var g admission
	now := time.Unix(1e9, 0)
	host := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }
	count := func(times int, from func(i int) netip.Addr) (n int) {
		for i := range times {
			if g.admit(from(i), now) {
				n++
			}
		}
		return n
	}
	if n := count(100, func(int) netip.Addr { return host(0) }); n != hostBurst {
		t.Errorf("%d messages of a host at once, want %d", n, hostBurst)
	}
	if n := count(5000, host); n != allBurst-hostBurst || len(g.hosts) > maxHosts {
		t.Errorf("%d messages of all hosts at once, of %d hosts", n, len(g.hosts))
	}
	now = now.Add(hostEvery)
	if n := count(100, func(int) netip.Addr { return host(0) }); n != 1 {
		t.Errorf("%d messages after %v, want 1", n, hostEvery)
	}
	now = now.Add(forgetHost)
	if n := count(1000, func(i int) netip.Addr { return host(i + 10_000) }); n != allBurst || len(g.hosts) > maxHosts {
		t.Errorf("%d messages of hosts that came later; %d hosts are known", n, len(g.hosts))
	}
}

func TestChoose(t *testing.T) {
	subnet := func(index int, name string, prefixes ...string) link {
		l := link{index: index, name: name, loopback: name == "lo"}
		for _, p := range prefixes {
			l.addrs = append(l.addrs, netip.MustParsePrefix(p))
		}
		return l
	}
	all := []link{
		subnet(1, "lo", "127.0.0.1/8"), subnet(1, "lo", "::1/128"), subnet(2, "eth0", "192.168.1.5/24"),
		subnet(2, "eth0", "fe80::5/64", "2001:db8::5/64"), subnet(3, "vpn", "10.8.0.2/24"),
	}
	for _, tt := range []struct{ listening, want string }{
		{"", "192.168.1.5:0 2001:db8::5:0 10.8.0.2:0"},
		{"0.0.0.0:6881", "192.168.1.5:6881 2001:db8::5:0 10.8.0.2:6881"},
		{"[::]:6881", "192.168.1.5:6881 2001:db8::5:6881 10.8.0.2:6881"},
		{"10.8.0.2:6881", "10.8.0.2:6881"},
		{"127.0.0.1:6881", "127.0.0.1:6881"},
		{"127.0.0.9:6881", "127.0.0.9:6881"},
		{"[::1]:6881 192.168.1.5:6882", "::1:6881 192.168.1.5:6882"},
		{"1-ff00:0:110,[192.168.1.5]:31000", "192.168.1.5:0 2001:db8::5:0 10.8.0.2:0"},
		{"1-ff00:0:110,[127.77.0.1]:31000", "127.77.0.1:0 192.168.1.5:0 2001:db8::5:0 10.8.0.2:0"},
		{"10.8.0.2:6881 1-ff00:0:110,[192.168.1.5]:31000", "192.168.1.5:0 10.8.0.2:6881"},
		{"192.0.2.1:6881", ""},
	} {
		var listening []scionnet.Addr
		for _, s := range strings.Fields(tt.listening) {
			listening = append(listening, addr(t, s))
		}
		var got []string
		for _, n := range choose(all, listening) {
			got = append(got, fmt.Sprintf("%s:%d", n.from, n.port))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.listening, strings.Join(got, " "), tt.want)
		}
	}
}

// serve starts a server that takes part on loopback with an address, which need not be open.
func serve(t *testing.T, listening ...string) *Server {
	var at []scionnet.Addr
	for _, a := range listening {
		at = append(at, addr(t, a))
	}
	s := Serve(Config{Listening: func() []scionnet.Addr { return at }, TCP: true, SCION: true})
	t.Cleanup(s.Close)
	s.Switch(true)
	return s
}

// follow returns what a server finds.
func follow(t *testing.T, s *Server, h Hash, may bool) <-chan scionnet.Addr {
	t.Helper()
	found := make(chan scionnet.Addr, 100)
	if _, err := s.Follow(h, func() bool { return may }, func(a scionnet.Addr) { found <- a }); err != nil {
		t.Fatal(err)
	}
	return found
}

// Programs of one host hear each other on its loopback interface: who was first hears who came
// later. Nobody hears of a torrent that may not be announced, nor of itself.
func TestServers(t *testing.T) {
	hash, secret := Hash([]byte(rand.Text())), Hash([]byte(rand.Text())) // other runs of this test are on this host, too
	first := serve(t, "127.0.0.1:1001", "1-ff00:0:110,[127.0.0.1]:31001")
	found, hidden := follow(t, first, hash, true), follow(t, first, secret, true)
	await.True(t, "the first announce", first.Announced)
	second := serve(t, "127.0.0.1:1002", "1-ff00:0:110,[127.0.0.1]:31002")
	follow(t, second, secret, false)
	ours := follow(t, second, hash, true)
	for _, want := range []string{"127.0.0.1:1002", "1-ff00:0:110,[127.0.0.1]:31002"} {
		if got := <-found; got != addr(t, want) {
			t.Errorf("found %s, want %s", got, want)
		}
	}
	second.Close()
	if len(hidden)+len(ours) != 0 {
		t.Errorf("%d announces of a torrent that may not be announced, %d of oneself", len(hidden), len(ours))
	}
	if len(second.sockets) != 0 {
		t.Error("sockets stay open")
	}
}

// A network whose group could not be joined is tried again at the next look.
func TestJoinsAgain(t *testing.T) {
	s := hearing(t)
	s.cfg.Listening = func() []scionnet.Addr { return []scionnet.Addr{addr(t, "127.0.0.1:1001")} }
	all, err := links()
	if err != nil {
		t.Fatal(err)
	}
	s.networks = choose(all, s.cfg.Listening()) // and no sockets
	if s.look(true, time.Now()); len(s.sockets) != 1 || len(s.sockets[0].networks) != 1 {
		t.Errorf("%d sockets for %d networks", len(s.sockets), len(s.networks))
	}
	s.look(false, time.Now())
	s.readers.Wait()
}

// hearing is a server without sockets, in an AS.
func hearing(t *testing.T) *Server {
	s := &Server{cfg: Config{Listening: func() []scionnet.Addr { return []scionnet.Addr{addr(t, "1-ff00:0:110,[192.168.1.5]:31000")} }, TCP: true, SCION: true},
		follows: map[Hash]*Followed{}, wake: make(chan struct{}, 1), cookie: "ours"}
	s.cfg.Logger = testLog(t)
	return s
}

// What a server believes of a message.
func TestHear(t *testing.T) {
	hash := Hash{7}
	for _, tt := range []struct {
		name string
		m    Message
		want []string
	}{
		{"both", Message{Port: 6881, SCION: addr(t, "1-ff00:0:110,[192.168.1.9]:31000")}, []string{"192.168.1.9:6881", "1-ff00:0:110,[192.168.1.9]:31000"}},
		{"another AS", Message{SCION: addr(t, "1-ff00:0:111,[127.0.0.1]:31000")}, []string{"1-ff00:0:111,[127.0.0.1]:31000"}},
		{"a service of this host", Message{SCION: addr(t, "1-ff00:0:110,[127.0.0.1]:31000")}, nil},
		{"nothing", Message{}, nil},
		{"ours", Message{Port: 6881, Cookie: "ours"}, nil},
	} {
		s := hearing(t)
		found := follow(t, s, hash, true)
		tt.m.Hashes = []Hash{{1}, hash}
		s.hear(netip.MustParseAddr("192.168.1.9"), tt.m.encode(group4), time.Now())
		s.hear(netip.MustParseAddr("192.168.1.9"), []byte("BT-SEARCH * HTTP/1.1\r\n"), time.Now())
		var got []string
		for len(found) > 0 {
			a := <-found
			text := a.String()
			if a.IA == 0 {
				text = netip.AddrPortFrom(a.Host, a.Port).String()
			}
			got = append(got, text)
		}
		if !slices.Equal(got, tt.want) || len(s.calendar.due) != 1 {
			t.Errorf("%s: found %v", tt.name, got)
		}
	}
}

// A newcomer is answered with an announce, once. Two that know each other keep their rhythm.
func TestAnswer(t *testing.T) {
	s, hash, now := hearing(t), Hash{7}, time.Now()
	follow(t, s, hash, true)
	hear := func(port uint16, wantAnswer bool) {
		t.Helper()
		now = now.Add(messageEvery)
		s.calendar.take(now)
		s.calendar.due[hash] = now.Add(announceEvery)
		s.hear(netip.MustParseAddr("192.168.1.9"), Message{Port: port, Hashes: []Hash{hash}}.encode(group4), now)
		if answer := !s.calendar.due[hash].After(now); answer != wantAnswer {
			t.Errorf("port %d is answered: %v", port, answer)
		}
	}
	hear(0, true) // it accepts no peers
	hear(0, false)
	hear(6881, true)
	hear(6881, false)
	now = now.Add(announceEvery)
	hear(6881, false)
	now = now.Add(forgetNeighbour)
	hear(6881, true)
	for i := range 2 * maxHeard {
		s.follows[hash].isNew(neighbour{port: uint16(i + 10_000)}, now)
	}
	hear(7000, false)
	if n := len(s.follows[hash].heard); n != maxHeard {
		t.Errorf("%d neighbours are remembered", n)
	}
	now = now.Add(forgetNeighbour)
	hear(7000, true)
	s.look(false, now.Add(forgetNeighbour))
	if n := len(s.follows[hash].heard); n != 0 {
		t.Errorf("%d silent neighbours are remembered", n)
	}
}

func TestNeighbours(t *testing.T) {
	lan := network{link: link{index: 2, addrs: []netip.Prefix{netip.MustParsePrefix("192.168.1.5/24")}}}
	s := &socket{networks: []network{lan}}
	from := func(a string) netip.AddrPort { return netip.MustParseAddrPort(a) }
	for d, want := range map[*datagram]bool{
		{from: from("192.168.1.9:6771"), index: 2, group: true}:  true,
		{from: from("192.168.1.9:6771"), index: 0, group: true}:  true,
		{from: from("192.168.1.9:6771"), index: 3, group: true}:  false,
		{from: from("192.168.1.9:6771"), index: 2, group: false}: false,
		{from: from("192.0.2.1:6771"), index: 2, group: true}:    false,
	} {
		if got := s.isFromNeighbour(*d); got != want {
			t.Errorf("%+v: %v", *d, got)
		}
	}
}

func testLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }
