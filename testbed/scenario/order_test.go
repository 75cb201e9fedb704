package scenario

import (
	"testing"

	"braid/pathsel"
)

// Path 1 brought 15 MB in the 16 s in which it was in use, path 2 brought 20 MB in 19.3 s.
func TestHandshakeRank(t *testing.T) {
	r := steady()
	l := &r.leechers[0]
	one, two := l.routes[0].fingerprint, l.routes[1].fingerprint
	if used := l.used(); !near(used[one], 16) || !near(used[two], 19.3) {
		t.Errorf("in use for %v", used)
	}
	for _, tt := range []struct {
		one, two, want float64
		ok             bool
	}{{.2, .1, 1, true}, {.1, .2, -1, true}, {.1, .1, 0, false}, {.1, 0, 0, false}} {
		l.handshakes = map[pathsel.Fingerprint]float64{one: tt.one, two: tt.two}
		if rho, ok := r.handshakeRank(); rho != tt.want || ok != tt.ok {
			t.Errorf("handshakes of %v and %v s: %v, %v, want %v, %v", tt.one, tt.two, rho, ok, tt.want, tt.ok)
		}
	}
	// Who has one path, or no sample at all, does not count.
	l.handshakes = map[pathsel.Fingerprint]float64{one: .2, two: .1}
	r.leechers = append(r.leechers, leecherRecord{end: 20}, leecherRecord{end: 20, samples: l.samples, choices: l.choices})
	if rho, ok := r.handshakeRank(); rho != 1 || !ok {
		t.Errorf("%v, %v", rho, ok)
	}
}

// What components took is theirs, and whole.
func TestUsageFigures(t *testing.T) {
	m := map[string]float64{}
	usage{ofSeeders: 1, ofLeechers: 2, ofRouters: 3, ofControl: 4, ofEmulator: 5}.figures(.5, m)
	if len(m) != len(Components) || m["cpu-seeders"] != 2 || m["cpu-emulator"] != 10 {
		t.Errorf("%v", m)
	}
	clear(m)
	(usage{ofSeeders: 1}).figures(0, m)
	if len(m) > 0 {
		t.Errorf("for no payload %v", m)
	}
}
