package wire

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

var (
	signalHash = InfoHash([]byte("\x00\x7f\x80\xff\"\\aaaaaaaaaaaaaa"))
	signalPeer = PeerID([]byte("-WW0300-\xe9\xff4567890abc"))
)

func TestSignals(t *testing.T) {
	offer := Offer{ID: "\x01\xff", SDP: "v=0\r\n"}
	for name, s := range map[string]Signal{
		"announce": {InfoHash: signalHash, PeerID: signalPeer, Event: Started, Uploaded: 1, Downloaded: 2, Left: 3, Offers: []Offer{offer, offer}},
		"magnet":   {InfoHash: signalHash, PeerID: signalPeer, Left: NoCount},
		"answer":   {InfoHash: signalHash, PeerID: signalPeer, ToPeer: PeerID{1}, Left: NoCount, Answer: offer},
		"scrape":   {Scrape: true, Left: NoCount, Counts: []Counts{{InfoHash: signalHash}, {InfoHash: InfoHash{1}}}},
	} {
		if got, err := ParseSignal(s.Request()); err != nil || !reflect.DeepEqual(got, s) {
			t.Errorf("%s: %+v became %+v, %v", name, s, got, err)
		}
	}
	for name, s := range map[string]Signal{
		"answer":  {InfoHash: signalHash, Left: NoCount, Interval: time.Minute, Complete: 1, Incomplete: 2, Warning: "w"},
		"offer":   {InfoHash: signalHash, PeerID: signalPeer, Left: NoCount, Offer: offer},
		"refusal": {Left: NoCount, Failure: "no"},
		"scrape":  {Scrape: true, Left: NoCount, Counts: []Counts{{InfoHash: signalHash, Complete: 1, Incomplete: 2, Downloaded: 3}}},
	} {
		if got, err := ParseSignal(s.Reply()); err != nil || !reflect.DeepEqual(got, s) {
			t.Errorf("%s: %+v became %+v, %v", name, s, got, err)
		}
	}
}

// What webtorrent 3 sends: left is null while it is unknown, and offer IDs are bytes.
func TestSignalOfWebTorrent(t *testing.T) {
	s, err := ParseSignal([]byte(`{"numwant":5,"uploaded":0,"downloaded":0,"left":null,"event":"started","action":"announce",` +
		`"info_hash":"aaaaaaaaaaaaaaaaaaa\u00e9","peer_id":"-WW0300-bbbbbbbbbbbb","offers":[{"offer":{"type":"offer","sdp":"v=0"},"offer_id":"ÿ"}]}`))
	if err != nil || s.InfoHash[19] != 0xe9 || s.Left != NoCount || s.Event != Started || s.Offers[0].ID != "\xff" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestSignalsRefused(t *testing.T) {
	ok := Signal{InfoHash: signalHash, PeerID: signalPeer, Offers: []Offer{{ID: "1", SDP: "v=0"}}}
	with := func(change func(*Signal)) []byte { s := ok; change(&s); return s.Request() }
	for want, b := range map[string][]byte{
		"malformed":       []byte(`{`),
		"action":          []byte(`{"action":"x"}`),
		"info_hash":       []byte(`{"action":"announce","info_hash":"short"}`),
		"up to U+00FF":    []byte(`{"action":"announce","info_hash":"ŵaaaaaaaaaaaaaaaaaaa"}`),
		"more than 65536": []byte(strings.Repeat(" ", MaxSignal+1)),
		"at most 10":      with(func(s *Signal) { s.Offers = make([]Offer, MaxOffers+1) }),
		"description":     with(func(s *Signal) { s.Offers = []Offer{{ID: "1", SDP: strings.Repeat("x", maxSDP+1)}} }),
		"offer_id":        with(func(s *Signal) { s.Offers = []Offer{{SDP: "x"}} }),
		"type":            []byte(strings.Replace(string(ok.Request()), `"type":"offer"`, `"type":"answer"`, 1)),
		"torrents":        (&Signal{Scrape: true, Counts: make([]Counts, MaxScrape+1)}).Request(),
	} {
		if _, err := ParseSignal(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %s", b, err, want)
		}
	}
}

func FuzzParseSignal(f *testing.F) {
	f.Add((&Signal{InfoHash: signalHash, PeerID: signalPeer, Event: Started, Offers: []Offer{{ID: "\xff", SDP: "v=0"}}}).Request())
	f.Add((&Signal{InfoHash: signalHash, ToPeer: signalPeer, Answer: Offer{ID: "1", SDP: "v=0"}}).Request())
	f.Add((&Signal{Scrape: true, Counts: []Counts{{InfoHash: signalHash, Complete: 1}}}).Reply())
	f.Add((&Signal{Failure: "no"}).Reply())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseSignal(b)
		if err != nil {
			if FailureOf(err).Reason == "" {
				t.Fatalf("no reason for %q", b)
			}
			return
		}
		if len(s.Offers) > MaxOffers || len(s.Counts) > 2*MaxScrape || s.Interval < 0 || s.Interval > maxInterval {
			t.Fatalf("%q became %+v", b, s)
		}
		for _, o := range append(s.Offers, s.Offer, s.Answer) {
			if len(o.SDP) > maxSDP || len(o.ID) > maxOfferID {
				t.Fatalf("%q became %+v", b, s)
			}
		}
		if s.InfoHash == (InfoHash{}) || s.Scrape || len(s.Request()) > MaxSignal {
			return // a zero hash is left out, and escapes make a message longer
		}
		if again, err := ParseSignal(s.Request()); err != nil || again.InfoHash != s.InfoHash || len(again.Offers) != len(s.Offers) {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
	})
}
