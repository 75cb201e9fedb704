package scenario

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"braid/pathsel"
	"braid/testbed"
)

// What makes a run the machine's and not the links': figures from it say little about braid.
const (
	maxCPU  = 0.70 // of all processors, on average; more, and somebody waits for a processor now and then
	maxLate = 0.05 // of a link's packets; the emulator itself is waiting for a processor
)

// watch looks at what a run should not depend on.
type watch struct {
	bfd      map[pathsel.Interface]int // changes of state at the start
	late     map[pathsel.Interface]linkCount
	after    map[pathsel.Interface]int
	lateness float64 // of the worst link

	began      time.Time
	cpu        cpuTime // at zero
	parts      usage   // at zero, then what was used since
	share, own float64 // of all processors
}

// Components are the parts of a run that processor time is counted of: peers by their role, routers, what else serves the network
// (control services, a swarm's tracker), and the runner, which emulates the links, sends competing traffic and records.
var Components = [...]string{"seeders", "leechers", "routers", "control", "emulator"}

// usage is processor time in seconds, by component.
type usage [len(Components)]float64

// Indices of Components.
const (
	ofSeeders = iota
	ofLeechers
	ofRouters
	ofControl
	ofEmulator
)

func (u usage) sum() (all float64) {
	for _, v := range u {
		all += v
	}
	return all
}

// figures are what each component took for each GB of payload, in seconds.
func (u usage) figures(gigabytes float64, to map[string]float64) {
	if gigabytes <= 0 {
		return
	}
	for i, name := range Components {
		to["cpu-"+name] = u[i] / gigabytes
	}
}

type linkCount struct{ packets, late uint64 }

// cpuTime is in seconds.
type cpuTime struct{ busy, all float64 }

func (w *watch) begin(s testbed.Status) {
	w.bfd, w.late = transitions(s), map[pathsel.Interface]linkCount{}
	for _, l := range s.Links {
		for _, e := range []testbed.LinkEndStatus{l.A, l.B} {
			w.late[e.Interface] = linkCount{e.Counters.Packets, e.Counters.Late}
		}
	}
}

func transitions(s testbed.Status) map[pathsel.Interface]int {
	m := map[pathsel.Interface]int{}
	for _, l := range s.Links {
		m[l.A.Interface], m[l.B.Interface] = l.A.BFDTransitions, l.B.BFDTransitions
	}
	return m
}

// zero starts counting processor time.
func (w *watch) zero(n *testbed.Network, peers []*process) {
	w.began, w.cpu, w.parts = time.Now(), machineCPU(), ourCPU(n, peers)
}

// end is called before anything is taken down.
func (w *watch) end(s testbed.Status, n *testbed.Network, peers []*process) {
	w.after = transitions(s)
	for _, l := range s.Links {
		for _, e := range []testbed.LinkEndStatus{l.A, l.B} {
			before := w.late[e.Interface]
			if packets := e.Counters.Packets - before.packets; packets > 0 {
				w.lateness = max(w.lateness, float64(e.Counters.Late-before.late)/float64(packets))
			}
		}
	}
	if w.began.IsZero() {
		return
	}
	now, parts := machineCPU(), ourCPU(n, peers)
	if all := now.all - w.cpu.all; all > 0 {
		w.share = (now.busy - w.cpu.busy) / all
	}
	for i := range parts {
		w.parts[i] = max(0, parts[i]-w.parts[i]) // of what lives /proc tells hundredths of a second
	}
	w.own = w.parts.sum() / time.Since(w.began).Seconds() / float64(runtime.NumCPU())
}

// bound says why the machine and not a link was the limit; nil if it was not. Links of which the scenario itself
// changed the state or stopped the router are not expected to stay up.
func (w *watch) bound(s Scenario) []string {
	var why []string
	if w.share > maxCPU {
		why = append(why, fmt.Sprintf("%.0f %% of all processors were in use", 100*w.share))
	}
	if w.lateness > maxLate {
		why = append(why, fmt.Sprintf("%.1f %% of a link's packets were late", 100*w.lateness))
	}
	for i, n := range w.after {
		if n != w.bfd[i] && !s.disturbs(i) {
			why = append(why, fmt.Sprintf("BFD saw %s change %d times", i, n-w.bfd[i]))
		}
	}
	slices.Sort(why)
	return why
}

// disturbs tells whether an event takes the interface's link down, or stops a router at one of its ends.
func (s Scenario) disturbs(at pathsel.Interface) bool {
	link := s.link(at)
	l := s.topology.Links[link]
	return slices.ContainsFunc(s.Events, func(e Event) bool {
		if e.Link != nil {
			return s.link(e.Link.Interface) == link && (e.Down != nil || e.Loss != nil)
		}
		// All interfaces of the AS, since which of them share the router is the network's to know.
		return e.Pause.IA == l.A.Interface.IA || e.Pause.IA == l.B.Interface.IA
	})
}

// ourCPU is what the network, the peers and this process have used.
func ourCPU(n *testbed.Network, peers []*process) (u usage) {
	for _, p := range n.Glance().Processes {
		if strings.HasPrefix(p.Name, "br-") {
			u[ofRouters] += p.CPU
		} else {
			u[ofControl] += p.CPU
		}
	}
	for _, p := range peers {
		part := &u[ofControl]
		switch p.peer.Role {
		case Seed:
			part = &u[ofSeeders]
		case Leech:
			part = &u[ofLeechers]
		}
		*part += p.cpu()
	}
	u[ofEmulator] += testbed.UsageOf(os.Getpid()).CPU
	return u
}

// machineCPU is what all processes have used of all processors (proc(5), /proc/stat); zero where there is no /proc.
func machineCPU() (c cpuTime) {
	const ticks = 100
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return c
	}
	first, _, _ := strings.Cut(string(b), "\n")
	for i, f := range strings.Fields(first) {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil || i > 8 { // guest time is part of user time
			continue
		}
		c.all += v / ticks
		if i != 4 && i != 5 { // idle, and idle while a disk works
			c.busy += v / ticks
		}
	}
	return c
}
