package node

import (
	"crypto/ed25519"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"braid/client"
	"braid/dht"
	"braid/pathsel"
	"braid/storage"
	"braid/units/await"
)

// A magnet link with the hash alone is enough: one node of the DHT knows the seed, and the download
// knows that node. The next download needs no node: it has kept the peers.
func TestMagnetThroughDHT(t *testing.T) {
	data, file := t.TempDir(), filepath.Join(t.TempDir(), "dht.json")
	src := create(t, data, "found", 100_000)
	hub := open(t, Config{DHT: &DHTConfig{OverIP: true}})
	nodes := hub.dht.addrs(t)
	seed := open(t, Config{DHT: &DHTConfig{OverIP: true, Nodes: nodes}})
	add(t, seed, Options{Source: src, Storage: Storage{Kind: storage.KindFile, Dir: data, Complete: true}})
	magnet, err := client.ParseMagnet("magnet:?xt=urn:btih:" + src.InfoHash.HexString())
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []DHTConfig{{OverIP: true, Nodes: nodes, File: file}, {OverIP: true, File: file}} {
		n := open(t, Config{DHT: &cfg})
		x := add(t, n, Options{Source: magnet, Storage: Storage{Kind: storage.KindFile, Dir: t.TempDir()}, MustFind: true})
		await.Value(t, "the data", x.Done())
		if p := x.Progress().Paths; !slices.ContainsFunc(p, func(x client.PathProgress) bool { return x.Source == client.FromDHT }) {
			t.Errorf("no peer is from the DHT: %+v", p)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func (d *DHT) addrs(t *testing.T) (out []dht.Addr) {
	for _, text := range d.Listening() {
		a, err := dht.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, a)
	}
	return out
}

// A run without SCION keeps the nodes on SCION that an earlier run has found, for a later run.
func TestDHTKeepsOtherNetworks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dht.json")
	at, err := dht.ParseAddr("1-ff00:0:110,[10.0.0.1]:31000")
	if err != nil {
		t.Fatal(err)
	}
	earlier := dht.State{ID: dht.ID{7}, Addr: at, Nodes: []dht.Contact{{ID: dht.ID{8}, Addr: at}}}
	if err := WriteJSON(file, dhtFile{Nodes: []dht.State{earlier}}, false); err != nil {
		t.Fatal(err)
	}
	cfg := DHTConfig{IP: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, File: file}
	d, err := OpenDHT(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if got := d.load().Nodes; len(got) != 2 || !reflect.DeepEqual(got[1], earlier) {
		t.Errorf("%+v is kept, want %+v", got, earlier)
	}
}

// A publisher's clock was an hour ahead. Its later items replace that of the future.
func TestPublishAfterClockWasAhead(t *testing.T) {
	hub := open(t, Config{DHT: &DHTConfig{OverIP: true}})
	var others []*Node
	for range 2 {
		others = append(others, open(t, Config{DHT: &DHTConfig{OverIP: true, Nodes: hub.dht.addrs(t)}}))
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	future := dht.FirstNodes(key, time.Now().Add(time.Hour).Unix(), nil)
	newest := func() (seq int64) {
		found, err := others[0].dht.server.GetItem(t.Context(), future.Target())
		if err != nil {
			t.Fatal(err)
		}
		if found.Item != nil {
			seq = found.Item.Seq
		}
		return seq
	}
	await.True(t, "the item of the future", func() bool {
		if _, err := others[0].dht.server.PutItem(t.Context(), future); err != nil {
			t.Fatal(err)
		}
		return newest() == future.Seq
	})
	d := others[1].dht
	d.workers.Go(func() { d.publish(key) })
	await.True(t, "a newer item", func() bool { return newest() > future.Seq })
}

// A node in the DHT obeys path rules that change while it runs.
func TestDHTPolicyChanges(t *testing.T) {
	n := open(t, Config{Service: true, DHT: &DHTConfig{OverIP: true}})
	paths := []pathsel.Path{{MTU: 1472, Interfaces: make([]pathsel.Interface, 2)}}
	for acl, want := range map[string]int{"-": 0, "+": 1} {
		change := func(s *Settings) error { s.Policy.ACL = acl; return nil }
		if err := n.Change(change); err != nil {
			t.Fatal(err)
		}
		if got := n.dht.allowed(paths); len(got) != want {
			t.Errorf("the ACL %q allows %v", acl, got)
		}
	}
}

// A DHT hears nothing of a private torrent.
func TestDHTLeavesPrivateTorrents(t *testing.T) {
	n := open(t, Config{DHT: &DHTConfig{OverIP: true}})
	private := true
	s := Swarm{Private: func() bool { return private }, Found: func(client.PeerSource, ...client.Peer) {}, Logger: n.log}
	if _, err := n.dht.Start(s); err != ErrNoWay {
		t.Fatalf("a private torrent: %v", err)
	}
	// Behind a magnet link that is known later.
	private = false
	x, err := n.dht.Start(s)
	if err != nil {
		t.Fatal(err)
	}
	private = true
	x.Hungry(true)
	if _, torrents := n.dht.server.Following(); torrents != 0 {
		t.Error("the torrent is still searched for")
	}
	x.Close()
}

func TestSpread(t *testing.T) {
	peer := func(s string) dht.Addr {
		a, err := dht.ParseAddr(s)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	far, near, bad := pathsel.IA(1<<48|0xff00_0000_0110), pathsel.IA(1<<48|0xff00_0000_0111), pathsel.IA(1<<48|0xff00_0000_0112)
	var in []dht.Addr
	for _, s := range []string{
		bad.String() + ",[10.0.0.1]:1", "192.0.2.1:1", far.String() + ",[10.0.0.1]:1", far.String() + ",[10.0.0.2]:1",
		near.String() + ",[10.0.0.1]:1", near.String() + ",[10.0.0.2]:1",
	} {
		in = append(in, peer(s))
	}
	var got []string
	for _, a := range spread(in, map[pathsel.IA]distance{
		far: nearest([]pathsel.Path{{Latency: time.Second, LatencyKnown: true}}), near: nearest([]pathsel.Path{{Latency: time.Millisecond, LatencyKnown: true}}),
	}) {
		got = append(got, strings.TrimPrefix(a.String(), "1-ff00:0:"))
	}
	want := []string{"111,[10.0.0.1]:1", "110,[10.0.0.1]:1", "111,[10.0.0.2]:1", "110,[10.0.0.2]:1", "112,[10.0.0.1]:1", "192.0.2.1:1"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestTorrentNodes(t *testing.T) {
	b := "d5:nodesll9:192.0.2.1i6881eel3:::1i6881eel9:127.0.0.1i1eel21:1-ff00:0:110,10.0.0.1i31000eel1:xei5ee4:spam1:x"
	src := create(t, t.TempDir(), "named", 40_000)
	torrent := strings.TrimSuffix(string(src.Torrent()), "e") + strings.TrimPrefix(b, "d") + "e"
	s, err := client.ParseTorrent([]byte(torrent))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range parseNodes(s.Nodes) {
		got = append(got, a.String())
	}
	if want := []string{"1-ff00:0:110,[10.0.0.1]:31000"}; !slices.Contains(got, want[0]) || slices.Contains(got, "127.0.0.1:1") || slices.Contains(got, "[::1]:6881") {
		t.Errorf("%v of %v", got, s.Nodes)
	}
}

// A session that accepts peers on all addresses takes part in the DHTs of both families, and
// announces its port in both.
func TestDHTOnAllAddresses(t *testing.T) {
	all, err := client.ParseListen("[::]:6881") // as the system names it, also for 0.0.0.0
	if err != nil {
		t.Fatal(err)
	}
	both := []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:6881"), netip.MustParseAddrPort("[::]:6881")}
	if got := dhtAddresses([]client.Peer{all}, false); !slices.Equal(got, both) {
		t.Errorf("nodes at %v, want %v", got, both)
	}
	want := map[dht.Network]uint16{dht.OverIP4: 6881, dht.OverIP6: 6881}
	if got := dhtPorts([]client.Peer{all}); !maps.Equal(got, want) {
		t.Errorf("ports %v, want %v", got, want)
	}
}

// A torrent that was complete at the start is announced as one of a seed (BEP 33), and one that
// lacks unwanted files is not.
func TestDHTSeeds(t *testing.T) {
	for _, missing := range []int64{0, 5} {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		other, err := dht.ParseAddr(c.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		d, err := OpenDHT(t.Context(), DHTConfig{
			IP: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, Nodes: []dht.Addr{other},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		listen, _ := client.ParseListen("127.0.0.1:7")
		x, err := d.Start(Swarm{
			InfoHash: [20]byte{1}, Listen: []client.Peer{listen}, Private: func() bool { return false },
			Progress: func() client.Progress { return client.Progress{Phase: client.Complete, Missing: missing} },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		x.Hungry(false)
		b := make([]byte, 2048)
		for _ = c.SetReadDeadline(await.Deadline(t)); ; {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				t.Fatal(err)
			}
			m, err := dht.ParseMessage(b[:n])
			if err != nil {
				t.Fatal(err)
			}
			if m.Query == dht.AnnouncePeer {
				if m.Seed != (missing == 0) {
					t.Errorf("%d bytes are missing, and seed is %t", missing, m.Seed)
				}
				break
			}
			answer := dht.Message{T: m.T, ID: dht.ID{9}, Token: "token"}
			if _, err := c.WriteToUDPAddrPort(answer.Encode(), from); err != nil {
				t.Fatal(err)
			}
		}
	}
}
