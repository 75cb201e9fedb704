package client

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/pathsel"
	"braid/scionnet"
	"braid/storage"
	"braid/units/await"
)

// scionHost is a host in an AS of its own. Inside an AS no router is needed, and there is one path.
func scionHost(t *testing.T, ip string) *scionnet.Host {
	t.Helper()
	dir := t.TempDir()
	topo := `{"isd_as":"1-ff00:0:110","mtu":1400,"dispatched_ports":"1024-65535","attributes":["core"],
		"control_service":{"cs1":{"addr":"127.0.0.1:30252"}},"discovery_service":{"cs1":{"addr":"127.0.0.1:30252"}}}`
	if err := os.WriteFile(filepath.Join(dir, "topology.json"), []byte(topo), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "certs"), 0o700); err != nil {
		t.Fatal(err)
	}
	h, err := scionnet.Open(t.Context(), scionnet.Config{ConfigDir: dir, LocalIP: netip.MustParseAddr(ip)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func isSCION(p Peer) bool { _, ok := p.SCION(); return ok }

// One swarm of a SCION seed, a TCP seed and a leecher that knows both.
func TestMixedSwarm(t *testing.T) {
	data, out := t.TempDir(), t.TempDir()
	randomFiles(t, data, "set", 16<<20, 10_000)
	src := makeTorrent(t, filepath.Join(data, "set"), CreateOptions{PieceLength: 16 << 10}).Source
	var peers []Peer
	for _, l := range []struct {
		host   *scionnet.Host
		listen []Peer
	}{{scionHost(t, "127.0.0.2"), nil}, {nil, []Peer{mustPeer(t, "127.0.0.3:0")}}} {
		s := openSession(t, Config{Host: l.host, Listen: l.listen})
		if _, err := s.Add(src, storage.OpenVerified(data, testLog(t)), Options{}); err != nil {
			t.Fatal(err)
		}
		peers = append(peers, s.Listening()...)
	}
	if len(peers) != 2 || !isSCION(peers[0]) || isSCION(peers[1]) {
		t.Fatalf("listening on %v", peers)
	}
	store := openStore(t, out)
	tr, err := openSession(t, Config{Host: scionHost(t, "127.0.0.1")}).Add(src, store, Options{Peers: peers[:1]})
	if err != nil {
		t.Fatal(err)
	}
	until(t, tr, "reading over SCION", func(p Progress) bool { return p.Fetched > 0 })
	tr.AddPeers(peers[1])
	p := wait(t, tr)
	by := map[string]uint64{}
	for _, x := range p.Paths {
		by[x.Transport] += x.BytesRead
	}
	if by["scion"] == 0 || by["tcp"] == 0 {
		t.Errorf("bytes by transport: %v", by)
	}
	tr.Close()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, src, data, out)
}

// The metadata of a magnet link comes over SCION, from the peer named in the link.
func TestMagnetOverSCION(t *testing.T) {
	data, out := t.TempDir(), t.TempDir()
	randomFiles(t, data, "set", 2<<20)
	src := makeTorrent(t, filepath.Join(data, "set"), CreateOptions{PieceLength: 16 << 10}).Source
	seeder := openSession(t, Config{Host: scionHost(t, "127.0.0.2")})
	if _, err := seeder.Add(src, storage.OpenVerified(data, testLog(t)), Options{}); err != nil {
		t.Fatal(err)
	}
	magnet, err := ParseMagnet(src.Magnet(seeder.Listening()[0]))
	if err != nil {
		t.Fatal(err)
	}
	store := openStore(t, out)
	tr, err := openSession(t, Config{Host: scionHost(t, "127.0.0.1")}).Add(magnet, store, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, tr)
	tr.Close()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, src, data, out)
}

