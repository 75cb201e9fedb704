package terminal

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"braid/client"
	"braid/pathsel"
)

// pathOver is a path over these interfaces, such as "1-ff00:0:111#1 1-ff00:0:110#1".
func pathOver(t *testing.T, fingerprint, interfaces string) pathsel.Path {
	t.Helper()
	p := pathsel.Path{Fingerprint: pathsel.Fingerprint(fingerprint)}
	for _, s := range strings.Fields(interfaces) {
		i, err := pathsel.ParseInterface(s)
		if err != nil {
			t.Fatal(err)
		}
		p.Interfaces = append(p.Interfaces, i)
	}
	p.Src, p.Dst = p.Interfaces[0].IA, p.Interfaces[len(p.Interfaces)-1].IA
	return p
}

const (
	direct1 = "1-ff00:0:111#1 1-ff00:0:110#1"
	direct2 = "1-ff00:0:111#2 1-ff00:0:110#2"
	transit = "1-ff00:0:111#3 1-ff00:0:120#3 1-ff00:0:120#4 1-ff00:0:110#3"
	seeder  = "1-ff00:0:110,[127.0.0.1]:31000"
)

func activePath(t *testing.T, over string, read uint64, rate float64) client.PathProgress {
	return client.PathProgress{
		Peer: seeder, Path: pathOver(t, "aabbccddeeff", over), Transport: "scion", State: pathsel.Active,
		Measurement: client.Measurement{RTT: 21 * time.Millisecond}, BytesRead: read, ReadRate: rate,
	}
}

// shownText is a screen as text, as a terminal of this size has it, which is as long as any line
// may be.
func shownText(t *testing.T, lines []Line, width, height int) string {
	t.Helper()
	var out []string
	for _, l := range lines {
		text := ""
		for _, s := range l {
			text += s.Text
		}
		if n := ColumnsOfText(text); n > width {
			t.Errorf("%d columns of %d: %s", n, width, text)
		}
		out = append(out, strings.TrimRight(text, " "))
	}
	if len(out) > height-1 {
		t.Errorf("%d lines of %d", len(out), height)
	}
	return strings.Join(out, "\n")
}

