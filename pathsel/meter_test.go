package pathsel

import (
	"math"
	"testing"
	"time"
	"unsafe"
)

var t0 = time.Unix(1000, 0).UTC()

// flow is a piece of a connection's life, sampled every 100 ms.
type flow struct {
	seconds     float64
	state       State
	choked      bool
	outstanding int
	rate        float64 // bytes per second
}

func metered(rtt time.Duration, flows ...flow) Meter {
	var m Meter
	at, read := t0, 0.0
	for _, f := range flows {
		for range int(math.Round(f.seconds * 10)) {
			m = m.Add(Sample{At: at, State: f.state, Choked: f.choked, Outstanding: f.outstanding, BytesRead: uint64(read), RTT: rtt})
			read += f.rate / 10
			at = at.Add(100 * time.Millisecond)
		}
	}
	return m.Add(Sample{At: at, BytesRead: uint64(read), RTT: rtt})
}

func TestOnlyTimeInWhichDataCouldFlowIsJudged(t *testing.T) {
	const rtt = 20 * time.Millisecond // grace 1.5 s
	for _, tt := range []struct {
		name  string
		flows []flow
		slots int
		rate  float64 // of the estimate; 0 if there is none
	}{
		{"steady, after the grace", []flow{{10, Active, false, 9, 1e6}}, 9, 1e6},
		{"slow start is not judged", []flow{{1.5, Active, false, 9, 1e5}, {8.5, Active, false, 9, 1e6}}, 9, 1e6},
		{"probing counts like active", []flow{{10, Probing, false, 9, 1e6}}, 9, 1e6},
		{"choked all the time", []flow{{10, Active, true, 9, 0}}, 0, 0},
		{"no requests", []flow{{10, Active, false, 0, 0}}, 0, 0},
		{"parked", []flow{{10, Parked, false, 0, 0}}, 0, 0},
		{"choked for a while: grace again", []flow{{5, Active, false, 9, 1e6}, {3, Active, true, 9, 0}, {5, Active, false, 9, 1e6}}, 7, 1e6},
		{"a dry queue for a moment: no grace", []flow{{5, Active, false, 9, 1e6}, {0.3, Active, false, 0, 0}, {4.7, Active, false, 9, 1e6}}, 9, 1e6},
		{"starved half of the time", []flow{
			{5, Active, false, 9, 1e6}, {.4, Active, false, 0, 0}, {.6, Active, false, 9, 1e6}, {.4, Active, false, 0, 0}, {.6, Active, false, 9, 1e6}, {3, Active, false, 9, 1e6}}, 9, 1e6},
		{"open and stalled is judged", []flow{{10, Active, false, 9, 0}}, 9, 0},
	} {
		m := metered(rtt, tt.flows...)
		e := EstimateOf(m.Slots, time.Time{}, 100)
		if abs := math.Abs(e.Rate - tt.rate); abs > 0.01*tt.rate || e.Slots < tt.slots-1 || e.Slots > tt.slots {
			t.Errorf("%s: %.0f from %d slots, want %.0f from %d", tt.name, e.Rate, e.Slots, tt.rate, tt.slots)
		}
	}
	if n := len(metered(200*time.Millisecond, flow{10, Active, false, 9, 1e6}).Slots); n != 5 {
		t.Errorf("grace of 20 round trips of 200 ms leaves %d finished slots of ten, want 5", n)
	}
	if n := len(metered(rtt, flow{100, Active, false, 9, 1e6}).Slots); n != maxSlots {
		t.Errorf("%d slots are kept", n)
	}
}

func TestMeterIsAValue(t *testing.T) {
	m := metered(0, flow{10, Active, false, 9, 1e6})
	n, first := len(m.Slots), m.Slots[0]
	for i := range 100 {
		m.Add(Sample{At: t0.Add(time.Duration(11+i) * time.Second), State: Active, Outstanding: 1})
	}
	if len(m.Slots) != n || m.Slots[0] != first {
		t.Error("Add changed its receiver")
	}
}

