package node

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestQueuePlan(t *testing.T) {
	down, up := turn{}, turn{seeds: true}
	running := func(x turn) turn { x.running = true; return x }
	stalled := func(x turn) turn { x.running, x.stalled = true, true; return x }
	forced := func(x turn) turn { x.forced = true; return x }
	first := func(x turn) turn { x.priority = PriorityHigh; return x }
	for name, tt := range map[string]struct {
		queue Queue
		all   []turn
		want  []bool
	}{
		"no limits":               {Queue{}, []turn{down, up, down}, []bool{true, true, true}},
		"in order":                {Queue{Downloads: 1, Seeds: 1}, []turn{down, down, up, up}, []bool{true, false, true, false}},
		"an earlier one takes":    {Queue{Downloads: 1}, []turn{down, running(down)}, []bool{true, false}},
		"a stalled one":           {Queue{Downloads: 1}, []turn{stalled(down), down, down}, []bool{true, true, false}},
		"a forced one":            {Queue{Downloads: 1}, []turn{down, forced(down)}, []bool{true, true}},
		"priority":                {Queue{Downloads: 1}, []turn{down, first(down)}, []bool{false, true}},
		"seeds are by themselves": {Queue{Downloads: 1, Seeds: 2}, []turn{up, up, up, down}, []bool{true, true, false, true}},
	} {
		if got := tt.queue.plan(tt.all); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// Alternative rates hold by the schedule, across midnight, and by hand until the schedule says
// something new.
func TestRatesAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(day, hour, minute int) time.Time { return time.Date(2026, 11, day, hour, minute, 0, 0, time.Local) } // the 22nd is a Sunday
		week := [7]bool{true, true, true, true, true, true, true}
		yes, no := true, false
		day := Schedule{On: true, From: 8 * 60, To: 18 * 60, Days: [7]bool{1: true}}
		night := Schedule{On: true, From: 22 * 60, To: 6 * 60, Days: [7]bool{6: true}} // Saturday
		for _, tt := range []struct {
			a    Alternative
			now  time.Time
			want bool
		}{
			{Alternative{}, at(22, 12, 0), false},
			{Alternative{Schedule: day}, at(23, 7, 59), false},
			{Alternative{Schedule: day}, at(23, 8, 0), true},
			{Alternative{Schedule: day}, at(23, 18, 0), false},
			{Alternative{Schedule: day}, at(24, 12, 0), false},
			{Alternative{Schedule: night}, at(21, 23, 0), true},
			{Alternative{Schedule: night}, at(22, 5, 59), true},
			{Alternative{Schedule: night}, at(22, 6, 0), false},
			{Alternative{Schedule: night}, at(22, 23, 0), false},
			{Alternative{Schedule: Schedule{On: true, From: 60, To: 60, Days: week}}, at(22, 0, 0), true},
			{Alternative{Hand: &yes, Since: at(1, 0, 0)}, at(22, 0, 0), true},
			{Alternative{Schedule: day, Hand: &yes, Since: at(23, 6, 0)}, at(23, 7, 59), true},
			{Alternative{Schedule: day, Hand: &no, Since: at(23, 9, 0)}, at(23, 17, 59), false},
			{Alternative{Schedule: day, Hand: &no, Since: at(23, 9, 0)}, at(30, 8, 0), true},
			{Alternative{Schedule: day, Hand: &yes, Since: at(23, 9, 0)}, at(23, 18, 0), false},
			{Alternative{Schedule: day, Hand: &yes, Since: at(1, 9, 0)}, at(22, 0, 0), false},
			// These schedules never begin or end the alternative rates.
			{Alternative{Schedule: Schedule{On: true, From: 60, To: 60, Days: week}, Hand: &no, Since: at(1, 0, 0)}, at(22, 0, 0), false},
			{Alternative{Schedule: Schedule{On: true, From: 60, To: 120}, Hand: &yes, Since: at(1, 0, 0)}, at(22, 0, 0), true},
		} {
			s := Settings{Rates: Rates{Upload: 1}, Alternative: tt.a}
			s.Alternative.Rates.Upload = 2
			if r, got := s.RatesAt(tt.now); got != tt.want || (r.Upload == 2) != tt.want {
				t.Errorf("%s at %v: %v", fmt.Sprint(tt.a), tt.now, got)
			}
		}
		// A node follows the schedule.
		now := time.Now()
		n := &Node{limiter: nil, settings: Settings{Alternative: Alternative{Schedule: Schedule{On: true, From: now.Hour()*60 + now.Minute() + 2, To: 23*60 + 59, Days: week}}}}
		if _, alternative := n.Settings().RatesAt(time.Now()); alternative {
			t.Error("too early")
		}
		time.Sleep(2 * time.Minute)
		if _, alternative := n.Settings().RatesAt(time.Now()); !alternative {
			t.Error("too late")
		}
	})
}

// A paused torrent takes no place in the queue while its data is verified.
func TestVerifyTakesNoTurn(t *testing.T) {
	t.Parallel()
	n := openService(t, t.TempDir(), t.TempDir())
	x := add(t, n, Options{Source: create(t, t.TempDir(), "file", 1), Paused: true})
	x.mu.Lock()
	x.state, x.verifying = Starting, true // as in the middle of Verify
	x.mu.Unlock()
	if turn, wants := x.turn(time.Now(), DefaultStalled); wants {
		t.Errorf("it takes part in the queue: %+v", turn)
	}
}

// The kept order is the last one, also if several changes come together.
func TestOrderIsKept(t *testing.T) {
	t.Parallel()
	n := openService(t, t.TempDir(), t.TempDir())
	var all []*Torrent
	for _, name := range []string{"a", "b", "c", "d"} {
		all = append(all, add(t, n, Options{Source: create(t, t.TempDir(), name, 1), Paused: true}))
	}
	for range 20 {
		var changes sync.WaitGroup
		for i, x := range all {
			changes.Go(func() { _ = x.SetPosition(3 - i) })
		}
		changes.Wait()
		kept, err := n.loadOrder()
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range n.Torrents() {
			if kept[x.InfoHash()] != i {
				t.Fatalf("torrent %d is kept as %d", i, kept[x.InfoHash()])
			}
		}
	}
}

// Decisions for which there is no room wait for it, without another look at the queue.
func TestDecisionsWaitForRoom(t *testing.T) {
	n := &Node{
		ctx:    t.Context(),
		starts: make(chan struct{}, 1),
		wake:   make(chan struct{}, 1),
		room:   make(chan struct{}, 1),
	}
	var all []decision
	for range 3 {
		x := newTorrent(n, Options{Paused: true}) // a start does nothing
		all = append(all, decision{x, true})
	}
	all[0].torrent.op.Lock()
	rest := n.carryOut(all)
	if len(rest) != 2 || rest[0] != all[1] {
		t.Errorf("%d decisions are left, want the last 2", len(rest))
	}
	if again := n.carryOut(rest); len(again) != 2 {
		t.Errorf("%d decisions are left while there is no room, want 2", len(again))
	}
	all[0].torrent.op.Unlock()
	for len(rest) > 0 {
		<-n.room
		rest = n.carryOut(rest)
	}
	n.workers.Wait()
	for i, d := range all {
		if d.torrent.deciding.Load() {
			t.Errorf("decision %d was not carried out", i)
		}
	}
}
