package scionnet

import (
	"strconv"
	"testing"
	"time"

	"braid/pathsel"
)

func TestRateBits(t *testing.T) {
	for _, rate := range []float64{-1, 0, rateUnit - 1} {
		if b := rateBits(rate); b != 0 || rateOf(b) != 0 {
			t.Errorf("%v: %08b", rate, b)
		}
	}
	for rate := 1.1 * rateUnit; rate < 3e9; rate *= 1.01 {
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

// What the dialler was told of a path is in the start of the peer that accepts, and not in its own.
func TestHintReachesPeer(t *testing.T) {
	h := oneAS(t)
	a, b := listen(t, h, ListenConfig{}), listen(t, h, ListenConfig{})
	window := func(rate float64) (dialler, acceptor int) {
		h.Hint(pathsel.Hints{h.ia: {{Rate: rate}}}) // the fingerprint of the path inside an AS is empty
		from, to := pair(t, a, b)
		for range 5 { // until both know the round trip
			ping(t, from, to)
			ping(t, to, from)
		}
		from.Abort()
		to.Abort()
		return from.Stats().Window, to.Stats().Window
	}
	const much = 1 << 20
	if dialler, acceptor := window(0); dialler > much || acceptor > much {
		t.Errorf("without a hint, the windows are %d and %d bytes", dialler, acceptor)
	}
	if dialler, acceptor := window(2e9); dialler > much || acceptor < much {
		t.Errorf("with a hint, the windows are %d and %d bytes", dialler, acceptor)
	}
}
