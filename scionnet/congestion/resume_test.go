package congestion

import (
	"testing"
	"time"
)

// transfer is how long 5 MB take that are asked for so long after the handshake, and how many
// packets are lost.
func transfer(seed uint64, w wire, told func(*Flow), after time.Duration) (time.Duration, int) {
	s := newSim(seed)
	f := New(Config{Seed: seed})
	told(f)
	x := s.flow(f, 0, w.delay, &w)
	for s.now < after { // a handshake, and signs of life
		x.left = 1
		x.wake()
		s.run(min(after, s.now+500*ms))
	}
	x.left = 5_000_000 / packetBytes
	x.wake()
	s.run(after + 20*time.Second)
	return x.done - after, x.lost
}

func TestResume(t *testing.T) {
	path := wire{rate: 40 * mbit, delay: 60 * ms, queue: 120 * ms}
	halved := path
	halved.rate /= 2
	shallow := halved
	shallow.queue = 15 * ms
	nothing := func(*Flow) {}
	remembers := func(rate float64, rtt time.Duration) func(*Flow) {
		return func(f *Flow) { f.Resume(rate/8, rtt, true) }
	}
	hint := func(rate float64) func(*Flow) { return func(f *Flow) { f.Hint(rate / 8) } }
	for _, c := range []struct {
		name  string
		wire  wire
		told  func(*Flow)
		after time.Duration
		least float64 // of the link's rate
		lost  int     // most
	}{
		{"first time", path, nothing, 0, 0.62, 20},
		{"known", path, remembers(40*mbit, 120*ms), 0, 0.77, 5},
		{"known, asked later", path, remembers(40*mbit, 120*ms), time.Second, 0.84, 5},
		{"first time, half", halved, nothing, 0, 0.79, 20},
		{"known, now half", halved, remembers(40*mbit, 120*ms), 0, 0.90, 25},
		{"first time, half, shallow", shallow, nothing, 0, 0.77, 280}, // the jump costs no more than a start
		{"known, now half, shallow", shallow, remembers(40*mbit, 120*ms), 0, 0.88, 280},
		{"another path", path, remembers(40*mbit, 20*ms), 0, 0.62, 20},
		{"a lie", path, remembers(8000*mbit, 120*ms), 0, 0.80, 100},
		{"no hint", path, nothing, time.Second, 0.66, 20},
		{"hint", path, hint(40 * mbit), time.Second, 0.75, 20},
		{"hint of half", path, hint(20 * mbit), time.Second, 0.70, 20},
		{"hint of a tenth", path, hint(4 * mbit), time.Second, 0.66, 20}, // as without
		{"hint of next to nothing", path, hint(0.6 * mbit), time.Second, 0.66, 20},
		{"hint, asked too late", path, hint(40 * mbit), resumeHolds + 10*time.Second, 0.66, 20},
		{"known, asked too late", path, remembers(40*mbit, 120*ms), resumeHolds + 10*time.Second, 0.66, 20},
		{"known from little data", path, func(f *Flow) { f.Resume(3e3, 120*ms, false) }, time.Second, 0.66, 20},
		{"hint of ten times as much", path, hint(400 * mbit), time.Second, 0.75, 100},
		{"a lie, short path", wire{rate: 5 * mbit, delay: 20 * ms, queue: 40 * ms}, hint(8000 * mbit), time.Second, 0.95, 400},
	} {
		for seed := range uint64(3) {
			took, lost := transfer(seed, c.wire, c.told, c.after)
			got := 5e6 * 8 / c.wire.rate / took.Seconds()
			if got < c.least || lost > c.lost {
				t.Errorf("%s: %.2f of the rate, %d lost", c.name, got, lost)
			} else {
				t.Logf("%s: %.2f of the rate, %d lost", c.name, got, lost)
			}
		}
	}
}