// Wrong pieces over real SCION connections, as TestWrongPieces has them over others.
func TestWrongPiecesOverSCION(t *testing.T) {
	const pieceLength, pieces = 32 << 10, 32
	good, bad, out := t.TempDir(), t.TempDir(), t.TempDir()
	writeRandom(t, filepath.Join(good, "file"), pieceLength*pieces)
	spoil(t, filepath.Join(good, "file"), filepath.Join(bad, "file"), pieceLength, pieces-1)
	src := makeTorrent(t, filepath.Join(good, "file"), CreateOptions{PieceLength: pieceLength}).Source
	leecher := openSession(t, Config{Host: scionHost(t, "127.0.0.1")})
	store := openStore(t, out)
	tr, err := leecher.Add(src, store, Options{})
	if err != nil {
		t.Fatal(err)
	}
	// It connects to the leecher and is connected to.
	villain := openSession(t, Config{Host: scionHost(t, "127.0.0.2")})
	if _, err := villain.Add(src, openLiar(bad, pieces-1), Options{Peers: leecher.Listening()[:1]}); err != nil {
		t.Fatal(err)
	}
	tr.AddPeers(villain.Listening()[0])
	host := suspectOf(villain.Listening()[0].origin())
	until(t, tr, "banned", func(p Progress) bool {
		for _, x := range p.Paths {
			if x.State == pathsel.Active {
				return false
			}
		}
		return leecher.offers.isBanned(host)
	})
	honest := openSession(t, Config{Host: scionHost(t, "127.0.0.3")})
	if _, err := honest.Add(src, storage.OpenVerified(good, testLog(t)), Options{}); err != nil {
		t.Fatal(err)
	}
	tr.AddPeers(honest.Listening()[0])
	wait(t, tr)
	tr.Close()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, src, good, out)
}

func TestNobodyConnectsToHimself(t *testing.T) {
	data := t.TempDir()
	randomFiles(t, data, "set", 100_000)
	src := makeTorrent(t, filepath.Join(data, "set"), CreateOptions{}).Source
	s := openSession(t, Config{Host: scionHost(t, "127.0.0.1"), Listen: []Peer{mustPeer(t, "127.0.0.1:0")}})
	tr, err := s.Add(src, openStore(t, t.TempDir()), Options{Peers: s.Listening()})
	if err != nil {
		t.Fatal(err)
	}
	// A peer that is not refused shows up. By its name, since nothing listens at that address of
	// this host. the one that is added last says that all have been looked at.
	tr.AddPeers(mustPeer(t, "localhost:9"))
	until(t, tr, "looked at", func(p Progress) bool { return len(p.Paths) > 0 })
	if p := tr.Progress(); len(p.Paths) != 1 || p.Paths[0].Peer != "localhost:9" {
		t.Errorf("paths: %+v", p.Paths)
	}
}

func TestNoSCIONIsReportedAtOnce(t *testing.T) {
	data := t.TempDir()
	randomFiles(t, data, "set", 100_000)
	src := makeTorrent(t, filepath.Join(data, "set"), CreateOptions{}).Source
	_, err := openSession(t, Config{}).Add(src, openStore(t, t.TempDir()), Options{Peers: []Peer{mustPeer(t, "1-ff00:0:110,[127.0.0.1]:7")}})
	if err == nil || !strings.Contains(err.Error(), "no connection to SCION") {
		t.Errorf("error %v, want one about SCION", err)
	}
}

// A magnet link may name peers on both networks, so a host needs only one of them.
func TestMagnetPeersOnBothNetworks(t *testing.T) {
	src := smallTorrent(t)
	src.Peers = []Peer{mustPeer(t, "1-ff00:0:110,[127.0.0.1]:7"), mustPeer(t, "9.9.9.9:7")}
	c := newCore(&openSession(t, Config{}).common, src, nil, Options{})
	if peers, err := c.firstPeers(nil); err != nil || len(peers) != 1 || peers[0] != src.Peers[1] {
		t.Errorf("peers %v, %v", peers, err)
	}
}

// If the host has lost its address, as a laptop in another network has, that is the cause, and not
// the network.
func TestAddressIsGone(t *testing.T) {
	at := mustPeer(t, "1-ff00:0:111,[127.0.0.1]:7")
	x := scionTransport{routes: routes{scionHost(t, "192.0.2.1")}} // of nobody (RFC 5737)
	ctx, cancel := context.WithDeadline(t.Context(), await.Deadline(t))
	defer cancel()
	path := pathsel.Path{Dst: at.scion.IA, Interfaces: make([]pathsel.Interface, 2)}
	found := target{Name: "peer", At: at.scion, examination: x.examine(ctx, at.scion, []pathsel.Path{path})}
	if c := diagnose(evidence{Targets: []target{found}}); c == nil || !strings.Contains(c.Text, "192.0.2.1") {
		t.Errorf("cause %+v", c)
	}
}
