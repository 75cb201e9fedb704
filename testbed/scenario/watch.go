package scenario

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/procfs"

	"braid/pathsel"
)

// A run in which the machine, and not a link, is the limit says little about braid.
const (
	maxCPU  = 0.70 // of all processors on average; above it, programs wait for a processor now and then
	maxLate = 0.05 // of a link's packets; above it, the emulator itself waits for a processor
)

// Components are the parts of a run whose processor time is counted: peers by their role, a leecher
// with its gateway, routers, other services (control services, a swarm's tracker), and the runner,
// which emulates the links, sends competing traffic and records.
var Components = [...]string{"seeders", "leechers", "routers", "control", "emulator"}

const runnerName = "runner" // the name of this process in samples

// componentOf returns the component of a process, as it is named in samples. The names of SCION
// programs begin with their AS.
func (s Scenario) componentOf(process string) string {
	_, program, inAS := strings.Cut(process, " ")
	name := strings.TrimSuffix(process, gatewaySuffix)
	i := slices.IndexFunc(s.Peers, func(p Peer) bool { return p.Name == name })
	switch {
	case process == runnerName:
		return "emulator"
	case inAS && strings.HasPrefix(program, "br-"):
		return "routers"
	case i < 0:
		return "control"
	case s.Peers[i].Role == Seed:
		return "seeders"
	}
	return "leechers"
}

// addCPU adds what each component took per GB of payload, in seconds, and the machine's figures.
func (r *Record) addCPU(figures map[string]float64) {
	figures["cpu"], figures["late"] = r.CPU, r.lateness()
	gigabytes := r.Payload() / 1e9
	if gigabytes <= 0 {
		return
	}
	for _, c := range Components {
		figures["cpu-"+c] = 0
	}
	for _, p := range r.Processes {
		figures["cpu-"+p.Component] += p.Used / gigabytes
	}
}

// lateness is the worst link's part of packets that left the emulator late.
func (r *Record) lateness() (worst float64) {
	for _, l := range r.Links {
		if k := l.Counted(); k.Packets > 0 {
			worst = max(worst, float64(k.Late)/float64(k.Packets))
		}
	}
	return worst
}

// cpuBound says why the machine and not a link was the limit; nil if it was not. If the scenario
// changes a link or stops its router, the routers may notice.
func (r *Record) cpuBound() []string {
	var why []string
	busy := r.CPU
	if r.RealTime { // other programs only had what this run left
		busy = r.OwnCPU
	}
	if busy > maxCPU {
		why = append(why, fmt.Sprintf("%.0f %% of all processors were in use", 100*busy))
	}
	if late := r.lateness(); late > maxLate {
		why = append(why, fmt.Sprintf("%.1f %% of a link's packets were late", 100*late))
	}
	for at, l := range r.Links {
		changed := l.bfd[0] != nil && *l.bfd[0] != *l.bfd[1]
		if i, err := pathsel.ParseInterface(at); changed && err == nil && !r.Scenario.disturbs(i) {
			why = append(why, fmt.Sprintf("BFD saw %s change %d times", at, *l.bfd[1]-*l.bfd[0]))
		}
	}
	slices.Sort(why)
	return why
}

// disturbs tells whether an event changes the interface's link, or stops a router at one of its
// ends. Routers lose each other also if their packets are late, or find a queue full.
func (s Scenario) disturbs(at pathsel.Interface) bool {
	link := s.topology.LinkAt(at)
	if link < 0 {
		return false
	}
	l := s.topology.Links[link]
	return slices.ContainsFunc(s.Events, func(e Event) bool {
		if e.Link != nil {
			return s.topology.LinkAt(e.Link.Interface) == link
		}
		// All interfaces of the AS, since only the network knows which of them share the router.
		return e.Pause.IA == l.A.Interface.IA || e.Pause.IA == l.B.Interface.IA
	})
}

// realTime says whether this process, and so those that it starts, has a real-time priority, as
// chrt(1) gives it.
func realTime() bool {
	p, err := procfs.Self()
	if err != nil {
		return false
	}
	s, err := p.Stat()
	return err == nil && s.RTPriority > 0
}

// machineCPU returns the seconds that all processors were busy, and with their idle time; zeros
// where there is no /proc.
func machineCPU() (busy, all float64) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, 0
	}
	s, err := proc.Stat()
	if err != nil {
		return 0, 0
	}
	c := s.CPUTotal // guest time is part of user time
	busy = c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
	return busy, busy + c.Idle + c.Iowait
}
