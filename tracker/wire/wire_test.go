package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"braid/pathsel"
)

const (
	testHash = "aaaaaaaaaaaaaaaaaaaa"
	testID   = "-BR0100-bbbbbbbbbbbb"
	least    = "info_hash=" + testHash + "&peer_id=" + testID + "&port=6881"
)

func mustIA(t testing.TB, s string) pathsel.IA {
	t.Helper()
	ia, err := pathsel.ParseIA(s)
	if err != nil {
		t.Fatal(err)
	}
	return ia
}

// peers has one of every kind.
func peers(t testing.TB) []Peer {
	ia := mustIA(t, "1-ff00:0:110")
	return []Peer{
		{Addr: Addr{Host: netip.MustParseAddr("10.0.0.1"), Port: 1}},
		{Addr: Addr{Host: netip.MustParseAddr("2001:db8::1"), Port: 2}},
		{Addr: Addr{IA: ia, Host: netip.MustParseAddr("10.0.0.1"), Port: 3}},
		{Addr: Addr{IA: ia, Host: netip.MustParseAddr("fd00::1"), Port: 4}},
	}
}

func TestParseAnnounce(t *testing.T) {
	base := Announce{InfoHash: InfoHash([]byte(testHash)), PeerID: PeerID([]byte(testID)), Port: 6881, Left: NoCount, NumWant: NoCount}
	with := func(f func(*Announce)) Announce { a := base; f(&a); return a }
	for _, tt := range []struct {
		query string
		want  Announce
	}{
		{least, base},
		{"&" + least + "&", base},
		{least + "&ip=10.0.0.9&ipv6=fd00::1&unknown=zz", base},
		{least + "&left=-1&event=", base},
		{least + "&event=empty", base},
		{strings.Replace(least, "aa", "%61a", 1), base},
		{least + "&uploaded=1&downloaded=2&left=0&event=completed&numwant=7&compact=1&no_peer_id=1&scion=1&passkey=secret&trackerid=t", with(func(a *Announce) {
			a.Uploaded, a.Downloaded, a.Left, a.Event, a.NumWant = 1, 2, 0, Completed, 7
			a.Compact, a.NoPeerID, a.SCION, a.Passkey, a.TrackerID = true, true, true, "secret", "t"
		})},
		{least + "&event=paused&key=deadbeef", with(func(a *Announce) { a.Event, a.Key = Paused, "DEADBEEF" })},
		{least + "&key=1F", with(func(a *Announce) { a.Key = "0000001F" })},
		{least + "&key=not-hex", with(func(a *Announce) { a.Key = "not-hex" })},
	} {
		if got, err := ParseAnnounce(tt.query); err != nil || got != tt.want {
			t.Errorf("ParseAnnounce(%q) = %+v, %v; want %+v", tt.query, got, err, tt.want)
		}
	}
	for _, tt := range []struct{ query, reason string }{
		{"", "info_hash is missing"},
		{"info_hash=" + testHash, "peer_id is missing"},
		{"info_hash=" + testHash + "&peer_id=" + testID, "port is missing"},
		{least + "&info_hash=" + testHash, "twice"},
		{"info_hash=short", "5 bytes"},
		{least + "&peer_id=%", "percent"},
		{least + "&unknown=%zz", "percent"},
		{strings.Replace(least, "6881", "65536", 1), "port"},
		{strings.Replace(least, "6881", "-1", 1), "port"},
		{least + "&left=-2", "left"},
		{least + "&uploaded=1e3", "uploaded"},
		{least + "&downloaded=99999999999999999999", "downloaded"},
		{least + "&event=resumed", "event"},
		{least + "&numwant=-2", "numwant"},
		{least + "&key=" + strings.Repeat("k", 65), "longer than 64"},
		{least + "&x=" + strings.Repeat("x", 9000), "longer than"},
	} {
		_, err := ParseAnnounce(tt.query)
		var f *Failure
		if !errors.As(err, &f) || !strings.Contains(f.Reason, tt.reason) {
			t.Errorf("ParseAnnounce(%.80q): %v, want a refusal with %q", tt.query, err, tt.reason)
		}
	}
}

