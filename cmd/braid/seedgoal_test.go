package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// A seed ends when it has sent enough, and a download that serves afterwards when its time is over.
// Trackers hear of it.
func TestSeedUntil(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallTorrent(t, dir)
	var stopped atomic.Int32
	tracker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("event") == "stopped" {
			stopped.Add(1)
		}
		_, _ = w.Write([]byte("d8:intervali1800e5:peers0:e"))
	}))
	defer tracker.Close()
	peer, end := runningSeed(t, dir, "file.torrent", "--ratio", "1", "--seed-time", "24h", "--tracker", tracker.URL+"/announce")
	code, _, said := ends(t, dir, "download", "file.torrent", "-o", "out", "--peer", peer, "--seed-time", "10ms")
	if code != 0 || !strings.Contains(said, "file: served for 10ms, 0 B sent; it is not served any longer") {
		t.Errorf("exit code %d: %s", code, said)
	}
	if events, err := end(); err != nil || !strings.Contains(events, `{"event":"served"`) || !strings.Contains(events, `"reason":"ratio 1.00 is reached"`) {
		t.Errorf("the seed: %v: %s", err, events)
	}
	if n := stopped.Load(); n != 1 {
		t.Errorf("the tracker was told %d times", n)
	}
	for _, args := range []string{"--ratio 0", "--ratio -1", "--ratio nan", "--ratio inf", "--seed-time 0s", "--seed-time -1s"} {
		for _, command := range []string{"seed file.torrent --listen 127.0.0.1:0 ", "download file.torrent --peer " + peer + " "} {
			if code, _, said := ends(t, dir, strings.Fields(command+args)...); code != exitUsage {
				t.Errorf("%s: exit code %d: %s", command+args, code, said)
			}
		}
	}
}
