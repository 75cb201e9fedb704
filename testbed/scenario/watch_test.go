package scenario

import (
	"strings"
	"testing"
)

// Each component gets the processor time of its processes, and nothing else.
func TestCPUFigures(t *testing.T) {
	s := Scenario{Peers: []Peer{{Name: "s", Role: Seed}, {Name: "l", Role: Leech}}}
	r := &Record{Scenario: s}
	for i, name := range []string{"s", "l", "1-ff00:0:110 br-1", "1-ff00:0:110 cs-1", "runner", "tracker", "l+gateway"} {
		r.Processes = append(r.Processes, &ProcessSamples{Component: s.componentOf(name), Used: float64(i + 1)})
	}
	r.Leechers = []*Leecher{{Payload: Series{T: []float64{0}, Amount: []float64{5e8}}}}
	m := map[string]float64{}
	r.addCPU(m)
	for name, want := range map[string]float64{"seeders": 2, "leechers": 18, "routers": 6, "control": 20, "emulator": 10} {
		if m["cpu-"+name] != want {
			t.Errorf("%s: %v, want %v", name, m["cpu-"+name], want)
		}
	}
	m, r.Leechers = map[string]float64{}, nil
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

// Whatever the scenario does to a link, what routers then see of that link says nothing of the
// machine.
func TestCPUBoundByBFD(t *testing.T) {
	for _, change := range []string{"down: true", "loss: 50%", "rate: 1kbit", "delay: 10s", "rate: 10kbit, queue: 1kB, direction: in"} {
		text := strings.Replace(foldText, `"1-ff00:0:110#1", down: true`, `"1-ff00:0:110#1", `+change, 1)
		s, err := parseText(strings.Replace(text, `- {at: 3s, pause: "1-ff00:0:110#2", for: 1s}`, "", 1))
		if err != nil {
			t.Fatal(err)
		}
		for at, bound := range map[string]bool{"1-ff00:0:110#1": false, "1-ff00:0:111#1": false, "1-ff00:0:110#2": true} {
			r := &Record{Scenario: s, Links: map[string]*LinkSamples{at: {bfd: [2]*int{new(1), new(3)}}}}
			if got := r.cpuBound(); len(got) > 0 != bound {
				t.Errorf("%s of link 1, and %s has changed: %q", change, at, got)
			}
		}
	}
}
