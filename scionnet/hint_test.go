package scionnet

import (
	"strconv"
	"testing"
	"time"

	"braid/pathsel"
)

func TestRateBits(t *testing.T) {
	for _, rate := range []float64{-1, 0, rateUnit - 1, rateUnit, 1.09 * rateUnit} {
		if b := rateBits(rate); b != 0 || rateOf(b) != 0 {
			t.Errorf("%v: %08b", rate, b)
		}
	}
	for rate := 1.1 * rateUnit; rate < 3e9; rate *= 1.001 {
		b := rateBits(rate)
		if got := rateOf(b) / rate; got < 0.9 || got > 1.1 || b&featureBundles != 0 {
			t.Errorf("%v: %08b, %.2f of it", rate, b, got)
		}
	}
	if b := rateBits(1e15); rateOf(b) > 4e9 || b != mostRate<<rateShift {
		t.Errorf("%08b", b)
	}
}

func TestHintsAreBounded(t *testing.T) {
	var m memory
	now := time.Unix(1e9, 0)
	for i := range 2 * maxHints {
		f := pathsel.Fingerprint(strconv.Itoa(i))
		m.hint(pathsel.Hints{1: {{Path: f, Rate: 5}, {Path: f + "x"}}}, now)
		if m.hinted(f, now) != 5 || m.hinted(f+"x", now) != 0 {
			t.Fatalf("path %d is forgotten", i)
		}
		if m.hinted(f, now.Add(hintHolds)) != 0 {
			t.Fatal("hints hold forever")
		}
	}
	if len(m.hints) > maxHints {
		t.Errorf("%d hints", len(m.hints))
	}
}

// The dialler passes on what it was told of a path, divided among its connections along it. The
// acceptor follows that on its only connection, unless it has filled the path itself.
func TestHintReachesPeer(t *testing.T) {
	h := oneAS(t)
	a, b := listen(t, h, ListenConfig{}), listen(t, h, ListenConfig{})
	const rate = 8 * rateUnit
	dial := func() (from, to *Conn, heard float64) {
		from, to = pair(t, a, b)
		learn := to.onFeatures
		to.onFeatures = func(peer byte) {
			heard = rateOf(peer)
			learn(peer)
		}
		ping(t, from, to)
		return from, to, heard
	}
	from, to, heard := dial()
	if heard != 0 {
		t.Errorf("without a hint, the acceptor hears of %v bytes a second", heard)
	}
	from.Abort()
	<-to.quic.Context().Done()
	a.endings.Wait()
	b.endings.Wait()
	h.Hint(pathsel.Hints{h.ia: {{Rate: rate}}}) // the fingerprint of the path inside an AS is empty
	from, to, heard = dial()
	if heard != rate {
		t.Errorf("the acceptor hears of %v bytes a second, want %v", heard, rate)
	}
	k := to.route.hostPath()
	told := rateBits(rate)
	if dialler := from.hintIn(told); dialler != 0 {
		t.Error("the dialler follows a hint")
	}
	if h.memory.end(k); to.hintIn(told) != rate { // both ends are on this host: two users
		t.Error("the acceptor does not follow a hint")
	}
	h.memory.note(k, rate, false, time.Millisecond, time.Now())
	if to.hintIn(told) != rate {
		t.Error("a connection with little to send counts more than a hint")
	}
	h.memory.note(k, 2*rate, true, time.Millisecond, time.Now())
	if to.hintIn(told) != 0 {
		t.Error("a hint counts more than a full path")
	}
	h.memory.begin(k, time.Now())
	if _, _, heard = dial(); heard != rate/2 {
		t.Errorf("beside another connection, the acceptor hears of %v bytes a second, want %v", heard, rate/2)
	}
}