func TestParseScrape(t *testing.T) {
	one := "info_hash=" + testHash
	if h, key, err := ParseScrape(one + "&passkey=p&" + one); err != nil || len(h) != 2 || h[0] != InfoHash([]byte(testHash)) || key != "p" {
		t.Errorf("%v, %q, %v", h, key, err)
	}
	for _, q := range []string{"", "info_hash=x", "info_hash=%", strings.Repeat(one+"&", MaxScrape+1), one + "&passkey=%"} {
		if _, _, err := ParseScrape(q); err == nil {
			t.Errorf("ParseScrape(%.60q): no error", q)
		}
	}
}

// What one side writes the other reads, and clients that know nothing of SCION see none of it.
func TestAnswer(t *testing.T) {
	a := Answer{
		Interval: 30 * time.Minute, MinInterval: time.Minute, TrackerID: "t", Complete: 2, Incomplete: 3,
		External: netip.MustParseAddr("10.0.0.9"), Warning: "careful", Peers: peers(t),
		Siblings: []string{"scion://1-ff00:0:110,[10.0.0.1]:80", "http://x"},
	}
	for _, tt := range []struct {
		name  string
		to    Announce
		peers int
		bytes string
	}{
		{"compact", Announce{Compact: true}, 2, "5:peers6:\x0a\x00\x00\x01\x00\x016:peers618:"},
		{"compact with SCION", Announce{Compact: true, SCION: true}, 4, "12:peers_scion414:\x00\x01\xff\x00\x00\x00\x01\x10\x0a\x00\x00\x01\x00\x0312:peers_scion626:"},
		{"dictionaries", Announce{}, 2, "5:peersld2:ip8:10.0.0.17:peer id20:"},
		{"dictionaries without IDs", Announce{NoPeerID: true}, 2, "5:peersld2:ip8:10.0.0.14:porti1eed"},
		{"dictionaries with SCION", Announce{SCION: true, NoPeerID: true}, 4, "11:peers_scionld2:ip21:1-ff00:0:110,10.0.0.14:porti3eed"},
	} {
		b := a.Append(nil, &tt.to)
		if !strings.Contains(string(b), tt.bytes) || !tt.to.SCION && strings.Contains(string(b), "scion") {
			t.Errorf("%s: %q, want %q in it", tt.name, b, tt.bytes)
		}
		want := a
		want.Peers = a.Peers[:tt.peers]
		if !tt.to.SCION {
			want.Siblings = nil
		}
		if got, err := ParseAnswer(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", tt.name, got, err, want)
		}
	}
	long, many := strings.Repeat("x", MaxSibling+1), strings.Repeat("1:x", MaxSiblings+1)
	for in, want := range map[string]int{
		"d8:siblingsl1:ai5e1:bld1:xi0eeee5:peers0:e": 2, "d8:siblingsi5ee": 0, "d8:siblings1:xe": 0, "d8:siblingsle5:peers0:e": 0,
		"d8:siblingsl" + many + "ee": MaxSiblings, fmt.Sprintf("d8:siblingsl%d:%s1:xee", len(long), long): 1,
	} {
		if got, err := ParseAnswer([]byte(in)); err != nil || len(got.Siblings) != want {
			t.Errorf("%.60q: siblings %q, %v; want %d", in, got.Siblings, err, want)
		}
	}
	empty := Answer{}
	if b := string(empty.Append(nil, &Announce{Compact: true})); !strings.Contains(b, "5:peers0:") {
		t.Errorf("no peers: %q", b)
	}
}

func TestFailure(t *testing.T) {
	for _, f := range []Failure{{Reason: "no"}, {Reason: "no", RetryIn: Never}, {Reason: "no", RetryIn: 5 * time.Minute}} {
		_, err := ParseAnswer(f.Append(nil))
		var got *Failure
		if !errors.As(err, &got) || *got != f {
			t.Errorf("%+v became %+v", f, err)
		}
	}
	if got := FailureOf(errors.New("disk on fire")); strings.Contains(got.Reason, "fire") {
		t.Errorf("a stranger is told %q", got.Reason)
	}
}

