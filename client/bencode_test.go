package client

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"braid/storage"
)

// A stranger's bytes are counted before anything is made of them.
func TestTorrentBounds(t *testing.T) {
	nest := func(n int) string { return strings.Repeat("l", n) + strings.Repeat("e", n) }
	info := func(more string) string { return "d4:infod" + more + "4:name1:n12:piece lengthi16384e6:pieces0:ee" }
	for _, c := range []struct{ name, torrent, want string }{
		{"files", info("5:filesl" + strings.Repeat("de", storage.MaxFiles+1) + "e"), "262144 files"},
		{"values", info("1:al" + strings.Repeat("0:", maxValues) + "e"), "3145728 values"},
		{"values outside", "d1:al" + strings.Repeat("le", maxValues) + "ee", "3145728 values"},
		{"nesting", info("1:a" + nest(maxNesting)), "deeper than the 64"},
		{"nesting outside", "d1:a" + nest(1<<20) + "e", "deeper than the 64"},
		{"trackers", "d13:announce-listl" + strings.Repeat("l1:ae", maxTrackers+1) + "ee", "256 trackers"},
		{"file tree", info("9:file tree" + strings.Repeat("d1:a", 60) + "d0:d1:x3000000:" + strings.Repeat("x", 3e6) + "ee" + strings.Repeat("e", 60)), "128 MiB"},
		{"number", info("1:ai99999999999999999999e"), "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := []byte(c.torrent)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := ParseTorrent(b)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
				t.Errorf("%d MiB allocated for %d bytes", n>>20, len(b))
			}
		})
	}
	most := "d13:announce-listl" + strings.Repeat("l1:ae", maxTrackers) + "e4:infod6:lengthi0e4:name1:n12:piece lengthi16384e6:pieces0:ee"
	if s, err := ParseTorrent([]byte(most)); err != nil || len(s.Trackers) != maxTrackers {
		t.Errorf("%d trackers: %v", len(s.Trackers), err)
	}
}

func TestAnnounceLists(t *testing.T) {
	const info = "4:infod6:lengthi0e4:name1:n12:piece lengthi16384e6:pieces0:e"
	for _, c := range []struct{ keys, want string }{
		{"", "[]"},
		{"8:announce1:a", "[[a]]"},
		{"8:announce0:", "[]"},
		{"8:announce1:a13:announce-listll1:bel1:c1:dee", "[[b] [c d]]"},
		{"8:announce1:a13:announce-listll0:ee", "[[a]]"},
		{"8:announce1:a13:announce-listle", "[[a]]"},
		{"8:announce1:a13:announce-listi1e", "[[a]]"},
		{"8:announcei1e13:announce-listl1:xl1:bi1eee", "[[b]]"},
	} {
		s, err := ParseTorrent([]byte("d" + c.keys + info + "e"))
		if err != nil || fmt.Sprint(s.Trackers) != c.want {
			t.Errorf("%s: %v, %v; want %s", c.keys, s.Trackers, err, c.want)
		}
	}
	for _, bad := range []string{"d" + info + info + "e", "d" + info + "ex", "de", "d4:info1:xe"} {
		if _, err := ParseTorrent([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