func TestScreen(t *testing.T) {
	download := func(p client.Progress) client.Progress {
		p.Phase = client.Downloading
		if p.Name == "" {
			p.Name = "ubuntu.iso"
		}
		return p
	}
	two := []client.PathProgress{activePath(t, direct1, 3000, 15e6), activePath(t, direct2, 1000, 5e6)}
	wide := slices.Concat(two, []client.PathProgress{
		activePath(t, transit, 1000, 640e3),
		{Peer: "[2001:db8::1234:5678]:6881", Transport: "tcp", State: pathsel.Active, Measurement: client.Measurement{RTT: 1500 * time.Microsecond}},
		{Peer: seeder, Path: pathOver(t, "0011", "1-ff00:0:111#9 1-ff00:0:110#9"), State: pathsel.Idle}, // not tried yet
		{Peer: seeder, Path: pathOver(t, "2233", direct2), State: pathsel.Parked, BytesRead: 1000},
	})
	for _, c := range []struct {
		name    string
		p       client.Progress
		uploads bool
		want    string
	}{
		{"half", download(client.Progress{Total: 4 << 30, Have: 2 << 30, ReadRate: 20e6, Paths: two}), false, `
ubuntu.iso  [#########----------]   50% of 4 GiB        20.0 Mbit/s  14m19s left
  127.0.0.1:31000  111#1 > 110#1    21 ms   15.0 Mbit/s   75%  active
  127.0.0.1:31000  111#2 > 110#2    21 ms    5.0 Mbit/s   25%  active`},
		{"long names", download(client.Progress{Name: "debian-12.5.0-amd64-netinst-with-firmware.iso", Total: 1023<<20 + 900<<10, Have: 1023<<20 + 899<<10, ReadRate: 999.9e6, Since: time.Hour, Paths: wide}), false, `
debian-12…mware.iso  [#########-]   99% of 1023.9 MiB  999.9 Mbit/s  0s left
  127.0.0.1:31000   111#1 > 110#1        21 ms   15.0 Mbit/s   50%  active
  127.0.0.1:31000   111#2 > 110#2        21 ms    5.0 Mbit/s   17%  active
  127.0.0.1:31000   111#3 > … > 110#3    21 ms    640 kbit/s   17%  active
  [2001:db…8]:6881  tcp                 1.5 ms      0 kbit/s    0%  active
  127.0.0.1:31000   111#2 > 110#2         - ms      0 kbit/s   17%  parked`},
		{"stalled", download(client.Progress{Since: time.Minute, Total: 100, Waiting: "all 2 paths are down; the next attempt is in 2s", Paths: []client.PathProgress{
			{Peer: seeder, Path: pathOver(t, "aabb", direct1), State: pathsel.Failed, Err: fmt.Errorf("connect to %s: %w", seeder, errors.New("nothing received from the peer"))},
			{Peer: seeder, Path: pathOver(t, "ccdd", direct2), State: pathsel.Failed, Err: errors.New("a reason that is much too long for the rest of the line and goes on for more than the two lines that it may have, so that it is cut")},
		}}), false, `
ubuntu.iso  [-------------------]    0% of 100 B           0 kbit/s  stalled
  all 2 paths are down; the next attempt is in 2s
  127.0.0.1:31000  111#1 > 110#1  failed  nothing received from the peer
  127.0.0.1:31000  111#2 > 110#2  failed
    a reason that is much too long for the rest of the line and goes on for more
    than the two lines that it may have, so that it is cut`},
		{"seed", client.Progress{Name: "set", Phase: client.Complete, Sent: 1 << 30, WriteRate: 1e6, Paths: []client.PathProgress{
			{Peer: "1-ff00:0:111,[10.0.0.1]:7", Path: pathOver(t, "aabb", "1-ff00:0:110#1 1-ff00:0:111#1"), Accepted: true, State: pathsel.Active, BytesWritten: 9, WriteRate: 1e6},
			{Peer: "gone", State: pathsel.Idle, BytesWritten: 9},
		}}, true, `
set       1 GiB sent    1.0 Mbit/s  to 1 peer
  10.0.0.1:7  110#1 > 111#1     - ms    1.0 Mbit/s   50%  active`},
		{"magnet", client.Progress{Name: "set", Phase: client.Metadata}, false, "\nset  waiting for a peer to describe the torrent"},
		{"checking", client.Progress{Name: "set", Phase: client.Checking, Total: 2048, Checked: 1536, Have: 1024}, false, "\nset  checking: 1.5 KiB of 2 KiB hashed, 1 KiB right"},
		{"complete", client.Progress{Name: "set", Phase: client.Complete, Total: 2048}, false, "\nset  complete  2 KiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := shownText(t, Screen([]client.Progress{c.p}, c.uploads, false, 80, 24), 80, 24)
			if got != strings.TrimPrefix(c.want, "\n") {
				t.Errorf("got\n%s\nwant%s", got, c.want)
			}
			for _, size := range [][2]int{{40, 10}, {60, 5}, {100, 24}, {200, 60}, {80, 2}} {
				Screen([]client.Progress{c.p}, c.uploads, true, size[0], size[1])
			}
		})
	}
}