func TestEstimate(t *testing.T) {
	slot := func(second int, bytes, wasted uint64) Slot {
		return Slot{Start: t0.Add(time.Duration(second) * time.Second), Flow: time.Second, Bytes: bytes, Wasted: wasted}
	}
	a := []Slot{slot(0, 50, 0), slot(1, 100, 0), slot(2, 110, 0), slot(3, 90, 0), slot(4, 1000, 0), slot(5, 120, 20)}
	if e := EstimateOf(a, t0.Add(time.Second), 9); e.Rate != 100 || e.Slots != 5 {
		t.Errorf("%+v: want the median, 100, of the five slots from second 1", e)
	}
	if e := EstimateOf(a, time.Time{}, 2); e.Rate != 550 || e.Slots != 2 {
		t.Errorf("%+v: want the middle of the last two", e)
	}
	if e := EstimateOf(nil, time.Time{}, 2); e != (Estimate{}) {
		t.Errorf("%+v of nothing", e)
	}
}

// Slots are in order, and are not older than a connection that is, if the clock is set back. Those
// of several connections are still added up.
func TestSlotsWhileTheClockIsSetBack(t *testing.T) {
	began := time.Now()
	all := make([]Meter, 2)
	for i := range 200 {
		at := began.Add(time.Duration(i) * 100 * time.Millisecond)
		if i >= 100 {
			at = setBack(at, time.Hour+300*time.Millisecond)
		}
		for k := range all {
			at = at.Add(time.Duration(k) * time.Microsecond)
			all[k] = all[k].Add(Sample{At: at, State: Active, Outstanding: 9, BytesRead: uint64(i) * 1e5, RTT: time.Millisecond})
		}
	}
	late := EstimateOf(all[0].Slots, began.Add(11*time.Second), maxSlots)
	if late.Slots < 7 || math.Abs(late.Rate-1e6) > 1e4 {
		t.Errorf("the slots of the last seconds: %+v", late)
	}
	both := Joint([][]Slot{all[0].Slots, all[1].Slots}, began, maxSlots)
	if both.Slots < 15 || math.Abs(both.Rate-2e6) > 2e4 {
		t.Errorf("the slots of both connections: %+v", both)
	}
}

// setBack returns the time as read from a clock that has been set back. The monotonic reading goes
// on.
func setBack(t time.Time, d time.Duration) time.Time {
	t = t.Add(-d)
	(*struct{ wall, monotonic int64 })(unsafe.Pointer(&t)).monotonic += int64(d)
	return t
}

// A clock that is set back leaves slots of the future behind, which do not count.
func TestJointAfterTheClockWasSetBack(t *testing.T) {
	slots := append(slotsOf(t0.Add(time.Minute), 3, 80), slotsOf(t0, 2, 8)...)
	e := Joint([][]Slot{slots, slotsOf(t0, 2, 8)}, time.Time{}, window)
	if e.Slots != 2 || math.Abs(e.Rate-2e6) > 1 {
		t.Errorf("%+v", e)
	}
}

func TestSpearman(t *testing.T) {
	for _, tt := range []struct {
		a, b []float64
		want float64
		ok   bool
	}{
		{[]float64{1, 2, 3}, []float64{10, 20, 30}, 1, true},
		{[]float64{1, 2, 3}, []float64{30, 20, 10}, -1, true},
		{[]float64{1, 2, 3, 4, 5}, []float64{2, 1, 4, 3, 5}, 0.8, true},
		{[]float64{1, 2, 2, 3}, []float64{1, 3, 3, 4}, 1, true},
		{[]float64{1, 2}, []float64{5, 5}, 0, false},
		{[]float64{1}, []float64{1}, 0, false}, {nil, nil, 0, false}, {[]float64{1, 2}, []float64{1}, 0, false},
	} {
		if got, ok := Spearman(tt.a, tt.b); math.Abs(got-tt.want) > 1e-9 || ok != tt.ok {
			t.Errorf("Spearman(%v, %v) = %v, %v", tt.a, tt.b, got, ok)
		}
	}
	slots := func(rate uint64) []Slot { return []Slot{{Start: t0, Flow: time.Second, Bytes: rate}} }
	v := View{Candidates: []Candidate{
		{Handshake: 40 * time.Millisecond, Slots: slots(10)}, {Handshake: 80 * time.Millisecond, Slots: slots(20)}, {Handshake: time.Millisecond},
	}}
	if rho, n, ok := HandshakeCorrelation(v); rho != -1 || n != 2 || !ok {
		t.Errorf("handshakes mislead: %v of %d, %v", rho, n, ok)
	}
}
