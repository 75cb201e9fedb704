package client

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"braid/pathsel"
	"braid/scionnet"
)

func pexPeers(t testing.TB, addresses ...string) (out []pexPeer) {
	t.Helper()
	for _, s := range addresses {
		p, err := ParsePeer(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, pexPeer{at: p.Addr()})
	}
	return out
}

// The bytes of messages: those of BEP 11, and those of PEX.md.
func TestPEXMessages(t *testing.T) {
	flagged := func(flags byte, p []pexPeer) []pexPeer {
		for i := range p {
			p[i].flags = flags
		}
		return p
	}
	for want, m := range map[string]pexMessage{
		"de": {},
		"d5:added6:\x0a\x00\x00\x01\x1a\xe17:added.f1:\x027:dropped6:\x0a\x00\x00\x02\x1a\xe1e": {
			added: flagged(2, pexPeers(t, "10.0.0.1:6881")), dropped: pexPeers(t, "10.0.0.2:6881"),
		},
		"d6:added618:\x20\x01\x0d\xb8" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x018:added6.f1:\x10e": {
			added: flagged(0x10, pexPeers(t, "[2001:db8::1]:1")),
		},
		"d8:added_s414:\x00\x01\xff\x00\x00\x00\x01\x10\x0a\x00\x00\x01\x79\x1810:added_s4.f1:\x12" +
			"10:dropped_s626:\x00\x02\xff\x00\x00\x00\x02\x22\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01e": {
			added:   flagged(0x12, pexPeers(t, "1-ff00:0:110,[10.0.0.1]:31000")),
			dropped: pexPeers(t, "2-ff00:0:222,[2001:db8::1]:1"),
		},
		"d8:added_s414:\x00\x01\xff\x00\x00\x00\x01\x10\x0a\x00\x00\x01\x79\x1810:added_s4.f1:\x003:dhti31001e" +
			"10:dropped_s414:\x00\x01\xff\x00\x00\x00\x01\x10\x0a\x00\x00\x02\x79\x18e": {
			added: pexPeers(t, "1-ff00:0:110,[10.0.0.1]:31000"), dropped: pexPeers(t, "1-ff00:0:110,[10.0.0.2]:31000"), dht: 31001,
		},
	} {
		if got := string(m.encode()); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got, err := parsePEX([]byte(want)); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%q: %+v, %v", want, got, err)
		}
	}
}

