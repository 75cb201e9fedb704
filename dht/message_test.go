package dht

import (
	"crypto/ed25519"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/anacrolix/torrent/bencode"

	"braid/scionnet"
)

// text is the value of an item.
func text(s string) []byte { return bencode.MustMarshal(s) }

func addr(t testing.TB, s string) Addr {
	t.Helper()
	a, err := ParseAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var someAddrs = []string{
	"192.0.2.1:6881", "[2001:db8::1]:6881", "1-ff00:0:110,[10.0.0.1]:31000", "2-64512,[2001:db8::2]:31000",
}

func hexID(t testing.TB, s string) (id ID) {
	t.Helper()
	if err := id.UnmarshalText([]byte(s)); err != nil {
		t.Fatal(err)
	}
	return id
}

// The examples of BEP 42: the first 21 bits and the last byte.
func TestBoundID(t *testing.T) {
	for _, tt := range []struct{ host, id string }{
		{"124.31.75.21", "5fbfbff10c5d6a4ec8a88e4c6ab4c28b95eee401"},
		{"21.75.31.124", "5a3ce9c14e7a08645677bbd1cfe7d8f956d53256"},
		{"65.23.51.170", "a5d43220bc8f112a3d426c84764f8c2a1150e616"},
		{"84.124.73.14", "1b0321dd1bb1fe518101ceef99462b947a01ff41"},
		{"43.213.53.83", "e56f6cbf5b7c4be0237986d5243b87aa6d51305a"},
	} {
		a := Addr{Host: netip.MustParseAddr(tt.host), Port: 1}
		if id := hexID(t, tt.id); !IsBound(id, a) {
			t.Errorf("%s: %s is not bound", tt.host, id)
		}
		id := hexID(t, tt.id)
		id[1] ^= 1
		if IsBound(id, a) {
			t.Errorf("%s: %s is bound", tt.host, id)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range someAddrs {
		a := addr(t, s)
		id := BoundID(a, r)
		if !IsBound(id, a) {
			t.Errorf("%s: %s is not bound", s, id)
		}
		if other := a; a.IsSCION() {
			if other.IA++; IsBound(id, other) {
				t.Errorf("%s: the ID holds in another AS", s)
			}
		}
	}
}

func TestIDs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 160 {
		id := randomID(r)
		if got := id.commonBits(id.randomIn(n, r)); got != n {
			t.Errorf("a point with %d common bits has %d", n, got)
		}
	}
}

func messages(t testing.TB) []*Message {
	id, target := hexID(t, strings.Repeat("ab", 20)), hexID(t, strings.Repeat("cd", 20))
	var contacts []Contact
	var peers []Addr
	for _, s := range someAddrs {
		contacts, peers = append(contacts, Contact{target, addr(t, s)}), append(peers, addr(t, s))
	}
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	item := &Item{Value: text("hello"), Salt: []byte("salt"), Seq: 7}
	item.Sign(key)
	filter := strings.Repeat("\x01", filterLen)
	return []*Message{
		{T: "aa", Query: Ping, ID: id},
		{T: "aa", Query: Ping, ID: id, ReadOnly: true, Token: "12345678"},
		{T: "aa", Query: FindNode, ID: id, Target: target, Want: []scionnet.Family{scionnet.IP4, scionnet.SCION6}},
		{T: "aa", Query: GetPeers, ID: id, Target: target, Scrape: true},
		{T: "aa", Query: AnnouncePeer, ID: id, Target: target, Port: 6881, Token: "t", Seed: true},
		{T: "aa", Query: AnnouncePeer, ID: id, Target: target, ImpliedPort: true, Token: "t"},
		{T: "aa", Query: Get, ID: id, Target: target},
		{T: "aa", Query: Put, ID: id, Token: "t", Item: item},
		{T: "aa", Query: Put, ID: id, Token: "t", Item: &Item{Value: text("x")}},
		{T: "aa", ID: id},
		{T: "aa", ID: id, Token: "t", Nodes: contacts, Values: peers, Seen: peers[2]},
		{T: "aa", ID: id, Seeds: filter, Downloaders: filter, Seen: peers[0]},
		{T: "aa", ID: id, Token: "t", Item: item, Version: "BR01"},
		{T: "aa", Code: ErrProtocol, Text: "no"},
	}
}

func TestMessages(t *testing.T) {
	for _, m := range messages(t) {
		b := m.Encode()
		got, err := ParseMessage(b)
		if err != nil {
			t.Errorf("%q: %v", b, err)
			continue
		}
		if i := got.Item; i != nil && len(i.Salt) == 0 {
			i.Salt = nil
		}
		if want := m; want.Item != nil && !want.IsQuery() {
			want.Item.Salt, got.Item.Salt = nil, nil // not in answers
		}
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%q:\n%+v\n%+v", b, got, m)
		}
		if !m.IsQuery() && len(b) > m.size() {
			t.Errorf("%q has %d bytes, size says %d", b, len(b), m.size())
		}
	}
}

func TestForeignMessages(t *testing.T) {
	for _, tt := range []struct {
		text string
		ok   bool
	}{
		{"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t2:aa1:y1:qe", true},
		{"d1:ad2:id20:abcdefghij01234567896:target20:mnopqrstuvwxyz123456e1:q9:find_node1:t2:aa1:y1:qe", true},
		{"d1:rd2:id20:0123456789abcdefghij5:nodes0:e1:t2:aa1:y1:re", true},
		{"d1:eli201e23:A Generic Error Ocurrede1:t2:aa1:y1:ee", true},
		{"d1:ad2:id20:abcdefghij01234567896:target20:mnopqrstuvwxyz123456e1:q4:what1:t2:aa1:y1:qe", true}, // like find_node
		{"d1:ad2:id19:abcdefghij012345678e1:q4:ping1:t2:aa1:y1:qe", false},
		{"d1:rd2:id20:0123456789abcdefghij5:nodes5:abcdee1:t2:aa1:y1:re", false},
		{"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t2:aa1:y1:x", false},
		{"d1:q4:ping1:t2:aa1:y1:qe", false},
		{strings.Repeat("l", 100) + strings.Repeat("e", 100), false},
		{"d1:x" + "l" + strings.Repeat("de", 300) + "e" + "e", false},
		{"", false}, {"d", false}, {"1400:", false}, {"99999999999999999999:", false},
	} {
		if _, err := ParseMessage([]byte(tt.text)); (err == nil) != tt.ok {
			t.Errorf("%q: %v", tt.text, err)
		}
	}
}

// BEP 44's test vectors.
func TestItems(t *testing.T) {
	key, _ := hex.DecodeString("77ff84905a91936367c01360803104f92432fcd904a43511876df5cdf3e7e548")
	for _, tt := range []struct{ salt, sig, target string }{
		{"", "305ac8aeb6c9c151fa120f120ea2cfb923564e11552d06a5d856091e5e853cff1260d3f39e4999684aa92eb73ffd136e6f4f3ecbfda0ce53a1608ecd7ae21f01", "4a533d47ec9c7d95b1ad75f576cffc641853b750"},
		{"foobar", "6834284b6b24c3204eb2fea824d82f88883a3d95e8b4a21b8c0ded553d17d17ddf9a8a7104b1258f30bed3787e6cb896fca78c58f8e03b5f18f14951a87d9a08", "411eba73b6f087ca51a3795d9c8c938d365e32c1"},
	} {
		sig, _ := hex.DecodeString(tt.sig)
		i := &Item{Value: []byte("12:Hello World!"), Key: key, Salt: []byte(tt.salt), Seq: 1, Signature: sig}
		if !i.Verify(hexID(t, tt.target)) {
			t.Errorf("salt %q: not valid", tt.salt)
		}
		i.Seq++
		if i.Verify(hexID(t, tt.target)) {
			t.Errorf("salt %q: valid with another number", tt.salt)
		}
	}
	i := &Item{Value: []byte("12:Hello World!")}
	if !i.Verify(hexID(t, "e5f96f6f38320f0f33959cb4d3d656452117aadb")) {
		t.Error("the immutable item is not valid")
	}
}

func TestTokens(t *testing.T) {
	var x tokens
	a, now := addr(t, someAddrs[2]), time.Unix(1000, 0)
	token := x.give(now, a)
	other := a
	other.IA++
	for _, tt := range []struct {
		from  Addr
		after time.Duration
		token string
		want  bool
	}{
		{a, 0, token, true}, {a, tokenLife, token, true}, {a, 2 * tokenLife, token, false},
		{other, 0, token, false}, {a, 0, token[:7], false}, {a, 0, "", false},
	} {
		if got := x.valid(now.Add(tt.after), tt.from, tt.token); got != tt.want {
			t.Errorf("%s after %v: %v", tt.from, tt.after, got)
		}
	}
}

func FuzzMessage(f *testing.F) {
	for _, m := range messages(f) {
		f.Add(m.Encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMessage(b)
		if err != nil {
			return
		}
		again, err := ParseMessage(m.Encode())
		if err != nil && m.Query != "" && m.Item == nil {
			t.Fatalf("%q: its own bytes are refused: %v", b, err)
		}
		if err == nil && again.T != m.T {
			t.Fatalf("%q: the transaction changes", b)
		}
		if !m.IsQuery() && len(m.Encode()) > m.size() {
			t.Fatalf("%q: size says %d, it is %d", b, m.size(), len(m.Encode()))
		}
	})
}

// A token is accepted from nobody else, whatever it is.
func FuzzToken(f *testing.F) {
	f.Add("12345678", uint32(1), uint16(2))
	f.Fuzz(func(t *testing.T, token string, host uint32, port uint16) {
		x := tokens{secret: [16]byte{1, 2, 3}}
		a := Addr{Host: netip.AddrFrom4([4]byte{byte(host >> 24), byte(host >> 16), byte(host >> 8), byte(host)}), Port: port}
		now := time.Unix(1e9, 0)
		if x.valid(now, a, token) && token != x.give(now, a) && token != x.give(now.Add(-tokenLife), a) {
			t.Fatalf("%q is accepted", token)
		}
	})
}
