package scenario

import "testing"

// Path 1 brought 15 MB in the 16 s in which it was in use, path 2 brought 20 MB in 19.3 s.
func TestHandshakeRank(t *testing.T) {
	r := steady()
	l := r.Leechers[0]
	one, two := l.routes[0].fingerprint, l.routes[1].fingerprint
	if used := l.used(); !near(used[one], 16) || !near(used[two], 19.3) {
		t.Errorf("in use for %v", used)
	}
	for _, tt := range []struct {
		one, two, want float64
		ok             bool
	}{{.2, .1, 1, true}, {.1, .2, -1, true}, {.1, .1, 0, false}, {.1, 0, 0, false}} {
		l.Paths[0].Handshake, l.Paths[1].Handshake = tt.one, tt.two
		if rho, ok := r.handshakeRank(); rho != tt.want || ok != tt.ok {
			t.Errorf("handshakes of %v and %v s: %v, %v, want %v, %v", tt.one, tt.two, rho, ok, tt.want, tt.ok)
		}
	}
	// Who has one path, or no sample at all, does not count.
	l.Paths[0].Handshake, l.Paths[1].Handshake = .2, .1
	r.Leechers = append(r.Leechers, &Leecher{End: 20}, &Leecher{End: 20, Payload: l.Payload, Choices: l.Choices})
	if rho, ok := r.handshakeRank(); rho != 1 || !ok {
		t.Errorf("%v, %v", rho, ok)
	}
}

// Each component gets the processor time of its processes, and nothing else.
func TestCPUFigures(t *testing.T) {
	s := Scenario{Peers: []Peer{{Name: "s", Role: Seed}, {Name: "l", Role: Leech}}}
	r := &Record{Scenario: s}
	for i, name := range []string{"s", "l", "1-ff00:0:110 br-1", "1-ff00:0:110 cs-1", "runner", "tracker", "l+gateway"} {
		r.Processes = append(r.Processes, &ProcessSamples{Component: s.componentOf(name), Used: float64(i + 1)})
	}
	m := map[string]float64{"mbit": 4, "seconds": 1000} // half a GB
	r.addCPU(m)
	for name, want := range map[string]float64{"seeders": 2, "leechers": 18, "routers": 6, "control": 20, "emulator": 10} {
		if m["cpu-"+name] != want {
			t.Errorf("%s: %v, want %v", name, m["cpu-"+name], want)
		}
	}
	m = map[string]float64{}
	if r.addCPU(m); len(m) != 2 {
		t.Errorf("for no payload %v", m)
	}
}

// Other programs take nothing from a run at real-time priority.
func TestCPUBound(t *testing.T) {
	for _, c := range []struct {
		all, own float64
		realTime bool
		bound    bool
	}{
		{0.9, 0.3, false, true}, {0.9, 0.3, true, false}, {0.9, 0.8, true, true}, {0.6, 0.5, false, false},
	} {
		r := &Record{CPU: c.all, OwnCPU: c.own, RealTime: c.realTime}
		if got := r.cpuBound(); len(got) > 0 != c.bound {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