// Answers of other trackers, and of those who wish us ill.
func TestParseForeignAnswer(t *testing.T) {
	for _, tt := range []struct {
		in    string
		ok    bool
		peers int
	}{
		{"d8:intervali60e5:peers0:e", true, 0},
		{"d5:peersld2:ip9:127.0.0.14:porti1eed2:ip9:localhost4:porti2eed2:ip7:0.0.0.04:porti3eeee", true, 1},
		{"d5:peersld2:ip9:127.0.0.14:porti65536eeee", true, 0},
		{"d11:peers_scionld2:ip13:0-0,127.0.0.14:porti1eeee", true, 0},
		{"d12:peers_scion414:\x00\x00\xff\x00\x00\x00\x01\x10\x0a\x00\x00\x01\x00\x03e", true, 0},
		{"d5:peers5:abcdee", false, 0},
		{"d8:intervali-5e3:newd1:ali1eee5:peers0:e", true, 0},
		{"d8:intervali99999999999e5:peers0:e", true, 0},
		{"d8:intervali999999999999999999999999e5:peers0:e", false, 0},
		{"d8:completei-1e10:incompletei-2e5:peers0:e", true, 0},
		{"d5:peers99999999999:", false, 0},
		{"d5:peers", false, 0}, {"d", false, 0}, {"", false, 0}, {"<html>", false, 0}, {"i1e", false, 0},
		{"d1:x" + strings.Repeat("l", 100), false, 0},
	} {
		a, err := ParseAnswer([]byte(tt.in))
		if (err == nil) != tt.ok || len(a.Peers) != tt.peers {
			t.Errorf("ParseAnswer(%q) = %+v, %v", tt.in, a, err)
		}
		if a.Interval < 0 || a.Interval > maxInterval {
			t.Errorf("ParseAnswer(%q): interval %v", tt.in, a.Interval)
		}
		if a.Complete < 0 || a.Incomplete < 0 {
			t.Errorf("ParseAnswer(%q): %d seeds, %d others", tt.in, a.Complete, a.Incomplete)
		}
	}
	_, err := ParseAnswer([]byte("d14:failure reason6:\x1b[31mae"))
	if err == nil || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("a terminal is told %q", err)
	}
}

func TestScrapeAnswer(t *testing.T) {
	in := []Counts{{InfoHash: InfoHash{2}, Complete: 1, Downloaded: 2, Downloaders: 3, Incomplete: 4}, {InfoHash: InfoHash{1}}, {InfoHash: InfoHash{1}}}
	b := AppendScrape(nil, in, time.Minute)
	got, err := parseScrapeAnswer(b)
	if err != nil || len(got) != 2 || got[0].InfoHash != (InfoHash{1}) || got[1] != (Counts{InfoHash{2}, 1, 4, 2, 3}) {
		t.Errorf("%q became %+v, %v", b, got, err)
	}
	f := Failure{Reason: "no"}
	if _, err := parseScrapeAnswer(f.Append(nil)); err == nil || err.Error() != "no" {
		t.Errorf("a refusal became %v", err)
	}
}

func TestQueryRoundTrip(t *testing.T) {
	for _, a := range []Announce{
		{Left: NoCount, NumWant: NoCount},
		{
			InfoHash: InfoHash{0, '&', '=', '%', '+', 255}, PeerID: PeerID{'#', ' '}, Port: 65535, Uploaded: 1, Downloaded: 2, Left: 0, Event: Stopped,
			NumWant: 0, Key: "&=", TrackerID: "+ %", Compact: true, NoPeerID: true, SCION: true, Passkey: "p",
		},
	} {
		if got, err := ParseAnnounce(a.Query()); err != nil || got != a {
			t.Errorf("%q became %+v, %v; want %+v", a.Query(), got, err, a)
		}
		if _, err := url.ParseQuery(a.Query()); err != nil {
			t.Error(err)
		}
		if strings.Contains(a.Query(), "+") {
			t.Errorf("%q has a plus sign, which not every tracker takes for a blank", a.Query())
		}
	}
}