func TestPEXMessagesOfStrangers(t *testing.T) {
	for name, c := range map[string]struct {
		payload string
		added   int // -1: the message is refused
	}{
		"unknown keys":      {"d5:added6:\x0a\x00\x00\x01\x1a\xe13:new1:x4:newsli1eee", 1},
		"no flags":          {"d5:added12:\x0a\x00\x00\x01\x1a\xe1\x0a\x00\x00\x02\x1a\xe17:added.f1:\x02e", 2},
		"port 0":            {"d5:added6:\x0a\x00\x00\x01\x00\x00e", 0},
		"no host":           {"d5:added6:\x00\x00\x00\x00\x00\x01e", 0},
		"wildcard AS":       {"d8:added_s414:\x00\x01\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x01\x79\x18e", 0},
		"no ISD-AS":         {"d8:added_s414:\x00\x00\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x01\x79\x18e", 0},
		"IPv4 in IPv6":      {"d6:added618:\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0a\x00\x00\x01\x00\x01e", 0},
		"too many":          {fmt.Sprintf("d5:added%d:%se", 60*6, slices.Repeat([]byte("\x0a\x00\x00\x01\x1a\xe1"), 60)), maxNamed},
		"cut short":         {"d5:added5:\x0a\x00\x00\x01\x1ae", -1},
		"not a dictionary":  {"le", -1},
		"a number":          {"d5:addedi1ee", 0},
		"too long":          {"d5:added" + fmt.Sprint(maxPEX) + ":" + string(make([]byte, maxPEX)) + "e", -1},
		"too many keys":     {"d" + string(slices.Repeat([]byte("1:x0:"), maxPEXKeys+1)) + "e", -1},
		"in the middle":     {"d5:added6:\x0a", -1},
		"nothing":           {"", -1},
		"deep as the ocean": {"d1:x" + string(slices.Repeat([]byte("l"), 1000)), -1},
	} {
		m, err := parsePEX([]byte(c.payload))
		if (err != nil) != (c.added < 0) || err == nil && len(m.added) != c.added {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

func FuzzPEX(f *testing.F) {
	f.Add([]byte("d5:added6:\x0a\x00\x00\x01\x1a\xe17:added.f1:\x027:dropped6:\x0a\x00\x00\x02\x1a\xe1e"))
	f.Add([]byte("d8:added_s414:\x00\x01\xff\x00\x00\x00\x01\x10\x0a\x00\x00\x01\x79\x1810:added_s4.f1:\x12e"))
	f.Add([]byte("d1:xlld1:yi-1eeee10:dropped_s60:e"))
	f.Add([]byte("d3:dhti31001ee"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parsePEX(b)
		if err != nil {
			return
		}
		if len(m.added) > maxNamed || len(m.dropped) > maxNamed {
			t.Fatalf("%d peers added, %d dropped", len(m.added), len(m.dropped))
		}
		for _, p := range slices.Concat(m.added, m.dropped) {
			if q, err := ParsePeer(PeerAt(p.at).String()); err != nil || !q.same(PeerAt(p.at)) {
				t.Fatalf("%v is not an address: %v", p, err)
			}
		}
		again, err := parsePEX(m.encode())
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}

func TestPEXGate(t *testing.T) {
	list := func(n int, format string) (out []pexPeer) {
		for i := range n {
			out = append(out, pexPeers(t, fmt.Sprintf(format, i))...)
		}
		return out
	}
	many := list(maxNamed, "1-ff00:0:%x,[10.0.0.1]:1")
	ia := pathsel.IA(1<<48 | 0xff00_0000_0110)
	sender := func(host byte) pathsel.Origin {
		return pathsel.OriginSCION(ia, netip.AddrFrom4([4]byte{10, 0, 0, host}), "")
	}
	g := pexGate{}
	now := time.Unix(1, 0)
	take := func(what string, from pathsel.Origin, named []pexPeer, want int) {
		t.Helper()
		if got := len(g.admit(from, named, now)); got != want {
			t.Errorf("%s: %d accepted, want %d", what, got, want)
		}
	}
	take("one AS in a message", sender(1), list(maxNamed, "1-ff00:0:110,[10.0.0.%d]:1"), pexNamedMost)
	take("one /24 in a message", sender(2), list(maxNamed, "192.0.2.%d:1"), pexNamedMost)
	take("a full message", sender(1), many, maxNamed)
	take("the rest of a host's share", sender(1), many, pexSenderMost-pexNamedMost-maxNamed)
	take("the rest of an AS's share", sender(3), many, maxNamed)
	take("nothing is left of it", sender(4), many, pexNetMost-pexSenderMost-pexNamedMost-maxNamed)
	take("another AS", pathsel.OriginSCION(ia+1, netip.AddrFrom4([4]byte{10, 0, 0, 1}), ""), many, maxNamed)
	now = now.Add(time.Minute)
	take("a minute later", sender(1), many, maxNamed)
	for range 10 {
		now = now.Add(pexForget)
		take("later still", sender(1), many, maxNamed)
		if len(g) != 2 {
			t.Fatalf("%d hosts and networks are remembered", len(g))
		}
	}
	// Any number of keys without a proven ISD-AS are one sender.
	accepted := 0
	for i := range 100 {
		accepted += len(g.admit(pathsel.OriginUnproven(fmt.Sprint(i)), many, now))
	}
	if accepted != pexSenderMost {
		t.Errorf("%d addresses of unproven senders are accepted, want %d", accepted, pexSenderMost)
	}
}

// Nobody is told, or believed, of an address that is nearer than the other side.
func TestMayName(t *testing.T) {
	at := func(s string) scionnet.Addr { return pexPeers(t, s)[0].at }
	home, own := at("1-ff00:0:110,[10.0.0.1]:1").IA, netip.MustParseAddr("10.0.0.1")
	for _, c := range []struct {
		host, named string
		may         bool
	}{
		{"192.0.2.1:1", "198.51.100.1:1", true},
		{"192.0.2.1:1", "10.0.0.1:1", false},
		{"192.0.2.1:1", "169.254.169.254:80", false},
		{"192.0.2.1:1", "127.0.0.1:1", false},
		{"10.0.0.9:1", "10.0.0.1:1", true},
		{"10.0.0.9:1", "[::1]:1", false},
		{"127.0.0.1:1", "127.0.0.2:1", true},
		{"192.0.2.1:1", "1-ff00:0:111,[127.0.0.1]:1", true}, // in another AS
		{"192.0.2.1:1", "1-ff00:0:110,[127.0.0.1]:1", false},
		{"192.0.2.1:1", "1-ff00:0:110,[10.0.0.2]:1", true},
		{"1-ff00:0:111,[10.0.0.9]:1", "10.0.0.1:1", false}, // its 10.0.0.9 is another network
		{"1-ff00:0:111,[10.0.0.9]:1", "192.0.2.1:1", true},
		{"1-ff00:0:110,[10.0.0.9]:1", "10.0.0.1:1", true},
		{"1-ff00:0:110,[10.0.0.9]:1", "127.0.0.1:1", false},
	} {
		if got := mayName(at(c.host), at(c.named), home, own); got != c.may {
			t.Errorf("%s names %s: %v", c.host, c.named, got)
		}
	}
}

func TestPEXTold(t *testing.T) {
	var all []pexPeer
	for i := range 120 {
		all = append(all, pexPeers(t, fmt.Sprintf("10.0.%d.1:1", i))...)
	}
	var x pexTold
	now := time.Unix(1, 0)
	step := func(later time.Duration, present []pexPeer, added, dropped int) {
		t.Helper()
		now = now.Add(later)
		m, ok := x.tell(present, now)
		if len(m.added) != added || len(m.dropped) != dropped || ok != (added+dropped > 0) {
			t.Errorf("%d added and %d dropped (%v), want %d and %d", len(m.added), len(m.dropped), ok, added, dropped)
		}
	}
	step(0, nil, 0, 0)
	step(time.Second, all[:3], 0, 0) // it has just looked
	step(pexAgain, all[:3], 3, 0)
	step(time.Second, all, 0, 0)
	step(pexEvery-time.Second, all, 50, 0)
	step(pexEvery, all, 50, 0)
	step(pexEvery, all, 17, 0)
	step(pexEvery, all, 0, 0)
	step(pexAgain, all[1:], 0, 1)
	step(pexEvery, nil, 0, 50)
	step(pexEvery, all[:2], 2, 50) // the first 51 were dropped before
}