// A flow remembers what it has measured itself, whatever others say, and hears no hints once it
// knows its path.
func TestHintCountsLess(t *testing.T) {
	t.Parallel()
	rate := func(f *Flow) float64 { return f.algorithm.(*bbr).start.resume.rate * 8 / mbit }
	f := New(Config{})
	f.Resume(40*mbit/8, 120*ms, true)
	if f.Hint(400 * mbit / 8); rate(f) != 40 {
		t.Errorf("a hint replaces what is remembered: %v", rate(f))
	}
	s, w := newSim(1), wire{rate: 40 * mbit, delay: 10 * ms, queue: 20 * ms}
	f = New(Config{})
	s.flow(f, 0, w.delay, &w)
	s.run(5 * time.Second)
	if f.Hint(400 * mbit / 8); rate(f) != 0 {
		t.Errorf("a hint counts after the start: %v", rate(f))
	}
}

// A jump leaves room for the flows of this host on its path, whether they send or wait for their
// own jump. Those that share only the first link of the path do not count.
func TestHintAmongOthers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		links []Link // of the others
		send  bool
		want  float64 // Mbit/s
	}{
		{"on its path, sending", []Link{"first", "second"}, true, 40 * jumpPart / 4},
		{"on its path, waiting", []Link{"first", "second"}, false, 40 * jumpPart / 4},
		{"on other paths", []Link{"first", "other"}, true, 40 * jumpPart},
	} {
		s, g := newSim(1), NewGroup()
		hinted := func(links []Link, path ...*wire) *sender {
			x := joined(s, g, 0, links, path...)
			x.Hint(40 * mbit / 8)
			x.left = 1
			return x
		}
		for range 3 {
			x := hinted(c.links, &wire{rate: 400 * mbit, delay: 20 * ms, queue: 40 * ms})
			if c.send {
				x.left = -1
			}
		}
		s.run(time.Second)
		x := hinted([]Link{"first", "second"}, &wire{rate: 40 * mbit, delay: 20 * ms, queue: 40 * ms})
		s.run(s.now + 100*ms)
		x.left = 100
		x.wake()
		s.run(s.now + 10*ms)
		if got := x.algorithm.(*bbr).start.resume.jump * 8 / mbit; got != c.want {
			t.Errorf("%s: it jumps to %v Mbit/s, want %v", c.name, got, c.want)
		}
	}
}

// Flows that have waited for their data start together, each with a part of the hint.
func TestHintedTogether(t *testing.T) {
	t.Parallel()
	lost := func(n int, hint float64) (total int) {
		s, g := newSim(1), NewGroup()
		w := wire{rate: 40 * mbit, delay: 60 * ms, queue: 60 * ms}
		var all []*sender
		for range n {
			x := joined(s, g, 0, []Link{"common"}, &w)
			x.back = w.delay
			if hint > 0 {
				x.Hint(hint / 8)
			}
			x.left = 1
			all = append(all, x)
		}
		s.run(2 * time.Second)
		for _, x := range all {
			x.left = -1
			x.wake()
		}
		s.run(s.now + 3*time.Second) // until the start is over without a hint, too
		for _, x := range all {
			total += x.lost
		}
		return total
	}
	for _, n := range []int{4, 10, 20} {
		if with, without := lost(n, 40*mbit), lost(n, 0); with > 2*without {
			t.Errorf("%d flows lose %d packets, and %d without a hint", n, with, without)
		} else {
			t.Logf("%d flows lose %d packets, and %d without a hint", n, with, without)
		}
	}
}

// What links are announced to carry makes the start quicker, and a wrong announcement costs little.
func TestAnnounced(t *testing.T) {
	t.Parallel()
	path := wire{rate: 40 * mbit, delay: 60 * ms, queue: 120 * ms}
	shallow := path
	shallow.queue = 10 * ms
	for _, c := range []struct {
		name  string
		wire  wire
		rate  float64 // announced
		least float64 // of the link's rate
		lost  int     // most
	}{
		{"nothing", path, 0, 0.66, 20},
		{"the truth", path, 40 * mbit, 0.76, 0},
		{"half", path, 20 * mbit, 0.70, 20},
		{"ten times as much", path, 400 * mbit, 0.77, 20},
		{"nothing, shallow", shallow, 0, 0.64, 750},
		{"the truth, shallow", shallow, 40 * mbit, 0.74, 750},
		{"ten times as much, shallow", shallow, 400 * mbit, 0.74, 750},
	} {
		for seed := range uint64(3) {
			s, w := newSim(seed), c.wire
			f := New(Config{Seed: seed})
			f.Announce(c.rate / 8)
			x := s.flow(f, 0, w.delay, &w)
			x.left = 1
			s.run(time.Second) // a handshake
			x.left = 5_000_000 / packetBytes
			x.wake()
			s.run(20 * time.Second)
			if got := 5e6 * 8 / w.rate / (x.done - time.Second).Seconds(); got < c.least || x.lost > c.lost {
				t.Errorf("%s: %.2f of the rate, %d lost", c.name, got, x.lost)
			} else {
				t.Logf("%s: %.2f of the rate, %d lost", c.name, got, x.lost)
			}
		}
	}
}

