package gateway

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"braid/client"
	"braid/node"
	"braid/tracker"
	"braid/tracker/server"
	"braid/tracker/swarm"
	"braid/tracker/wire"
	"braid/units/await"
)

// fellows are two gateways that know each other, each with a tracker over HTTP. kill ends the
// second.
func fellows(t *testing.T, idle time.Duration, src client.Source) (all [2]*Gateway, stores [2]swarm.Store, nodes [2]*node.Node, kill func()) {
	t.Helper()
	var listeners [2]net.Listener
	var urls [2]tracker.URL
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
		if err != nil {
			t.Fatal(err)
		}
		if urls[i], err = tracker.ParseURL("http://" + l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		listeners[i] = l
	}
	for i, l := range listeners {
		cfg := Config{Dir: t.TempDir(), Size: 1 << 20, Idle: idle, Fellows: urls[1-i : 2-i]}
		all[i], stores[i], nodes[i] = opened(t, cfg, src)
		s, err := server.New(server.Default(), stores[i], slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { all[i].Run(ctx) })
		running.Go(func() { _ = s.ServeHTTP1(ctx, l, 100) })
		kill = func() { cancel(); running.Wait() }
		t.Cleanup(kill)
	}
	return all, stores, nodes, kill
}

// A client of one gateway learns of the other, as long as that one lives. Both have joined, and
// leave when nobody asks any more: their own questions do not count.
func TestFellows(t *testing.T) {
	t.Parallel()
	src, seed := seeded(t, t.TempDir(), "file", 300_000)
	all, stores, nodes, kill := fellows(t, 3*time.Second, src)
	names := func(peers []wire.Peer, n *node.Node) bool {
		return slices.ContainsFunc(peers, func(p wire.Peer) bool { return p.Addr.String() == n.Listening()[0].String() })
	}
	late := false // the machine had no time for the fellow, who may count as dead for a while
	await.True(t, "the names of both", func() bool {
		began := time.Now()
		peers, err := asks(t, stores[0], src, seed, true)
		both := err == nil && names(peers, nodes[0]) && names(peers, nodes[1])
		if late = late || time.Since(began) >= joinPatience; !both && !late {
			t.Fatalf("%v, %v", peers, err)
		}
		return both
	})
	// The torrent may name both trackers: then the node of each asks the other's tracker.
	id, _ := all[0].addresses()
	await.True(t, "the fellow's node", func() bool {
		_, err := asks(t, stores[1], src, clientAt(7), false)
		return err == nil && all[1].isFellow(id)
	})
	for i, n := range nodes {
		await.True(t, "the data of both", func() bool {
			if _, err := asks(t, stores[i], src, clientAt(7), false); err != nil { // who is not asked leaves
				t.Log(err)
			}
			x, err := n.Torrent(src.InfoHash.HexString())
			return err == nil && x.Progress().Phase == client.Complete
		})
	}
	await.True(t, "both to leave", func() bool {
		_, err := stores[1].Announce(t.Context(), swarm.Visit{
			InfoHash: wire.InfoHash(src.InfoHash), ID: id, Addr: clientAt(8), Want: 50, Reaches: swarm.IPv4,
		})
		if err != nil {
			t.Error(err)
		}
		return isAway(all[0], src) && isAway(all[1], src)
	})
	if n := len(nodes[0].Torrents()) + len(nodes[1].Torrents()); n != 0 {
		t.Errorf("%d nodes have not left", n)
	}
	kill()
	await.True(t, "an answer without the dead one", func() bool {
		peers, err := asks(t, stores[0], src, clientAt(9), false)
		if err != nil { // it leaves, since this process had no time to ask
			t.Log(err)
			return false
		}
		if !names(peers, nodes[0]) {
			t.Errorf("the living one is not named: %v", peers)
		}
		return !names(peers, nodes[1])
	})
}

// A gateway that is named as its own fellow hears so, and takes no client for a fellow.
func TestOwnFellow(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	u, err := tracker.ParseURL("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	src, seed := seeded(t, t.TempDir(), "file", 1000)
	g, store, _ := opened(t, Config{Dir: t.TempDir(), Size: 1 << 20, Idle: time.Hour, Fellows: []tracker.URL{u}}, src)
	var said bytes.Buffer
	g.log = slog.New(slog.NewTextHandler(&said, nil))
	s, err := server.New(server.Default(), store, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.ServeHTTP1(ctx, l, 100) })
	defer serving.Wait()
	defer cancel()
	if _, err := asks(t, store, src, seed, true); err != nil {
		t.Fatal(err)
	}
	x := g.torrents[wire.InfoHash(src.InfoHash)]
	await.True(t, "the message in the log", func() bool {
		g.question(t.Context(), 0, x)
		return strings.Contains(said.String(), "its own fellow")
	})
	if id := (wire.PeerID{byte(seed.Port >> 8), byte(seed.Port)}); g.isFellow(id) || x.contacts[0].at != nil {
		t.Errorf("a client is a fellow: %v, at %v", g.isFellow(id), x.contacts[0].at)
	}
}

// The gateway takes the addresses of the first peer in a fellow's answer, and no stranger's.
func TestNamedFirst(t *testing.T) {
	peer := func(id byte, port uint16) wire.Peer { return wire.Peer{ID: wire.PeerID{id}, Addr: clientAt(port)} }
	var many []wire.Peer
	for i := range 20 {
		many = append(many, peer(1, uint16(i+1)))
	}
	for _, tt := range []struct {
		name  string
		peers []wire.Peer
		ports []uint16
	}{
		{"nobody", nil, nil},
		{"without an ID", []wire.Peer{peer(0, 1)}, nil},
		{"alone", []wire.Peer{peer(1, 1)}, []uint16{1}},
		{"before others", []wire.Peer{peer(1, 1), peer(2, 2), peer(1, 3), peer(1, 0)}, []uint16{1, 3}},
		{"too many", many, []uint16{1, 2, 3, 4, 5, 6, 7, 8}},
	} {
		var ports []uint16
		for _, p := range namedFirst(tt.peers) {
			ports = append(ports, p.Addr.Port)
		}
		if !slices.Equal(ports, tt.ports) {
			t.Errorf("%s: %v, want %v", tt.name, ports, tt.ports)
		}
	}
}
