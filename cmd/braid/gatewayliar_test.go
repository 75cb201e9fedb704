package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"braid/client"
	"braid/node/event"
)

// Gateways that claim everything and send wrong data, or hardly any, corrupt nothing beside an
// honest one. One that sends wrong data is banned after at most three wrong pieces, and the honest
// one is not. One that stalls is asked for no more than three pieces. That holds for clients on IP
// and for hosts on SCION.
func TestLyingGateway(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	t.Parallel()
	const pieceLength, pieces, most = 256 << 10, 12, 3
	n, from, to := startNetwork(t, "two-paths")
	dir := t.TempDir()
	data := randomFile(t, dir, 61, pieces*pieceLength)
	must(t, dir, "create", "file", "-o", "it.torrent", "--piece-length", "256KiB", "--offline")
	src, err := client.OpenSource(t.Context(), filepath.Join(dir, "it.torrent"))
	if err != nil {
		t.Fatal(err)
	}
	cached := func(name string) string { return filepath.Join(dir, name, src.InfoHash.HexString(), "file") }
	host := n.HostIP(to)
	gateway := func(name, rate string) event.Ready {
		if err := os.MkdirAll(filepath.Dir(cached(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(cached(name), data, 0o600); err != nil {
			t.Fatal(err)
		}
		host = host.Next() // a ban is for a host
		return readyEvent(t, dir, "gateway", "it.torrent", "--json", "--cache", name, "--tracker-listen", "http://127.0.0.1:0", "--no-trackers",
			"--dht", "off", "--identity", name+".pem", "--upload-rate", rate, "--config-dir", n.ConfigDir(to), "--listen", netip.AddrPortFrom(host, 0).String(),
			"--listen", fmt.Sprintf("%s,[%s]:0", to, host))
	}
	download := func(t *testing.T, args ...string) (done event.Done, log string) {
		t.Helper()
		out := t.TempDir()
		code, events, log := ends(t, dir, slices.Concat([]string{"download", "it.torrent", "-o", out, "--json", "--dht", "off", "--no-trackers"}, args)...)
		if got, err := os.ReadFile(filepath.Join(out, "file")); code != 0 || !bytes.Equal(got, data) {
			t.Fatalf("exit code %d; %d bytes, or others, %v: %s", code, len(got), err, log)
		}
		for line := range strings.Lines(events) {
			if strings.Contains(line, `"event":"done"`) {
				err = json.Unmarshal([]byte(line), &done)
			}
		}
		if err != nil || done.Event == "" {
			t.Fatalf("%v: %s", err, events)
		}
		return done, log
	}
	// At this rate the liar needs half a second for a piece. Without a limit, all its pieces may
	// have arrived before the first one is hashed. The honest one needs four seconds for all, so
	// that the liar is asked for pieces even if it is found late.
	honest, corrupts, stalls := gateway("honest", "6mbit"), gateway("corrupts", "4mbit"), gateway("stalls", "10kbit")
	// This has all of them join. They find their caches complete, and claim everything from then
	// on.
	for _, e := range []event.Ready{honest, corrupts} {
		download(t, "--transport", "tcp", "--tracker", e.Trackers[0], "--tracker", stalls.Trackers[0])
	}
	wrong := slices.Clone(data)
	for i := range wrong {
		wrong[i] ^= 0xff
	}
	// It stays the same file, which the gateway has open, and keeps its time, or the gateway would
	// check it again.
	f, err := os.OpenFile(cached("corrupts"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	was, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(wrong); errors.Join(err, f.Close()) != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(f.Name(), time.Time{}, was.ModTime()); err != nil {
		t.Fatal(err)
	}
	for name, liar := range map[string]event.Ready{"corrupts": corrupts, "stalls": stalls} {
		for side, args := range map[string][]string{
			"IP": {"--transport", "tcp", "--tracker", honest.Trackers[0], "--tracker", liar.Trackers[0]},
			"SCION": {"--transport", "scion", "--config-dir", n.ConfigDir(from), "--local", n.HostIP(from).String(),
				"--peer", scionSide(honest), "--peer", scionSide(liar)},
		} {
			t.Run(name+" on "+side, func(t *testing.T) {
				var done event.Done
				var log string
				var banned [][]string
				var sent uint64 // by the liar, over all paths
				// If the liar answers nobody for a while, the honest one may send everything.
				soon(t, "enough pieces from the liar", func() bool {
					done, log = download(t, args...)
					sent = 0
					for _, p := range done.Paths {
						if slices.Contains(liar.Listen, p.Peer) {
							sent += p.BytesRead
						}
					}
					t.Logf("%.1f s, %d wrong pieces, %d bytes from the liar", done.Seconds, done.Dropped, sent)
					banned = regexp.MustCompile(`peer banned.* peer=(\S+) wrong_pieces=(\d+)`).FindAllStringSubmatch(log, -1)
					return name == "stalls" || len(banned) > 0 || done.Dropped >= most
				})
				switch {
				case name == "stalls":
					if len(banned) != 0 || done.Dropped != 0 || sent > most*pieceLength {
						t.Errorf("%d wrong pieces, %d bytes from the liar: %s", done.Dropped, sent, log)
					}
				case len(banned) != 1 || !slices.Contains(liar.Listen, banned[0][1]) || !slices.Contains([]string{"1", "2", "3"}, banned[0][2]):
					t.Errorf("%q are banned: %s", banned, log)
				}
			})
		}
	}
}

// scionSide is the address of a gateway on SCION.
func scionSide(e event.Ready) string {
	return e.Listen[slices.IndexFunc(e.Listen, func(a string) bool { return strings.Contains(a, "[") })]
}
