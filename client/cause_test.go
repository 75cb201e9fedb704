package client

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"braid/pathsel"
	"braid/scionnet"
)

func TestDiagnose(t *testing.T) {
	const here, there = pathsel.IA(1<<48 | 0xff00_0000_0111), pathsel.IA(1<<48 | 0xff00_0000_0110)
	path := func(id uint64) pathsel.Path {
		return pathsel.Path{Src: here, Dst: there, Interfaces: []pathsel.Interface{{IA: here, ID: id}, {IA: there, ID: id}}}
	}
	paths := []pathsel.Path{path(1), path(2)}
	alive, half := scionnet.Trace{Answered: 2}, scionnet.Trace{Answered: 1}
	down := scionnet.Trace{Answered: 0, Down: paths[0].Interfaces[0]}
	peer := func(change func(*Target)) Target {
		x := Target{Name: "peer", SCION: true, IA: there, Examined: true, Paths: paths, Traces: []scionnet.Trace{alive, alive}}
		change(&x)
		return x
	}
	same := peer(func(*Target) {})
	cut := peer(func(x *Target) { x.Name, x.Traces = "cut", []scionnet.Trace{down, half} })
	tracker := func(change func(*Target)) Target {
		x := Target{Name: "http://tracker/announce", Tracker: true}
		change(&x)
		return x
	}
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, tt := range []struct {
		name string
		e    Evidence
		kind CauseKind // "": none yet
		says string
	}{
		{"silent", Evidence{Targets: []Target{same}}, PeerSilent, "all 2 paths"},
		{"silent host up", Evidence{Targets: []Target{peer(func(x *Target) { x.HostUp = true })}}, PeerSilent, "is up"},
		{"one path of two", Evidence{Targets: []Target{peer(func(x *Target) { x.Traces = []scionnet.Trace{half, alive} })}}, PeerSilent, "1 of 2 paths"},
		{"cut", Evidence{Targets: []Target{cut}}, PathDown, "1-ff00:0:111#1 is down, says its router; interface 1-ff00:0:110#2 does not answer"},
		{"nearest to a connection", Evidence{Targets: []Target{cut, same, same}}, PeerSilent, "(and 1 more)"},
		{"not examined", Evidence{Targets: []Target{peer(func(x *Target) { x.Examined = false })}}, "", ""},
		{"refuses", Evidence{Targets: []Target{peer(func(x *Target) { x.Refused = true })}}, PeerRefuses, "may not have this torrent"},
		{"policy", Evidence{Targets: []Target{peer(func(x *Target) { x.Paths, x.Err = nil, fmt.Errorf("%w: x", errNoneAllowed(2)) })}}, NotAllowed, "none of the 2"},
		{"no AS", Evidence{Targets: []Target{peer(func(x *Target) { x.Paths, x.Err = nil, scionnet.ErrNoPath })}}, ASUnknown, "no path to AS 1-ff00:0:110"},
		{"no answer about the AS", Evidence{Targets: []Target{peer(func(x *Target) {
			x.Paths, x.Err = nil, fmt.Errorf("%w: %w", scionnet.ErrNoPath, scionnet.ErrNoControl)
		})}}, ControlUnreachable, "no path can be looked up"},
		{"no control", Evidence{Targets: []Target{peer(func(x *Target) { x.Paths, x.Control = nil, scionnet.ErrNoControl })}}, ControlUnreachable, "cannot be looked up"},
		{"on IP", Evidence{Targets: []Target{{Name: "host:1", Err: refused}}}, PeerSilent, "connection refused"},
		{"name on IP", Evidence{Targets: []Target{{Name: "host:1", Err: &net.DNSError{Name: "host", Err: "no such host"}}}}, NameUnknown, "no such host"},
		{"name on SCION", Evidence{Targets: []Target{tracker(func(x *Target) { x.Err = &scionnet.NameError{Name: "seed", Err: refused} })}}, NameUnknown, "seed"},
		{"nobody", Evidence{}, NobodyThere, "no peer is known"},
		{"alone", Evidence{Targets: []Target{tracker(func(x *Target) { x.Answered = true })}}, NobodyThere, "names nobody else"},
		{"alone with web seeds", Evidence{WebSeeds: 2, Targets: []Target{tracker(func(x *Target) { x.Answered = true })}}, NobodyThere,
			"names nobody else who has this torrent; braid cannot use the 2 web seeds of the torrent"},
		{"tracker away", Evidence{Targets: []Target{tracker(func(x *Target) { x.Err = refused })}}, TrackerFailed, "connection refused"},
		{"one of two trackers", Evidence{Targets: []Target{tracker(func(x *Target) { x.Err = refused }), tracker(func(x *Target) { x.Answered = true })}}, NobodyThere, ""},
		{"a peer matters more than trackers", Evidence{Targets: []Target{same, tracker(func(x *Target) { x.Answered = true })}}, PeerSilent, ""},
		{"nothing to offer", Evidence{Connected: Connected{Peers: 1, Metadata: true, Missing: 3}}, PiecesMissing, "1 peer is connected, and none has any of the 3 missing pieces"},
		{"who has it is away", Evidence{Connected: Connected{Peers: 2, Metadata: true, Missing: 3}, Targets: []Target{same}}, PiecesMissing, "; all 2 paths"},
		{"choked", Evidence{Connected: Connected{Peers: 2, Metadata: true, Missing: 3, Offered: 1}}, Choked, "2 peers are connected"},
		{"no data", Evidence{Connected: Connected{Peers: 2, Metadata: true, Missing: 3, Offered: 1, Serving: 1}}, NoData, ""},
		{"metadata", Evidence{Connected: Connected{Peers: 2}}, MetadataMissing, ""},
		{"disk", Evidence{DiskFull: true, Targets: []Target{same}}, DiskFull, "full"},
	} {
		c := Diagnose(tt.e)
		if c == nil && tt.kind == "" {
			continue
		}
		if c == nil || c.Kind != tt.kind || !strings.Contains(c.Text, tt.says) {
			t.Errorf("%s: %+v, want %s, %q", tt.name, c, tt.kind, tt.says)
		}
	}
}
