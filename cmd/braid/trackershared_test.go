package main

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"braid/tracker/swarm/valkeytest"
	"braid/tracker/wire"
)

// askTracker announces peer n of one torrent.
func askTracker(t *testing.T, url string, n byte) (wire.Answer, error) {
	t.Helper()
	a := wire.Announce{InfoHash: wire.InfoHash{1}, PeerID: wire.PeerID{n}, Port: 1000 + uint16(n), Left: 1, NumWant: 50, Compact: true}
	res, err := http.Get(url + "?" + a.Query())
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, wire.MaxAnswer))
	if err != nil {
		t.Fatal(err)
	}
	return wire.ParseAnswer(b)
}

// Two trackers serve one swarm: what one is told the other knows, also when the first has gone.
// Without their store they say so, and go on when it is back.
func TestTrackersShareStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const secret = "open-sesame"
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	store := valkeytest.Start(t, "--requirepass", secret)
	url := "redis://" + store.Addr + "/0"
	args := []string{"tracker", "--listen", "http://127.0.0.1:0", "--listen", "udp://127.0.0.1:0", "--listen", statsAnywhere, "--json", "--store", url, "--store-password-file", password}
	one, two := ready(t, dir, args...), ready(t, dir, args...)
	// A tracker refuses announces while its store is slow to answer.
	ask := func(tracker string, n byte) (a wire.Answer) {
		t.Helper()
		soon(t, "an answer of the tracker", func() bool {
			var err error
			a, err = askTracker(t, tracker, n)
			return err == nil
		})
		return a
	}
	for i, tracker := range []string{one[0], two[0], one[0], two[0]} {
		if a := ask(tracker, byte(i)); len(a.Peers) != i || a.Incomplete != int64(i+1) {
			t.Errorf("peer %d at %s: %+v", i, tracker, a)
		}
	}
	for _, tracker := range []string{one[2], two[2]} {
		if s := trackerStats(t, tracker); s.Totals.IPv4 != 4 || s.Announces["http"] < 2 {
			t.Errorf("%+v", s)
		}
	}
	health := func() int {
		res, err := http.Get(strings.TrimSuffix(one[0], "/announce") + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	if code := health(); code != http.StatusOK {
		t.Errorf("/healthz: %d", code)
	}
	store.Stop()
	_, err := askTracker(t, one[0], 9)
	var f *wire.Failure
	if !errors.As(err, &f) || f.RetryIn != time.Minute || !strings.Contains(f.Reason, "store") {
		t.Errorf("without a store: %v", err)
	}
	if code := health(); code != http.StatusServiceUnavailable {
		t.Errorf("/healthz without a store: %d", code)
	}
	if res, err := http.Get(strings.Replace(one[2], "stats://", "http://", 1) + "/metrics"); err != nil {
		t.Error(err)
	} else {
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if text := string(b); err != nil || res.StatusCode != http.StatusOK || !strings.Contains(text, "braid_tracker_store_up 0") || !strings.Contains(text, "braid_tracker_announces_total") {
			t.Errorf("/metrics without a store: %s, %v: %s", res.Status, err, text)
		}
	}
	if code, _, said := ends(t, dir, args...); code != 1 || !strings.Contains(said, url) || strings.Contains(said, secret) {
		t.Errorf("a start without a store: exit code %d, %s", code, said)
	}
	store.Restart()
	ask(one[0], 9)
	code, out, said := ends(t, dir, "tracker", "--print-config", "--store", "redis://me:"+secret+"@"+store.Addr)
	if code != 0 || strings.Contains(out, secret) || !strings.Contains(out, "redis://me:xxxxx@"+store.Addr) {
		t.Errorf("%d: %s%s", code, out, said)
	}
	if code, _, said := ends(t, dir, "tracker", "--listen", "http://127.0.0.1:0", "--store", url, "--data", dir); code != 2 || !strings.Contains(said, "not both") {
		t.Errorf("%d: %s", code, said)
	}
}
