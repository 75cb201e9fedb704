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
	peer := func(change func(*target)) target {
		x := target{Name: "peer", At: scionnet.Addr{IA: there}, examination: examination{
			Examined: true, Paths: paths, Traces: []scionnet.Trace{alive, alive},
		}}
		change(&x)
		return x
	}
	same := peer(func(*target) {})
	cut := peer(func(x *target) { x.Name, x.Traces = "cut", []scionnet.Trace{down, half} })
	tracker := func(change func(*target)) target {
		x := target{Name: "http://tracker/announce", Tracker: true}
		change(&x)
		return x
	}
	policy := &pathsel.RefusedError{To: there, Refused: make([]pathsel.Refusal, 2)}
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, tt := range []struct {
		name string
		e    evidence
		kind CauseKind // "": none yet
		says string
	}{
		{"silent", evidence{Targets: []target{same}}, PeerSilent, "all 2 paths"},
		{"silent host up", evidence{Targets: []target{peer(func(x *target) { x.HostUp = true })}}, PeerSilent, "is up"},
		{"one path of two", evidence{Targets: []target{peer(func(x *target) { x.Traces = []scionnet.Trace{half, alive} })}}, PeerSilent, "1 of 2 paths"},
		{"cut", evidence{Targets: []target{cut}}, PathDown, "1-ff00:0:111#1 is down, says its router; interface 1-ff00:0:110#2 does not answer"},
		{"nearest to a connection", evidence{Targets: []target{cut, same, same}}, PeerSilent, "(and 1 more)"},
		{"nothing can be sent", evidence{Targets: []target{peer(func(x *target) { x.Paths, x.Unsent = nil, refused })}}, PathDown, "start braid again"},
		{"not examined", evidence{Targets: []target{peer(func(x *target) { x.Examined = false })}}, "", ""},
		{"refuses", evidence{Targets: []target{peer(func(x *target) { x.Refused = true })}}, PeerRefuses, "may not have this torrent"},
		{"policy", evidence{Targets: []target{peer(func(x *target) { x.Paths, x.Err = nil, policy })}}, NotAllowed, "none of the 2"},
		{"policy and a tracker", evidence{Targets: []target{peer(func(x *target) { x.Tracker, x.Err = true, fmt.Errorf("announce: %w", policy) })}}, NotAllowed, "keeps braid from the tracker"},
		{"no AS", evidence{Targets: []target{peer(func(x *target) { x.Paths, x.Err = nil, scionnet.ErrNoPath })}}, ASUnknown, "no path to AS 1-ff00:0:110"},
		{"no answer about the AS", evidence{Targets: []target{peer(func(x *target) {
			x.Paths, x.Err = nil, fmt.Errorf("%w: %w", scionnet.ErrNoPath, scionnet.ErrNoControl)
		})}}, ControlUnreachable, "no path can be looked up"},
		{"no control", evidence{Targets: []target{peer(func(x *target) { x.Paths, x.Control = nil, scionnet.ErrNoControl })}}, ControlUnreachable, "cannot be looked up"},
		{"on IP", evidence{Targets: []target{{Name: "host:1", Err: refused}}}, PeerSilent, "connection refused"},
		{"name on IP", evidence{Targets: []target{{Name: "host:1", Err: &net.DNSError{Name: "host", Err: "no such host"}}}}, NameUnknown, "no such host"},
		{"name on SCION", evidence{Targets: []target{tracker(func(x *target) { x.Err = &scionnet.NameError{Name: "seed", Err: refused} })}}, NameUnknown, "seed"},
		{"nobody", evidence{}, NobodyThere, "no peer is known"},
		{"alone", evidence{Targets: []target{tracker(func(x *target) { x.Answered = true })}}, NobodyThere, "names nobody else"},
		{"alone with web seeds", evidence{WebSeeds: 2, Targets: []target{tracker(func(x *target) { x.Answered = true })}}, NobodyThere,
			"names nobody else who has this torrent; braid cannot use the 2 web seeds of the torrent"},
		{"tracker away", evidence{Targets: []target{tracker(func(x *target) { x.Err = refused })}}, TrackerFailed, "connection refused"},
		{"one of two trackers", evidence{Targets: []target{tracker(func(x *target) { x.Err = refused }), tracker(func(x *target) { x.Answered = true })}}, NobodyThere, ""},
		{"a peer matters more than trackers", evidence{Targets: []target{same, tracker(func(x *target) { x.Answered = true })}}, PeerSilent, ""},
		{"nothing to offer", evidence{Connected: connectedPeers{Peers: 1, Metadata: true, Missing: 3}}, PiecesMissing, "1 peer is connected, and none has any of the 3 missing pieces"},
		{"who has it is away", evidence{Connected: connectedPeers{Peers: 2, Metadata: true, Missing: 3}, Targets: []target{same}}, PiecesMissing, "; all 2 paths"},
		{"choked", evidence{Connected: connectedPeers{Peers: 2, Metadata: true, Missing: 3, Offered: 1}}, Choked, "2 peers are connected"},
		{"no data", evidence{Connected: connectedPeers{Peers: 2, Metadata: true, Missing: 3, Offered: 1, Serving: 1}}, NoData, ""},
		{"metadata", evidence{Connected: connectedPeers{Peers: 2}}, MetadataMissing, ""},
		{"slow disk", evidence{DiskBusy: true, Connected: connectedPeers{Peers: 1, Serving: 1}}, DiskBusy, "waits in memory"},
		{"disk", evidence{DiskFull: true, Targets: []target{same}}, DiskFull, "full"},
	} {
		c := diagnose(tt.e)
		if c == nil && tt.kind == "" {
			continue
		}
		if c == nil || c.Kind != tt.kind || !strings.Contains(c.Text, tt.says) {
			t.Errorf("%s: %+v, want %s, %q", tt.name, c, tt.kind, tt.says)
		}
	}
}
