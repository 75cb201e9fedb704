package scenario

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"braid/pathsel"
	"braid/testbed"
	"braid/testbed/linkemu"
)

// About is run.json: what was run, and on which machine.
type About struct {
	Began     time.Time         `json:"began"`
	Scenarios []ScenarioFile    `json:"scenarios"`
	Commit    string            `json:"commit,omitempty"` // as Options.Commit
	Program   string            `json:"program"`          // SHA-256 of the braid that the peers run
	Go        string            `json:"go"`
	Modules   map[string]string `json:"modules"` // the main ones
	Kernel    string            `json:"kernel"`
	// TCP is the machine's congestion control for TCP (tcp(7)), which hosts on IP inherit; "" if
	// unknown.
	TCP    string `json:"tcp_congestion_control,omitempty"`
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Memory int64  `json:"memory_bytes,omitempty"`
	// Load is the machine's average load over the minute before (uptime(1)).
	Load     float64          `json:"load,omitempty"`
	Emulator linkemu.Settings `json:"emulator"`
}

// ScenarioFile is a scenario as it was run.
type ScenarioFile struct {
	Name string `json:"name"`
	Seed uint64 `json:"seed"`
	// Scale is the part of the data and of the times that was run.
	Scale float64 `json:"scale"`
	// Leechers is how many there were at most; 0: as many as the text says.
	Leechers int    `json:"leechers,omitempty"`
	Text     string `json:"text"`
	// Links describe each link at the start of a run.
	Links []string `json:"links"`
	// ASes and Topology are the network, so that later changes of the topology's file do not
	// matter.
	ASes     []NetworkAS   `json:"ases,omitempty"`
	Topology []NetworkLink `json:"topology,omitempty"`
}

// NetworkAS is an AS of the network that a scenario ran on.
type NetworkAS struct {
	IA   pathsel.IA `json:"isd_as"`
	Core bool       `json:"core,omitempty"`
	MTU  int        `json:"mtu"`
}

// NetworkLink is a link of it. Config holds for each direction.
type NetworkLink struct {
	A    pathsel.Interface `json:"a"`
	B    pathsel.Interface `json:"b"`
	Type testbed.LinkType  `json:"type"`
	MTU  int               `json:"mtu"`
	linkemu.Config
	// QueueLimit is the bound of the queue in bytes, as chosen by the emulator if none was set.
	QueueLimit int `json:"queue_limit_bytes,omitempty"`
}

// Scenario returns the scenario, at the scale at which it ran.
func (f ScenarioFile) Scenario() (Scenario, error) {
	s, err := Parse(f.Name, strings.NewReader(f.Text), func(name string) (testbed.Topology, error) {
		t := testbed.Topology{Name: name}
		for _, a := range f.ASes {
			t.ASes = append(t.ASes, testbed.AS{IA: a.IA, Core: a.Core, MTU: a.MTU})
		}
		for _, l := range f.Topology {
			t.Links = append(t.Links, testbed.Link{
				A: testbed.LinkEnd{Interface: l.A}, B: testbed.LinkEnd{Interface: l.B},
				Type: l.Type, MTU: l.MTU, Config: l.Config,
			})
		}
		return t, t.Validate() // a file from elsewhere may have anything
	})
	s.leechers = f.Leechers
	if err != nil || f.Scale == 1 {
		return s, err
	}
	return s.Scaled(f.Scale)
}

func about(braid string, scenarios []Scenario) About {
	a := About{
		Began: time.Now().UTC().Truncate(time.Second), Go: runtime.Version(), Modules: map[string]string{},
		Kernel: runtime.GOOS, CPUs: runtime.NumCPU(), Emulator: linkemu.CurrentSettings(),
	}
	if program, err := os.ReadFile(braid); err == nil {
		a.Program = fmt.Sprintf("%x", sha256.Sum256(program))
	}
	a.readMachine()
	for _, s := range scenarios {
		f := ScenarioFile{Name: s.Name, Seed: s.Seed, Scale: s.scale, Leechers: s.leechers, Text: string(s.text)}
		for _, l := range s.topology.Links {
			f.Links = append(f.Links, fmt.Sprintf("%s %s: %s", l.A.Interface, l.B.Interface, l.Config))
			queue, _ := l.Config.QueueLimit()
			f.Topology = append(f.Topology, NetworkLink{l.A.Interface, l.B.Interface, l.Type, l.MTU, l.Config, queue})
		}
		for _, x := range s.topology.ASes {
			f.ASes = append(f.ASes, NetworkAS{x.IA, x.Core, x.MTU})
		}
		a.Scenarios = append(a.Scenarios, f)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			switch d.Path {
			case "github.com/scionproto/scion", "github.com/anacrolix/torrent",
				"github.com/apernet/quic-go", "github.com/quic-go/quic-go":
				a.Modules[d.Path] = d.Version
			}
		}
	}
	return a
}

// readMachine reads from /proc what it says of the machine.
func (a *About) readMachine() {
	text, _ := os.ReadFile("/proc/cpuinfo") // for which procfs has no code on Windows
	_, rest, _ := strings.Cut(string(text), "model name\t: ")
	name, _, _ := strings.Cut(rest, "\n")
	a.CPU = cmp.Or(name, runtime.GOARCH)
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		a.Kernel = "Linux " + strings.TrimSpace(string(release))
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return // not Linux
	}
	if m, err := proc.Meminfo(); err == nil && m.MemTotalBytes != nil {
		a.Memory = int64(*m.MemTotalBytes)
	}
	if l, err := proc.LoadAvg(); err == nil {
		a.Load = l.Load1
	}
	if tcp, err := proc.SysctlStrings("net.ipv4.tcp_congestion_control"); err == nil {
		a.TCP = strings.Join(tcp, " ")
	}
}
