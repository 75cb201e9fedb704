package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"braid/client"
	"braid/node/web/page/webtorrent"
	"braid/storage"
	"braid/tracker"
	"braid/tracker/server"
	"braid/tracker/swarm"
	"braid/units/await"
)

// meetingPoint runs a tracker for WebRTC peers, and returns the one tier with its URL.
func meetingPoint(t *testing.T) [][]tracker.URL {
	t.Helper()
	cfg := server.Default()
	s, err := server.New(cfg, swarm.NewMemory(cfg.Limits()), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.ServeWebSocket(ctx, l, 100) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	u, err := tracker.ParseURL("ws://" + l.Addr().String() + "/announce")
	if err != nil {
		t.Fatal(err)
	}
	return [][]tracker.URL{{u.OfUser()}}
}

// overWebRTC opens a node with WebRTC on local addresses.
func overWebRTC(t *testing.T) *Node {
	return open(t, Config{Client: client.Config{WebRTC: &client.WebRTCConfig{Local: true}}})
}

// onlyWebRTC fails if data came in another way.
func onlyWebRTC(t *testing.T, x *Torrent) {
	t.Helper()
	for _, p := range x.Progress().Paths {
		if p.BytesRead > 0 && p.Transport != "webrtc" {
			t.Errorf("%d bytes from %s over %s", p.BytesRead, p.Peer, p.Transport)
		}
	}
}

// Two braids meet at a tracker, whichever comes first.
func TestWebRTC(t *testing.T) {
	for _, first := range []string{"seed", "leecher"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			data, out := t.TempDir(), t.TempDir()
			src := create(t, data, "file", 1<<20)
			trackers := meetingPoint(t)
			seed := func() {
				add(t, overWebRTC(t), Options{Source: src, Trackers: trackers, Storage: Storage{Kind: storage.KindFile, Dir: data, Complete: true}})
			}
			if first == "seed" {
				seed()
			}
			x := add(t, overWebRTC(t), Options{Source: src, Trackers: trackers, Storage: fileIn(out)})
			if first == "leecher" {
				await.True(t, "the tracker's answer to the leecher", func() bool { return x.Trackers()[0].Answered })
				seed()
			}
			await.Value(t, "the download", x.Done())
			sameFile(t, filepath.Join(data, "file"), filepath.Join(out, "file"))
			onlyWebRTC(t, x)
			if known := x.current().transfer.Deliverers(10); len(known) > 0 {
				t.Errorf("peers without an address are remembered: %v", known)
			}
		})
	}
}

// torrentFile writes the .torrent file, with the tracker in it.
func torrentFile(t *testing.T, path string, trackers [][]tracker.URL) string {
	t.Helper()
	c, err := client.Create(t.Context(), path, client.CreateOptions{PieceLength: 32 << 10, Trackers: [][]string{{trackers[0][0].String()}}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "x.torrent")
	if err := os.WriteFile(name, c.Torrent, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// hybrid is a braid that has the data from a host that browsers cannot reach, and serves it to
// them.
func hybrid(t *testing.T, src client.Source, data string, trackers [][]tracker.URL) *Torrent {
	t.Helper()
	far, _ := seedOf(t, src, data)
	return add(t, overWebRTC(t), Options{Source: src, Peers: far.Listening(), Trackers: trackers, Storage: fileIn(t.TempDir())})
}

// webtorrent, in Node and in a browser, fetches from a braid, and seeds to another.
func TestWebTorrentInNode(t *testing.T)    { fetchAndSeed(t, webtorrent.InNode) }
func TestWebTorrentInBrowser(t *testing.T) { fetchAndSeed(t, webtorrent.InBrowser) }

func fetchAndSeed(t *testing.T, start webtorrent.Start) {
	t.Helper()
	t.Parallel()
	data := t.TempDir()
	src := create(t, data, "file", 4<<20)
	trackers := meetingPoint(t)
	middle := hybrid(t, src, data, trackers)
	sum := start(t, torrentFile(t, filepath.Join(data, "file"), trackers))
	b, err := os.ReadFile(filepath.Join(data, "file"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := sum(), sha256.Sum256(b); got != hex.EncodeToString(want[:]) {
		t.Fatalf("webtorrent has %s", got)
	}
	fetchFromForeign(t, middle, src, data, trackers)
}

// fetchFromForeign removes the braid that the foreign client has the data from, and downloads it
// from that client.
func fetchFromForeign(t *testing.T, middle *Torrent, src client.Source, data string, trackers [][]tracker.URL) {
	t.Helper()
	if !slices.ContainsFunc(middle.Progress().Paths, func(p client.PathProgress) bool { return p.Transport == "webrtc" && p.BytesWritten > 4<<20 }) {
		t.Errorf("nothing was served over WebRTC: %+v", middle.Progress().Paths)
	}
	if err := middle.node.Remove(src.InfoHash.HexString(), false); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	x := add(t, overWebRTC(t), Options{Source: src, Trackers: trackers, Storage: fileIn(out)})
	await.Value(t, "the download from the foreign client", x.Done())
	sameFile(t, filepath.Join(data, "file"), filepath.Join(out, "file"))
	onlyWebRTC(t, x)
}