// Flows of one host that start at once on the same link share what it is announced to carry.
func TestAnnouncedToMany(t *testing.T) {
	g := NewGroup()
	var flows []*Flow
	for range 5 {
		f := New(Config{PacketSize: packetBytes})
		f.Announce(40 * mbit / 8)
		g.Join(f, []Link{"shared"})
		flows = append(flows, f)
	}
	const trip = 120 * ms
	for _, f := range flows {
		f.OnSent(0, 0, 200, 200)
		f.OnAck(trip, []Packet{{0, 200}}, nil, 200)
	}
	window := func() int { return flows[0].Window() / packetBytes }
	if got := window(); got > longWindow {
		t.Errorf("one of five starts with %d packets", got)
	}
	for _, f := range flows[1:] {
		g.Leave(f)
	}
	flows[0].OnSent(2*trip, 1, 200, 200)
	flows[0].OnAck(3*trip, []Packet{{1, 200}}, nil, 200)
	if got := window(); got < 2*longWindow || got > announcedWindow {
		t.Errorf("alone, it starts with %d packets", got)
	}
}

// A flow that had nothing to send for a while goes on at its former rate within two round trips.
func TestParked(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{time.Second, 5 * time.Second, 15 * time.Second, 2 * time.Minute} {
		s := newSim(1)
		w := wire{rate: 20 * mbit, delay: 40 * ms, queue: 80 * ms}
		x := s.flow(New(Config{}), 0, w.delay, &w)
		s.run(10 * time.Second)
		x.left = 0
		for back := s.now + pause; s.now < back; { // kept alive
			s.run(min(back, s.now+2*time.Second))
			x.left = 1
			x.wake()
		}
		s.run(s.now + time.Second)
		x.left = -1
		x.wake()
		s.run(s.now + 160*ms)
		x.begin()
		s.run(s.now + 500*ms)
		if got := x.rate(500*ms) / w.rate; got < 0.9 || x.lost > 0 {
			t.Errorf("after %v: %.2f of the rate, %d lost, %s", pause, got, x.lost, x.Snapshot().State)
		} else {
			t.Logf("after %v: %.2f of the rate, %s", pause, got, x.Snapshot().State)
		}
	}
}

// A handshake of a few small packets does not slow the start down: it says nothing of the path's
// rate.
func TestStartAfterHandshake(t *testing.T) {
	f := New(Config{PacketSize: packetBytes})
	const trip = 120 * ms
	f.OnSent(0, 0, 200, 200)
	f.OnAck(trip, []Packet{{0, 200}}, nil, 200)
	f.OnSent(trip, 1, 250, 250)
	f.OnAck(2*trip, []Packet{{1, 250}}, nil, 250)
	if got, least := f.PacingRate(), float64(trip/initialTrip)*initialWindow*packetBytes/trip.Seconds(); got < least {
		t.Errorf("%.0f bytes a second, want at least the initial window in a round trip, %.0f", got, least)
	}
}

// A flow may take over a connection whose first packets are in flight. What it measures begins with
// the first packet that it sends itself, and not with its clock.
func TestStartBehindOthers(t *testing.T) {
	f := New(Config{PacketSize: packetBytes})
	const begin, trip = time.Hour, 4 * ms
	for n := range int64(initialWindow) {
		f.OnSent(begin, n, packetBytes, 150+int(n+1)*packetBytes)
	}
	f.OnAck(begin+trip, []Packet{{-1, 150}, {0, packetBytes}}, nil, 150+initialWindow*packetBytes)
	if got, least := f.PacingRate(), packetBytes/trip.Seconds(); got < least {
		t.Errorf("%.0f bytes a second, want at least a packet in a round trip, %.0f", got, least)
	}
}