func TestUDP(t *testing.T) {
	for _, r := range []UDPRequest{
		{Action: Connect, Transaction: 7},
		{Action: AnnounceUDP, Connection: 9, Transaction: 8, URLData: "/announce?" + strings.Repeat("k", 300), Announce: Announce{
			InfoHash: InfoHash{1}, PeerID: PeerID{2}, Port: 3, Uploaded: 4, Downloaded: 5, Left: 6, Event: Started, NumWant: NoCount, Key: "DEADBEEF", Compact: true,
		}},
		{Action: AnnounceUDP, Announce: Announce{Left: NoCount, NumWant: 5, Key: "00000000", Compact: true}},
		{Action: ScrapeUDP, Connection: 1, Hashes: []InfoHash{{1}, {2}}},
	} {
		if got, err := ParseUDP(r.Append(nil)); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%+v became %+v, %v", r, got, err)
		}
	}
	// The same peer over HTTP and UDP is one peer.
	udp := Announce{PeerID: PeerID([]byte(testID)), Key: udpKey(0x1f)}
	if http, err := ParseAnnounce(least + "&key=1f"); err != nil || http.Identity() != udp.Identity() {
		t.Errorf("identities %x and %x", http.Identity(), udp.Identity())
	}
	whole := (&UDPRequest{Action: AnnounceUDP, URLData: "/k"}).Append(nil)
	for n := range whole {
		r, err := ParseUDP(whole[:n])
		if err == nil && (n < udpAnnounce || r.Action != AnnounceUDP) {
			t.Errorf("%d of %d bytes are taken for %+v", n, len(whole), r)
		}
	}
	many := (&UDPRequest{Action: ScrapeUDP, Hashes: make([]InfoHash, 69)}).Append(nil)
	if _, err := ParseUDP(many); err == nil && len(many) > MaxUDP {
		t.Error("a packet larger than any is taken")
	}
	if _, err := ParseUDP((&UDPRequest{Action: AnnounceUDP, Announce: Announce{Event: 9}}).Append(nil)); FailureOf(err).Reason == "" {
		t.Error(err)
	}
}

func TestUDPAnswers(t *testing.T) {
	a := Answer{Interval: time.Minute, Complete: 1, Incomplete: 2, Peers: peers(t)}
	for i, v6 := range []bool{false, true} {
		got, err := ParseUDPAnswer(a.AppendUDP(nil, 7, v6), v6)
		want := a
		want.Peers = a.Peers[i : i+1]
		if err != nil || got.Transaction != 7 || !reflect.DeepEqual(got.Answer, want) {
			t.Errorf("IPv6 %v: %+v, %v", v6, got, err)
		}
	}
	for range 300 {
		a.Peers = append(a.Peers, a.Peers[0], a.Peers[1])
	}
	for _, v6 := range []bool{false, true} {
		if b := a.AppendUDP(nil, 7, v6); len(b) > MaxUDP || len(b) < MaxUDP-18 {
			t.Errorf("an answer of %d bytes", len(b))
		}
	}
	if got, err := ParseUDPAnswer(AppendConnectUDP(nil, 1, 2), false); err != nil || got.Connection != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParseUDPAnswer((&Failure{Reason: "no"}).AppendUDP(nil, 1), false); err != nil || got.Failure.Reason != "no" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParseUDPAnswer(AppendScrapeUDP(nil, 1, []Counts{{Complete: 1, Downloaded: 2, Incomplete: 3}}), false); err != nil || got.Counts[0] != (Counts{Complete: 1, Downloaded: 2, Incomplete: 3}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, b := range []string{"", "\x00\x00\x00\x00\x00\x00\x00\x01", "\x00\x00\x00\x01\x00\x00\x00\x01aaaa", "\x00\x00\x00\x09\x00\x00\x00\x01aaaa"} {
		if got, err := ParseUDPAnswer([]byte(b), false); err == nil {
			t.Errorf("%q is taken for %+v", b, got)
		}
	}
}

func FuzzParseAnnounce(f *testing.F) {
	f.Add(least + "&left=-1&event=started&key=1f&numwant=3&compact=1")
	f.Add("info_hash=%00&peer_id=+&port=")
	f.Fuzz(func(t *testing.T, q string) {
		a, err := ParseAnnounce(q)
		if err != nil {
			if FailureOf(err).Reason == "" {
				t.Fatalf("no reason for %q", q)
			}
			return
		}
		if again, err := ParseAnnounce(a.Query()); err != nil || again != a {
			t.Fatalf("%+v became %+v, %v", a, again, err)
		}
	})
}

func FuzzParseScrape(f *testing.F) {
	hash := "info_hash=" + strings.Repeat("%01", 20)
	f.Add(hash)
	f.Add(hash + "&passkey=secret%2Dkey&info_hash=aaaaaaaaaaaaaaaaaaaa&x")
	f.Add(strings.Repeat("&"+hash, MaxScrape+1))
	f.Fuzz(func(t *testing.T, q string) {
		hashes, passkey, err := ParseScrape(q)
		if err != nil {
			if FailureOf(err).Reason == "" {
				t.Fatalf("no reason for %q", q)
			}
			return
		}
		if len(hashes) == 0 || len(hashes) > MaxScrape || len(passkey) > maxToken {
			t.Fatalf("%q asks for %d hashes with the key %q", q, len(hashes), passkey)
		}
		again := url.Values{"passkey": {passkey}}
		for _, h := range hashes {
			again.Add("info_hash", string(h[:]))
		}
		if passkey == "" {
			again.Del("passkey")
		}
		h, k, err := ParseScrape(again.Encode())
		if err != nil || k != passkey || !slices.Equal(h, hashes) {
			t.Fatalf("%q became %x, %q, %v", q, h, k, err)
		}
	})
}

// Hashes are decoded as net/url decodes everything else.
func FuzzFill(f *testing.F) {
	for _, raw := range []string{"", "a+b", "%41%zz", "%4", "%", "%C3%a9%Fg", "100%25", "%%41", "%2B+%20"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		want, refused := url.QueryUnescape(raw)
		got := make([]byte, len(want))
		if err := fill(got, "info_hash", raw); (err == nil) != (refused == nil) || err == nil && string(got) != want {
			t.Fatalf("%q became %q, %v; want %q, %v", raw, got, err, want, refused)
		}
	})
}

