package scionnet

import (
	"testing"
	"time"
)

func TestMemory(t *testing.T) {
	var m memory
	now := time.Unix(1e9, 0)
	k := hostPath{trail: "abcd"}
	expect := func(what string, want float64) {
		t.Helper()
		c, ok := m.begin(k, now)
		if ok != (want > 0) || ok && c.rate != want {
			t.Errorf("%s: %v, %v; want %v", what, c.rate, ok, want)
		}
	}
	expect("new", 0)
	m.note(k, 100, true, time.Millisecond, now)
	expect("used by another", 0)
	m.end(k)
	m.end(k)
	expect("known", 100)
	now = now.Add(rememberFor / 2)
	m.note(k, 50, true, time.Millisecond, now)
	m.end(k)
	expect("asked for less since", 100)
	now = now.Add(rememberFor / 2)
	m.note(k, 50, true, time.Millisecond, now)
	m.end(k)
	expect("slower since then", 50)
	m.end(k)
	now = now.Add(rememberFor)
	expect("forgotten", 0)
}

func TestMemoryIsBounded(t *testing.T) {
	var m memory
	live := hostPath{trail: "live"}
	m.begin(live, time.Time{})
	for i := range 2 * maxRemembered {
		k := hostPath{trail: trail([]byte{byte(i), byte(i >> 8), byte(i >> 16)})}
		m.begin(k, time.Time{})
		m.end(k)
	}
	if len(m.of) > maxRemembered || m.of[live] == nil {
		t.Errorf("%d paths remembered; that of a live connection: %v", len(m.of), m.of[live] != nil)
	}
}
