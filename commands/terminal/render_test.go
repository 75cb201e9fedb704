package terminal

import (
	"strings"
	"testing"
	"time"

	"braid/client"
	"braid/pathsel"
	"braid/units"
)

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		done, total int64
		want        string
	}{{0, 0, "0%"}, {0, 10, "0%"}, {5, 10, "50%"}, {999_999, 1_000_000, "99%"}, {10, 10, "100%"}, {1, 1 << 62, "0%"}} {
		if got := Percent(c.done, c.total); got != c.want {
			t.Errorf("percent(%d, %d) = %s, want %s", c.done, c.total, got, c.want)
		}
	}
}

func TestTexts(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{BytesText(0), "0 B"}, {BytesText(1023), "1023 B"}, {BytesText(1 << 10), "1 KiB"}, {BytesText(1536), "1.5 KiB"},
		{BytesText(1 << 62), "4 EiB"},
		{DurationText(59*time.Second + 600*time.Millisecond), "1m00s"}, {DurationText(3671 * time.Second), "1h01m"}, {DurationText(50 * time.Hour), "2d02h"},
		{RateText(0), "0 kbit/s"}, {RateText(640e3), "640 kbit/s"}, {RateText(10e6), "10.0 Mbit/s"}, {RateText(999.94e6), "999.9 Mbit/s"}, {RateText(1.25e9), "1.25 Gbit/s"},
		{rttText(0), "   - ms"}, {rttText(330 * time.Millisecond), " 330 ms"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// The summary of a download says which peers nobody has named, and where they come from.
func TestSummarySource(t *testing.T) {
	p := client.Progress{Fetched: 2, Since: time.Second, Paths: []client.PathProgress{
		{Peer: "192.0.2.1:1", Source: client.FromDHT, Transport: "tcp", BytesRead: 1},
		{Peer: "192.0.2.2:1", Source: client.FromUser, Transport: "tcp", BytesRead: 1},
	}}
	l := Summary(p, false)
	if len(l) != 3 || !strings.HasSuffix(l[1], "tcp  from dht") || !strings.HasSuffix(l[2], "tcp") {
		t.Errorf("%q", l)
	}
}

// braid reads what it prints.
func TestTextsAreRead(t *testing.T) {
	for _, v := range []float64{0, 640e3, 10e6, 1.25e9} {
		if got, err := units.ParseRate(RateText(v)); err != nil || float64(got) != v {
			t.Errorf("%s: %d, %v", RateText(v), got, err)
		}
	}
	for _, v := range []int64{0, 1023, 1536, 64 << 10, 3 << 29} {
		if got, err := units.ParseSize(BytesText(v)); err != nil || got != v {
			t.Errorf("%s: %d, %v", BytesText(v), got, err)
		}
	}
	for _, v := range []time.Duration{0, 59 * time.Second, 65 * time.Second, 90 * time.Minute, 50 * time.Hour} {
		if got, err := units.ParseDuration(DurationText(v)); err != nil || got != v {
			t.Errorf("%s: %v, %v", DurationText(v), got, err)
		}
	}
	if got, err := units.ParseDuration(rttText(21 * time.Millisecond)); err != nil || got != 21*time.Millisecond {
		t.Error(got, err)
	}
}

// A day of looks, five seconds apart: how many of them become lines of a log.
func TestPace(t *testing.T) {
	seeding := func(busy bool) client.Progress {
		p := client.Progress{Phase: client.Complete, Sent: 1}
		if busy {
			p.Paths = []client.PathProgress{{Peer: "a", State: pathsel.Active}}
		}
		return p
	}
	for _, tt := range []struct {
		name    string
		uploads bool
		at      func(look int) client.Progress
		lines   int
	}{
		{"idle seed", true, func(int) client.Progress { return seeding(false) }, 24},
		{"busy seed", true, func(i int) client.Progress {
			p := seeding(true)
			p.Sent, p.WriteRate = int64(i)<<20, float64(i)
			return p
		}, 24},
		{"one visit", true, func(i int) client.Progress { return seeding(i > 1000 && i < 1500) }, 26},
		{"peers come and go", true, func(i int) client.Progress { return seeding(i%2 == 0) }, 1330}, // one a minute, at most
		{"steady download", false, func(i int) client.Progress {
			return client.Progress{Phase: client.Downloading, Total: 17280, Have: int64(i), ReadRate: 1e6}
		}, 30},
		{"waiting", false, func(i int) client.Progress {
			return client.Progress{Phase: client.Downloading, Total: 9, Waiting: time.Duration(i).String()}
		}, 24},
	} {
		var p Pace
		lines := 0
		start := time.Unix(1e9, 0)
		for i := range 24 * 3600 / 5 {
			if p.Due(StateOf(tt.at(i), tt.uploads), start.Add(time.Duration(i)*5*time.Second)) {
				lines++
			}
		}
		if lines < tt.lines-4 || lines > tt.lines {
			t.Errorf("%s: %d lines a day, want at most %d and hardly less", tt.name, lines, tt.lines)
		}
	}
}

// What matters is logged when it happens.
func TestStateChanges(t *testing.T) {
	p := client.Progress{Phase: client.Downloading, Total: 100, Have: 5, ReadRate: 1e6, Paths: []client.PathProgress{{State: pathsel.Active}}}
	was := StateOf(p, false)
	for name, change := range map[string]func(*client.Progress){
		"complete":   func(p *client.Progress) { p.Phase = client.Complete },
		"a tenth":    func(p *client.Progress) { p.Have = 10 },
		"waiting":    func(p *client.Progress) { p.Waiting = "for a path" },
		"no path":    func(p *client.Progress) { p.Paths = nil },
		"no payload": func(p *client.Progress) { p.ReadRate = 0 },
	} {
		q := p
		if change(&q); StateOf(q, false) == was {
			t.Errorf("%s is no change", name)
		}
	}
}