func FuzzParseAnswer(f *testing.F) {
	all := Answer{Siblings: []string{"http://x"}, Interval: time.Minute, TrackerID: "t", Warning: "w", External: netip.MustParseAddr("::1"), Peers: peers(f), Hints: hintsOf(f), Reports: 3}
	f.Add(all.Append(nil, &Announce{Compact: true, SCION: true}))
	f.Add(all.Append(nil, &Announce{SCION: true}))
	f.Add((&Failure{Reason: "no", RetryIn: Never}).Append(nil))
	f.Add([]byte("d5:filesd20:aaaaaaaaaaaaaaaaaaaad8:completei1eeee"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = parseScrapeAnswer(b)
		a, err := ParseAnswer(b)
		if err != nil {
			return
		}
		for _, p := range a.Peers {
			if !p.Addr.Dialable() {
				t.Fatalf("%q gives the peer %+v", b, p)
			}
		}
		// What was read is written and read again without loss.
		again, err := ParseAnswer(a.Append(nil, &Announce{SCION: true}))
		if err != nil || len(again.Peers) != len(a.Peers) || len(again.Hints) != len(a.Hints) || again.Reports != a.Reports {
			t.Fatalf("%+v became %+v, %v", a, again, err)
		}
	})
}

func FuzzParseUDP(f *testing.F) {
	f.Add((&UDPRequest{Action: Connect}).Append(nil))
	f.Add((&UDPRequest{Action: AnnounceUDP, URLData: "/a?b"}).Append(nil))
	f.Add((&UDPRequest{Action: ScrapeUDP, Hashes: []InfoHash{{1}}}).Append(nil))
	answer := Answer{Peers: peers(f)}
	f.Add(answer.AppendUDP(nil, 1, false))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v6 := range []bool{false, true} {
			if a, err := ParseUDPAnswer(b, v6); err == nil {
				for _, p := range a.Answer.Peers {
					if !p.Addr.Dialable() {
						t.Fatalf("%q gives the peer %+v", b, p)
					}
				}
			}
		}
		r, err := ParseUDP(b)
		if err != nil {
			return
		}
		if again, err := ParseUDP(r.Append(nil)); err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
	})
}
