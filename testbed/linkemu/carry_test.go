package linkemu

import (
	"encoding/binary"
	"testing"
	"time"
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
		ab, _ := l.Counters()
		if ab.DroppedDown+ab.DroppedLoss != 1 {
			t.Errorf("%s: %+v", cfg, ab)
		}
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
