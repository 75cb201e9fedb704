package node

import (
	"fmt"
	"testing"
	"time"

	"braid/client"
	"braid/pathsel"
	"braid/tracker/wire"
)

func TestReportsOf(t *testing.T) {
	now := time.Unix(1e9, 0)
	path := func(id uint64) pathsel.Path {
		ifs := []pathsel.Interface{{IA: 1<<48 | 1, ID: id}, {IA: 1<<48 | 2, ID: id}}
		return pathsel.Path{Fingerprint: pathsel.FingerprintOf(ifs), Interfaces: ifs}
	}
	row := func(id uint64, change func(*client.PathProgress)) client.PathProgress {
		p := client.PathProgress{Path: path(id), State: pathsel.Active, BytesRead: 1000 * id, LastRead: now.Add(-time.Second)}
		p.MinRTT, p.PacketsSent, p.PacketsLost = time.Duration(id)*time.Millisecond, 100, id
		p.Carried, p.CarriedUntil = pathsel.Estimate{Rate: 1e6, Slots: 5}, now.Add(-2*time.Second)
		if change != nil {
			change(&p)
		}
		return p
	}
	got := reportsOf(client.Progress{Paths: []client.PathProgress{
		row(1, nil),
		row(1, func(p *client.PathProgress) { p.MinRTT = time.Microsecond }),                                    // they add up
		row(1, func(p *client.PathProgress) { p.Peer, p.State, p.Carried.Rate = "other", pathsel.Idle, 1.5e6 }), // an earlier one does not
		row(2, func(p *client.PathProgress) {
			p.State, p.CarriedUntil, p.LastRead = pathsel.Parked, time.Time{}, now.Add(-time.Minute)
		}),
		row(3, func(p *client.PathProgress) { p.Accepted = true }), // it has carried too little
		row(8, func(p *client.PathProgress) { // served
			p.Accepted, p.BytesWritten, p.BytesRead, p.Carried = true, 1<<20, 100, pathsel.Estimate{}
			p.FirstRead, p.CarriedUntil = now.Add(-time.Hour), time.Time{}
		}),
		row(4, func(p *client.PathProgress) { p.MinRTT = 0 }),
		row(5, func(p *client.PathProgress) { p.Path.Interfaces = nil }),
		row(6, func(p *client.PathProgress) { p.CarriedUntil, p.LastRead = time.Time{}, time.Time{} }),
		row(7, func(p *client.PathProgress) { p.MinRTT = time.Hour }),
	}}, now)
	want := []wire.PathReport{
		{Interfaces: path(8).Interfaces, RTT: 8 * time.Millisecond, Sent: 100, Lost: 8, Age: time.Second},
		{Interfaces: path(1).Interfaces, RTT: time.Microsecond, Rate: 2e6, Sent: 300, Lost: 3, Age: time.Second},
		{Interfaces: path(2).Interfaces, RTT: 2 * time.Millisecond, Rate: 1e6, Sent: 100, Lost: 2, Age: time.Minute},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if again, err := wire.ParseReports(wire.AppendReports(nil, got)); err != nil || len(again) != 3 {
		t.Errorf("%+v, %v", again, err)
	}
	slow := row(1, func(p *client.PathProgress) {
		p.Carried, p.BytesRead, p.FirstRead = pathsel.Estimate{}, 1<<20, p.LastRead.Add(-16*time.Second)
	})
	if got := reportsOf(client.Progress{Paths: []client.PathProgress{slow}}, now); len(got) != 1 || got[0].Rate != 64<<10 {
		t.Errorf("one too slow to be judged: %+v", got)
	}
	slow.BytesRead = 1000 // a handshake
	if got := reportsOf(client.Progress{Paths: []client.PathProgress{slow}}, now); len(got) != 1 || got[0].Rate != 0 {
		t.Errorf("one that carried next to nothing: %+v", got)
	}
	var many []client.PathProgress
	for id := range uint64(100) {
		many = append(many, row(id+1, nil))
	}
	if got := reportsOf(client.Progress{Paths: many}, now); len(got) != wire.MaxReports || got[0].Interfaces[0].ID != 100 {
		t.Errorf("%d reports, the first is of %v", len(got), got[0].Interfaces)
	}
}
