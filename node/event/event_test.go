package event

import (
	"encoding/json"
	"reflect"
	"testing"
)

// Each type is read back from what it was written as.
func TestParse(t *testing.T) {
	cause := &Cause{Kind: "path-down", Text: "no", Down: []Break{{Interface: "1-ff00:0:110#1", By: "1-ff00:0:111"}}}
	for _, e := range []any{
		&Ready{"ready", []string{"127.0.0.1:7"}, []string{"unix:/run/x"}, []string{"127.0.0.1:8"}, []string{"http://127.0.0.1:9/announce"}, "ab"},
		&Progress{Event: "progress", Torrent: "x", Phase: "downloading", Bytes: 1, Cause: cause, Paths: []Path{{Peer: "p", RTT: 1.5}}},
		&Done{Event: "done", Seconds: 2, Paths: []Path{}},
		&CauseChange{Event: "cause", Cause: cause},
		&Failed{Event: "failed", Error: "no"},
		&PathStep{Event: "path-opened", Peer: "p", Fingerprint: "f", Conn: 1, Reason: "first"},
		&Piece{"piece", "00", 1, 7},
		&Served{"served", "x", "00", 5, 0.5, "ratio"},
		&InTheWay{"in-the-way", "a", "b"},
		&Files{"files", "x", []File{{1, "a/b", 7, "low"}}},
		&Exported{"exported", 2, 7},
		&Missed{"missed", 3},
		&Line{Event: "line", Line: "braid:x", Torrent: "x", Peers: []string{"p"}},
		&Mirror{Event: "mirror", Action: "added", Reason: "new"},
		&Changed{"paused", "x", "00"},
	} {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Parse(b); err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%s: %+v, %v", b, got, err)
		}
	}
	for text, fails := range map[string]bool{`{"event":"later"}`: false, `{}`: false, `[`: true, `{"event":"piece","piece":"x"}`: true} {
		if e, err := Parse([]byte(text)); e != nil || (err != nil) != fails {
			t.Errorf("%s: %v, %v", text, e, err)
		}
	}
}

// Other programs read these objects: a changed tag breaks them.
func TestTags(t *testing.T) {
	for e, want := range map[any]string{
		&Ready{Event: "ready"}: `{"event":"ready","listen":null}`,
		&Progress{}: `{"event":"","torrent":"","info_hash":"","phase":"","t":0,"bytes":0,"total":0,"pieces":0,"pieces_done":0,` +
			`"fetched_bytes":0,"sent_bytes":0,"mbit_s":0,"up_mbit_s":0,"wasted_bytes":0,"dropped_pieces":0,"paths":null}`,
		&Done{}: `{"event":"","torrent":"","info_hash":"","seconds":0,"bytes":0,"fetched_bytes":0,"payload_mbit_s":0,` +
			`"wasted_bytes":0,"dropped_pieces":0,"paths":null}`,
		&CauseChange{}: `{"event":"","torrent":"","info_hash":"","t":0,"cause":null}`,
		&Failed{}:      `{"event":"","error":""}`,
		&Failed{Torrent: "x", InfoHash: "0", Cause: &Cause{Peer: "p", Down: []Break{{By: "1"}}}}: `{"event":"","torrent":"x","info_hash":"0",` +
			`"error":"","cause":{"kind":"","text":"","peer":"p","down":[{"interface":"","by":"1"}]}}`,
		&PathStep{Conn: 1}:        `{"event":"","info_hash":"","t":0,"peer":"","fingerprint":"","conn":1,"reason":""}`,
		&Piece{}:                  `{"event":"","info_hash":"","t":0,"piece":0}`,
		&Served{}:                 `{"event":"","torrent":"","info_hash":"","sent_bytes":0,"ratio":0,"reason":""}`,
		&InTheWay{Aside: "b"}:     `{"event":"","path":"","aside":"b"}`,
		&Files{Files: []File{{}}}: `{"event":"","torrent":"","files":[{"number":0,"path":"","length":0,"priority":""}]}`,
		&Exported{}:               `{"event":"","files":0,"bytes":0}`,
		&Path{}: `{"peer":"","fingerprint":"","transport":"","hops":0,"state":"","rtt_ms":0,"min_rtt_ms":0,"handshake_ms":0,` +
			`"bytes_read":0,"bytes_written":0,"mbit_s":0,"up_mbit_s":0,"packets_sent":0,"packets_lost":0}`,
		&Path{Name: "n", Conn: 1, Accepted: true, Congestion: "c", Window: 1, DeliveryMbitS: 1, PacingMbitS: 1, Failures: 1, Error: "e"}: `{"peer":"",` +
			`"fingerprint":"","name":"n","conn":1,"transport":"","accepted":true,"hops":0,"state":"","rtt_ms":0,"min_rtt_ms":0,"handshake_ms":0,` +
			`"bytes_read":0,"bytes_written":0,"mbit_s":0,"up_mbit_s":0,"packets_sent":0,"packets_lost":0,"congestion":"c","window":1,` +
			`"delivery_mbit_s":1,"pacing_mbit_s":1,"failures":1,"error":"e"}`,
		&Missed{}:  `{"event":"","events":0}`,
		&Changed{}: `{"event":"","torrent":"","info_hash":""}`,
		&Status{}:  `{"process":0,"time":"0001-01-01T00:00:00Z","torrents":null}`,
	} {
		if got, err := json.Marshal(e); err != nil || string(got) != want {
			t.Errorf("%T:\n got %s\nwant %s", e, got, want)
		}
	}
}