// 40 torrents in 24 rows: as many as fit, how many more there are, and totals.
func TestScreenOfManyTorrents(t *testing.T) {
	var all []client.Progress
	for i := range 40 {
		p := client.Progress{
			Name: fmt.Sprintf("episode-%02d.mkv", i+1), Phase: client.Downloading, Total: 1 << 30, Have: 1 << 28, ReadRate: 2e6, Since: time.Minute,
			Paths: []client.PathProgress{activePath(t, direct1, 100, 1e6), activePath(t, direct2, 100, 1e6)},
		}
		if i == 39 {
			p.ReadRate = 0
		}
		all = append(all, p)
	}
	want := ""
	for i := range 7 {
		want += fmt.Sprintf("episode-%02d.mkv  [###------------]   25%% of 1 GiB         2.0 Mbit/s  53m41s left\n", i+1)
		for path := range 2 {
			want += fmt.Sprintf("  127.0.0.1:31000  111#%d > 110#%d    21 ms    1.0 Mbit/s   50%%  active\n", path+1, path+1)
		}
	}
	want += "33 more: 32 downloading, 1 stalled\n" +
		"40 torrents     [###------------]   25% of 40 GiB       78.0 Mbit/s  55m04s left"
	if got := shownText(t, Screen(all, false, false, 80, 24), 80, 24); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// One that is complete was told of, and counts in the totals only.
	all[0].Phase, all[0].Have = client.Complete, all[0].Total
	got := shownText(t, Screen(all, false, false, 80, 24), 80, 24)
	if !strings.HasPrefix(got, "episode-02.mkv") || !strings.Contains(got, "\n32 more: 31 downloading, 1 stalled\n40 torrents") {
		t.Errorf("after the first:\n%s", got)
	}
	// As a seed, and on terminals that are hardly any.
	for _, height := range []int{1, 2, 3, 5, 24, 100} {
		for _, width := range []int{20, 40, 80, 132} {
			Screen(all, true, false, width, height)
			shownText(t, Screen(all, false, false, 132, height), 132, max(height, 3))
		}
	}
}

// One torrent with more paths than rows says how many are left out.
func TestScreenOfManyPaths(t *testing.T) {
	p := client.Progress{Name: "set", Phase: client.Downloading, Total: 100}
	for i := range 30 {
		p.Paths = append(p.Paths, activePath(t, fmt.Sprintf("1-ff00:0:111#%d 1-ff00:0:110#1", i+1), 1, 1e6))
	}
	got := strings.Split(shownText(t, Screen([]client.Progress{p}, false, false, 80, 24), 80, 24), "\n")
	if len(got) != 23 || got[22] != "  9 more paths" {
		t.Errorf("%d lines\n%s", len(got), strings.Join(got, "\n"))
	}
}

// Rows keep their places, whatever the order in which a transfer tells of them.
func TestPlaces(t *testing.T) {
	var o Places
	rows := func(peers string) string {
		var paths []client.PathProgress
		for _, p := range peers {
			paths = append(paths, client.PathProgress{Peer: string(p)})
		}
		o.Order(paths)
		out := ""
		for _, p := range paths {
			out += p.Peer
		}
		return out
	}
	for _, c := range []struct{ told, shown string }{
		{"bac", "bac"}, {"abc", "bac"}, {"cabd", "bacd"}, {"dc", "cd"}, {"bdc", "cdb"},
	} {
		if got := rows(c.told); got != c.shown {
			t.Errorf("%s is shown as %s, want %s", c.told, got, c.shown)
		}
	}
	if len(o.at) != 3 {
		t.Errorf("%d places are remembered", len(o.at))
	}
}

func TestPathName(t *testing.T) {
	for _, c := range []struct{ paths, want string }{
		{direct1, "111#1 > 110#1"},
		{transit, "111#3 > 120#3,4 > 110#3"},
		{"1-ff00:0:111#1 2-ff00:0:110#1", "1-111#1 > 2-110#1"},
		{"1-64512#1 1-ff00:0:110#1", "64512#1 > ff00:0:110#1"},
		{"71-2:0:3b#1 71-2:0:4a#7", "3b#1 > 4a#7"},
	} {
		x := client.PathProgress{Path: pathOver(t, "aabbccddeeff", c.paths)}
		short := ShortASes([]client.PathProgress{x})
		if got := PathName(x, short, false); got != c.want {
			t.Errorf("%s: %s, want %s", c.paths, got, c.want)
		}
		if got := PathName(x, short, true); got != c.want+" aabbccdd" {
			t.Errorf("with -v: %s", got)
		}
	}
}

func TestFit(t *testing.T) {
	for _, c := range []struct {
		s     string
		width int
		want  string
	}{
		{"name", 6, "name  "}, {"a-long-name.iso", 9, "a-lo….iso"}, {"a-long-name.iso", 8, "a-lo…iso"}, {"世界世界世界", 8, "世界…界 "},
		{"abc", 2, "ab"}, {"a\x1bb", 9, `a\u001bb `},
	} {
		got := fit(c.s, c.width)
		if got != c.want {
			t.Errorf("%q in %d: %q, want %q", c.s, c.width, got, c.want)
		}
	}
}
