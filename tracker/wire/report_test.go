package wire

import (
	"encoding/hex"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"braid/pathsel"
)

// reports are one with every figure, and one with the least that there can be.
func reports(t testing.TB) []PathReport {
	a, b, c := mustIA(t, "1-ff00:0:111"), mustIA(t, "1-ff00:0:110"), mustIA(t, "2-64512")
	return []PathReport{
		{
			Interfaces: []pathsel.Interface{{IA: a, ID: 1}, {IA: b, ID: 2}, {IA: b, ID: 65535}, {IA: c, ID: 4}},
			RTT:        12345 * time.Microsecond, Rate: 2_500_000, Sent: 1000, Lost: 7, Age: 90 * time.Second,
		},
		{Interfaces: []pathsel.Interface{{IA: a, ID: 7}, {IA: b, ID: 8}}, RTT: time.Microsecond},
	}
}

const (
	hop1 = "\x00\x01\xff\x00\x00\x00\x01\x11\x00\x07" // 1-ff00:0:111#7
	hop2 = "\x00\x01\xff\x00\x00\x00\x01\x10\x00\x08" // 1-ff00:0:110#8
)

func TestReports(t *testing.T) {
	want := reports(t)
	b := AppendReports(nil, want)
	got, err := ParseReports(b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if got[0].Src().String() != "1-ff00:0:111" || got[0].Dst().String() != "2-64512" {
		t.Errorf("from %s to %s", got[0].Src(), got[0].Dst())
	}
	if s := string(AppendReports(nil, want[1:])); s != "d5:pathsld2:if20:"+hop1+hop2+"3:rtti1eeee" {
		t.Errorf("%q", s)
	}
	longest := want[0]
	longest.Interfaces = nil
	for i := range MaxInterfaces {
		longest.Interfaces = append(longest.Interfaces, pathsel.Interface{IA: pathsel.IA(1<<48 | 1 + (i+1)/2), ID: 65535})
	}
	longest.RTT, longest.Rate, longest.Sent, longest.Lost, longest.Age = MaxReportRTT, MaxReportRate, maxPackets, maxPackets, MaxReportAge
	all := slices.Repeat([]PathReport{longest}, MaxReports)
	if b := AppendReports(nil, all); len(b) > MaxReportBody {
		t.Errorf("%d of the longest reports take %d bytes", MaxReports, len(b))
	} else if got, err := ParseReports(b); err != nil || len(got) != MaxReports {
		t.Errorf("%d, %v", len(got), err)
	}
	one := func(fields string) string { return "d5:pathsld" + fields + "eee" }
	for _, tt := range []struct{ body, reason string }{
		{"", "ends too early"},
		{"le", "want a dictionary"},
		{"d5:pathsi1ee", "want a list"},
		{"d5:pathslee garbage", "8 bytes after the end"},
		{one("3:rtti1e"), "without its interfaces"},
		{one("2:if0:"), "want 1 to 32 links"},
		{one("2:if10:" + hop1), "want 1 to 32 links"},
		{one("2:if19:" + hop1 + hop2[1:]), "want 1 to 32 links"},
		{one("2:if20:" + hop1 + hop1), "visits 1-ff00:0:111 twice"},
		{one("2:if40:" + hop1 + hop2 + hop2 + hop1), "visits 1-ff00:0:111 twice"},
		{one("2:if40:" + hop1 + hop2 + hop1 + hop2), "jumps from"},
		{one("2:if20:" + hop1 + strings.Repeat("\x00", 10)), "wildcard"},
		{one("2:if20:" + hop1 + hop2[:8] + "\x00\x00"), "wildcard"},
		{one("2:if20:" + hop1 + hop2 + "4:losti1e"), "1 of 0 packets lost"},
		{one("2:if20:" + hop1 + hop2 + "3:rtti-1e"), "rtt: -1"},
		{one("2:if20:" + hop1 + hop2 + "3:rtti60000001e"), "rtt"},
		{one("2:if20:" + hop1 + hop2 + "4:ratei99999999999999e"), "rate"},
		{one("2:if20:" + hop1 + hop2 + "3:agei86401e"), "age"},
		{string(AppendReports(nil, append(all, want[1]))), "more than"},
	} {
		_, err := ParseReports([]byte(tt.body))
		var f *Failure
		if !errors.As(err, &f) || !strings.Contains(f.Reason, tt.reason) {
			t.Errorf("%.60q: %v, want a refusal with %q", tt.body, err, tt.reason)
		}
	}
	if got, err := ParseReports([]byte(one("2:if20:" + hop1 + hop2 + "7:unknownl3:abce"))); err != nil || len(got) != 1 {
		t.Errorf("an unknown key: %v, %v", got, err)
	}
}

func hintsOf(t testing.TB) pathsel.Hints {
	var p [3]pathsel.Fingerprint
	for i := range p {
		p[i] = pathsel.FingerprintOf([]pathsel.Interface{{IA: 1<<48 | 1, ID: uint64(i)}})
	}
	return pathsel.Hints{mustIA(t, "1-ff00:0:110"): {{Path: p[1], Rate: 3e6}, {Path: p[0]}}, mustIA(t, "2-64512"): {{Path: p[2], Rate: 256}}}
}

func TestHints(t *testing.T) {
	want := hintsOf(t)
	a := Answer{Interval: time.Minute, Hints: want, Reports: MaxReports}
	b := a.Append(nil, &Announce{Compact: true})
	raw, err := hex.DecodeString(string(want[mustIA(t, "2-64512")][0].Path))
	if err != nil {
		t.Fatal(err)
	}
	const as = "8:\x00\x02\x00\x00\x00\x00\xfc\x00"
	for _, text := range []string{
		as + "32:" + string(raw) + "e10:path rates", as + "8:\x00\x00\x00\x00\x00\x00\x01\x00e12:path reportsi32e",
	} {
		if !strings.Contains(string(b), text) {
			t.Errorf("%q has no %q", b, text)
		}
	}
	got, err := ParseAnswer(b)
	if err != nil || !reflect.DeepEqual(got.Hints, want) || got.Reports != MaxReports {
		t.Errorf("%+v, %v", got, err)
	}
	plain := Answer{Interval: time.Minute}
	if b := string(plain.Append(nil, &Announce{Compact: true})); strings.Contains(b, "path") {
		t.Errorf("%q", b)
	}
	// What cannot be used is passed over.
	for _, s := range []string{"de", "d1:xi1ee", "d3:abc32:" + string(raw) + "e", "d8:aaaaaaaa31:" + string(raw[:31]) + "e", "d8:aaaaaaaa0:e"} {
		if got, err := ParseAnswer([]byte("d10:path hints" + s + "12:path reportsi-5ee")); err == nil && (len(got.Hints) > 0 || got.Reports != 0) {
			t.Errorf("%q: %+v", s, got)
		}
	}
	key := "d8:aaaaaaaa"
	hint := "d10:path hints" + key + "32:" + string(raw) + "e"
	for _, s := range []string{"de", key + "0:e", key + "7:1234567e", "d8:bbbbbbbb8:\x00\x00\x00\x00\x00\x00\x00\x05e", "d1:x8:12345678e", key + "8:\xff2345678e"} {
		got, err := ParseAnswer([]byte(hint + "10:path rates" + s + "e"))
		if h := got.Hints[0x6161616161616161]; err != nil || len(h) != 1 || h[0].Rate != 0 {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{key + "8:\x00\x00\x00\x00\x00\x00\x00\x05e", key + "18:\x00\x00\x00\x00\x00\x00\x00\x05more bytese"} {
		got, err := ParseAnswer([]byte(hint + "10:path rates" + s + "e"))
		if h := got.Hints[0x6161616161616161]; err != nil || len(h) != 1 || h[0].Rate != 5 {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
		if got, err := ParseAnswer([]byte("d10:path rates" + s + "e")); err != nil || len(got.Hints) != 0 {
			t.Errorf("rates alone: %+v, %v", got, err)
		}
	}
	many := pathsel.Hints{}
	for n := range 2 * MaxHintASes {
		many[pathsel.IA(1<<48|n+1)] = slices.Repeat(want[mustIA(t, "2-64512")], 2*MaxHints)
	}
	a.Hints = many
	if got, err = ParseAnswer(a.Append(nil, &Announce{Compact: true})); err != nil || len(got.Hints) != MaxHintASes || len(got.Hints[1<<48|1]) != MaxHints {
		t.Errorf("%d, %v", len(got.Hints), err)
	}
}

func TestOrder(t *testing.T) {
	for _, o := range []Order{Random, Nearest, Mixed} {
		a := Announce{InfoHash: InfoHash([]byte(testHash)), PeerID: PeerID([]byte(testID)), NumWant: NoCount, Peers: o, Hints: o == Mixed}
		got, err := ParseAnnounce(a.Query())
		if err != nil || got != a {
			t.Errorf("%s: %+v, %v", o, got, err)
		}
	}
	if _, err := ParseAnnounce(least + "&peers=best"); err == nil || !strings.Contains(err.Error(), "peers: want") {
		t.Error(err)
	}
}

// What is read is valid, and is written as something that is read the same.
func FuzzParseReports(f *testing.F) {
	f.Add(AppendReports(nil, reports(f)))
	f.Add([]byte("d5:pathslee"))
	f.Add([]byte("d5:pathsld2:if20:" + hop1 + hop1 + "eee"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParseReports(b)
		if err != nil {
			return
		}
		for _, r := range got {
			if len(r.Interfaces) < 2 || r.Lost > r.Sent || r.RTT < 0 || r.Age < 0 || r.Rate < 0 || r.Src() == r.Dst() {
				t.Fatalf("%+v", r)
			}
		}
		again, err := ParseReports(AppendReports(nil, got))
		if err != nil || !reflect.DeepEqual(got, again) {
			t.Fatalf("%+v, %v; want %+v", again, err, got)
		}
	})
}
