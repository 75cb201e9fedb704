package linkemu

import (
	"encoding/binary"
	"testing"
	"time"

	"braid/units/await"
)

// Carried packets come out whole, in order, at the other end, at the link's rate, and share it with
// those of routers.
func TestCarry(t *testing.T) {
	const size, count = 1000, 200
	cfg := Config{Rate: 8e6, Delay: 5 * time.Millisecond, QueueBytes: 1 << 20} // 1 ms a packet
	l, ends, err := openBench(openWire, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer ends.close()
	ended := make(chan error, 1)
	go func() { ended <- l.Run(t.Context()) }()
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	type out struct {
		n  uint64
		at time.Time
	}
	came := make(chan out, 2*count)
	began := time.Now()
	for i := range count {
		p := make([]byte, size)
		binary.BigEndian.PutUint64(p, uint64(i))
		for _, from := range []End{A, B} {
			l.Carry(from, p, func(p []byte) {
				if len(p) != size {
					t.Errorf("%d bytes", len(p))
				}
				came <- out{binary.BigEndian.Uint64(p) + uint64(from)<<32, time.Now()}
			})
		}
		// A router's packets between them.
		if taken := ends.send(0, [][]byte{p}); taken != 1 {
			t.Fatal("the router's packet was not sent")
		}
	}
	var next [2]uint64
	var last time.Time
	for range 2 * count {
		select {
		case o := <-came:
			from := o.n >> 32
			if o.n&(1<<32-1) != next[from] {
				t.Fatalf("packet %d of side %d, want %d", o.n&(1<<32-1), from, next[from])
			}
			next[from]++
			last = o.at
		case <-time.After(time.Minute):
			t.Fatalf("%v of %d packets came", next, count)
		}
	}
	// From A come both kinds: that direction has carried all but perhaps the last of a router's by
	// now. Never early.
	if least := time.Duration(count) * time.Millisecond; last.Sub(began) < least {
		t.Errorf("all came after %v, the rate allows %v", last.Sub(began), least)
	}
	ab, ba := l.Counters()
	if ba.Packets != count || ab.Packets < count || ab.Packets > 2*count {
		t.Errorf("%d and %d packets were counted", ab.Packets, ba.Packets)
	}
}

// What is carried is lost like everything else.
func TestCarryLost(t *testing.T) {
	for _, cfg := range []Config{{Down: true}, {Loss: 1}, {MTU: 10}} {
		l, ends, err := openBench(openWire, cfg)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- l.Run(t.Context()) }()
		l.Carry(A, make([]byte, 100), func([]byte) { t.Errorf("a packet passes a link with %s", cfg) })
		await.True(t, "the packet to be dropped", func() bool { ab, _ := l.Counters(); return ab.DroppedDown+ab.DroppedLoss == 1 })
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		l.Carry(A, make([]byte, 100), func([]byte) { t.Error("a packet passes a closed link") })
		ends.close()
	}
}

// Carried packets and those of routers, which wait in a socket, enter the queue in the order in
// which they came. The places of a full queue go to the first then, and not to those that need not
// wait.
func TestCarryOvertakesNothing(t *testing.T) {
	const size = 1000
	l := newLine(Config{Rate: 8e6, QueueBytes: size}, 1, 2) // 1 ms a packet, and no other one may wait
	none := func([]byte) {}
	for _, at := range []time.Duration{0, 300 * time.Microsecond, 1600 * time.Microsecond} {
		l.carried = append(l.carried, carried{at, make([]byte, size), none})
	}
	l.take(make([]byte, size), 100*time.Microsecond)  // before the second carried packet
	l.take(make([]byte, size), 1500*time.Microsecond) // and before the third
	l.admit(2 * time.Millisecond)
	if len(l.carried) != 0 || l.DroppedQueue != 3 {
		t.Errorf("%d carried packets wait, %d were dropped; want 0, and 3 that others were before", len(l.carried), l.DroppedQueue)
	}
	for i, carried := range []bool{true, false} {
		if l.packets.len() <= i || (l.packets.at(i).arrive != nil) != carried {
			t.Errorf("packet %d of the line was carried: want %v", i, carried)
		}
	}
}
