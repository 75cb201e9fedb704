package pathsel

import (
	"testing"
	"time"
)

// looks samples a connection every 200 ms for some seconds. packets returns how many have arrived.
func looks(q Silence, from, seconds float64, state State, outstanding int, rtt time.Duration, packets func(at float64) uint64) Silence {
	for at := from; at < from+seconds; at += 0.2 {
		q = q.Add(Sample{
			At: t0.Add(time.Duration(at * float64(time.Second))), State: state, Outstanding: outstanding, RTT: rtt, PacketsReceived: packets(at),
		})
	}
	return q
}

func TestSilence(t *testing.T) {
	const rtt = 20 * time.Millisecond
	flowing := func(at float64) uint64 { return 1 + uint64(at*100) }
	until := func(end float64) func(float64) uint64 {
		return func(at float64) uint64 { return flowing(min(at, end)) }
	}
	none := func(float64) uint64 { return 0 }
	for _, tt := range []struct {
		name        string
		state       State
		outstanding int
		seconds     float64
		rtt         time.Duration
		packets     func(float64) uint64
		want        bool
	}{
		{"data flows", Active, 8, 10, rtt, flowing, false},
		{"only signs of life", Active, 8, 10, rtt, func(at float64) uint64 { return 1 + uint64(at/0.55) }, false},
		{"black hole", Active, 8, 3.6, rtt, until(2), true},
		{"black hole under a probe", Probing, 8, 3.6, rtt, until(2), true},
		{"for a moment", Active, 8, 2.7, rtt, until(2), false},
		{"nothing owed", Active, 0, 10, rtt, until(2), false},
		{"parked", Parked, 8, 10, rtt, until(2), false},
		{"a transport without signs of life", Active, 8, 10, rtt, none, false},
		{"a long way: 5 PTO are 1.6 s", Active, 8, 3.2, 295 * time.Millisecond, until(2), false},
		{"a long way, and longer", Active, 8, 4.6, 295 * time.Millisecond, until(2), true},
	} {
		if got := looks(Silence{}, 0, tt.seconds, tt.state, tt.outstanding, tt.rtt, tt.packets).Silent(); got != tt.want {
			t.Errorf("%s: silent %v", tt.name, got)
		}
	}
}

// A process that was stopped for a minute samples again before it gives up its paths.
func TestWhoWasStoppedHasHeardNothing(t *testing.T) {
	one := func(float64) uint64 { return 7 }
	q := looks(Silence{}, 0, 0.3, Active, 8, 0, one)
	if q = looks(q, 60, 0.1, Active, 8, 0, one); q.Silent() {
		t.Error("silent at the first look after the stop")
	}
	if q = looks(q, 60.2, 0.9, Active, 8, 0, one); !q.Silent() {
		t.Error("alive though nothing came while it looked")
	}
}

// A router's message that a link is down counts only if nothing arrives.
func TestQuiet(t *testing.T) {
	const rtt = 20 * time.Millisecond
	flowing := func(at float64) uint64 { return 1 + uint64(at*100) }
	signs := func(at float64) uint64 { return 1 + uint64(at/0.55) }
	until := func(end float64, f func(float64) uint64) func(float64) uint64 {
		return func(at float64) uint64 { return f(min(at, end)) }
	}
	for _, tt := range []struct {
		name        string
		state       State
		outstanding int
		seconds     float64
		rtt         time.Duration
		packets     func(float64) uint64
		want        bool
	}{
		{"data flows", Active, 8, 10, rtt, flowing, false},
		{"none for one look", Active, 8, 2.5, rtt, until(2, flowing), true},
		{"none for one look of a long way", Active, 8, 2.5, 300 * time.Millisecond, until(2, flowing), false},
		{"nothing owed, signs of life", Active, 0, 10, rtt, signs, false},
		{"parked, signs of life", Parked, 0, 10, rtt, signs, false},
		{"parked, and no sign of life", Parked, 0, 4, rtt, until(2, signs), true},
		{"just opened", Active, 8, 0.1, rtt, until(0, flowing), false},
	} {
		if got := looks(Silence{}, 0, tt.seconds, tt.state, tt.outstanding, tt.rtt, tt.packets).Quiet(); got != tt.want {
			t.Errorf("%s: quiet %v", tt.name, got)
		}
	}
}
