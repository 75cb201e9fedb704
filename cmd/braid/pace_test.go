package main

import (
	"testing"
	"time"

	"braid/client"
	"braid/pathsel"
)

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
		var p pace
		lines := 0
		start := time.Unix(1e9, 0)
		for i := range 24 * 3600 / 5 {
			if p.due(stateOf(tt.at(i), tt.uploads), start.Add(time.Duration(i)*5*time.Second)) {
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
	was := stateOf(p, false)
	for name, change := range map[string]func(*client.Progress){
		"complete":   func(p *client.Progress) { p.Phase = client.Complete },
		"a tenth":    func(p *client.Progress) { p.Have = 10 },
		"waiting":    func(p *client.Progress) { p.Waiting = "for a path" },
		"no path":    func(p *client.Progress) { p.Paths = nil },
		"no payload": func(p *client.Progress) { p.ReadRate = 0 },
	} {
		q := p
		if change(&q); stateOf(q, false) == was {
			t.Errorf("%s is no change", name)
		}
	}
}
