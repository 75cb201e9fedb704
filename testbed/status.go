package testbed

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"golang.org/x/sync/errgroup"

	"braid/pathsel"
	"braid/testbed/linkemu"
)

// Status describes a running testbed.
type Status struct {
	Topology  string          `json:"topology"`
	Dir       string          `json:"dir"`
	PID       int             `json:"pid"` // of the supervisor
	Seconds   float64         `json:"seconds"`
	Subnet    netip.Prefix    `json:"subnet"`
	ASes      []ASStatus      `json:"ases"`
	Processes []ProcessStatus `json:"processes"`
	Pairs     []PairStatus    `json:"pairs,omitempty"`
	Links     []LinkStatus    `json:"links"`
}

// Healthy tells whether every process runs and no pair of ASes lacks a path that works.
func (s Status) Healthy() bool {
	return !slices.ContainsFunc(s.Processes, func(p ProcessStatus) bool { return !p.Running }) &&
		!slices.ContainsFunc(s.Pairs, func(p PairStatus) bool { return p.Up < p.Implied })
}

// ASStatus says how to run a host in an AS.
type ASStatus struct {
	IA        pathsel.IA `json:"isd_as"`
	Core      bool       `json:"core"`
	Host      netip.Addr `json:"host"`
	ConfigDir string     `json:"config_dir"`
}

// ProcessStatus is one SCION program.
type ProcessStatus struct {
	IA      pathsel.IA `json:"isd_as"`
	Name    string     `json:"name"`
	PID     int        `json:"pid"`
	Running bool       `json:"running"`
	Reason  string     `json:"reason,omitempty"` // why it is not running
	CPU     float64    `json:"cpu_s"`
	RSS     int64      `json:"rss_bytes"`
	PSS     int64      `json:"pss_bytes"` // resident, with pages shared among processes divided by their number
	Log     string     `json:"log"`
}

// PairStatus compares the paths that hosts find with those that the topology implies.
type PairStatus struct {
	Src     pathsel.IA `json:"src"`
	Dst     pathsel.IA `json:"dst"`
	Implied int        `json:"implied"`
	// Paths is how many a host's lookup finds. Control services also return paths over links that
	// are down; routers report those.
	Paths int `json:"paths"`
	Up    int `json:"up"` // of Paths: those whose links are all up
}

// LinkStatus is a link, by its two ends.
type LinkStatus struct {
	Type LinkType      `json:"type"`
	A    LinkEndStatus `json:"a"`
	B    LinkEndStatus `json:"b"`
}

// LinkEndStatus is one end of a link, with what it sends.
type LinkEndStatus struct {
	Interface pathsel.Interface `json:"interface"`
	Router    string            `json:"router"`
	// State is what the router says of the interface: up, down, unknown if the router does not
	// answer, or unwatched without BFD.
	State string `json:"state"`
	// BFDTransitions counts how often the router has seen the link come up or go down. The first is
	// its coming up.
	BFDTransitions int              `json:"bfd_transitions"`
	Config         linkemu.Config   `json:"config"` // for packets sent by this end
	Properties     string           `json:"properties"`
	Counters       linkemu.Counters `json:"counters"`
}

// Status returns the status of processes, links and, if wanted, paths. Counting paths asks all
// control services, which takes many seconds in a network of many ASes.
func (n *Network) Status(ctx context.Context, paths bool) Status {
	var seen map[pathsel.Interface]interfaceState
	if !n.opts.LinksOnly {
		seen, _ = n.routerStates(ctx)
	}
	s := n.status(seen)
	if paths {
		s.Pairs = n.pairs(ctx, seen)
	}
	return s
}

// Glance returns the status without asking routers and control services. It is cheap, but lacks the
// state of links.
func (n *Network) Glance() Status { return n.status(nil) }

func (n *Network) status(seen map[pathsel.Interface]interfaceState) Status {
	known := n.State()
	s := Status{
		Topology: known.Topology, Dir: n.dir, PID: known.PID, Subnet: known.Subnet, ASes: known.ASes,
		Seconds: time.Since(n.started).Seconds(),
	}
	for _, p := range n.all() {
		u := p.usage()
		ps := ProcessStatus{
			IA: p.ia, Name: p.name, PID: p.cmd.Process.Pid, Running: !p.ended(),
			CPU: u.CPU, RSS: u.RSS, PSS: u.PSS, Log: p.log,
		}
		if !ps.Running {
			ps.Reason = p.reason()
		}
		s.Processes = append(s.Processes, ps)
	}
	for i, l := range n.links {
		t := n.opts.Topology.Links[i]
		ab, ba := l.Config()
		cab, cba := l.Counters()
		s.Links = append(s.Links, LinkStatus{t.Type, n.endStatus(t.A, ab, cab, seen), n.endStatus(t.B, ba, cba, seen)})
	}
	return s
}

func (n *Network) pairs(ctx context.Context, seen map[pathsel.Interface]interfaceState) []PairStatus {
	paths, err := n.findPaths(ctx, func(Pair) bool { return true })
	if err != nil {
		n.log.Debug("find paths", "err", err)
	}
	var out []PairStatus
	for p, implied := range n.implied {
		s := PairStatus{Src: p.Src, Dst: p.Dst, Implied: implied, Paths: len(paths[p])}
		for _, way := range paths[p] {
			down := func(i pathsel.Interface) bool { return seen[i].state != "up" && n.opts.BFD != NoBFD }
			if !slices.ContainsFunc(way.Interfaces, down) {
				s.Up++
			}
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b PairStatus) int {
		return cmp.Or(cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst))
	})
	return out
}

func (n *Network) endStatus(
	e LinkEnd, c linkemu.Config, k linkemu.Counters, seen map[pathsel.Interface]interfaceState,
) LinkEndStatus {
	st := LinkEndStatus{Interface: e.Interface, State: "unknown", Config: c, Properties: c.String(), Counters: k}
	a, _ := n.as(e.Interface.IA)
	if r := a.routerAt(e.Interface.ID); r != nil {
		st.Router = r.name
	}
	if n.opts.BFD == NoBFD || n.opts.LinksOnly {
		st.State = "unwatched"
	} else if is, ok := seen[e.Interface]; ok {
		st.State, st.BFDTransitions = is.state, is.transitions
	}
	return st
}

type interfaceState struct {
	state       string // "" if the router did not answer
	transitions int
}

// routerStates asks every router for the state of its interfaces. Routers that do not answer are
// missing. siblings tells whether all answered and reach the other routers of their AS.
func (n *Network) routerStates(ctx context.Context) (seen map[pathsel.Interface]interfaceState, siblings bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var mu sync.Mutex
	seen, siblings = map[pathsel.Interface]interfaceState{}, true
	var g errgroup.Group
	g.SetLimit(lookupWorkers)
	for _, a := range n.plan.ases {
		for _, r := range a.routers {
			g.Go(func() error {
				states, reach, err := scrape(ctx, n.http, r.metrics)
				if err != nil {
					n.log.Debug("ask router", "router", r.name, "as", a.IA, "err", err)
				}
				mu.Lock()
				defer mu.Unlock()
				siblings = siblings && reach
				for id, s := range states {
					seen[pathsel.Interface{IA: a.IA, ID: id}] = s
				}
				return nil
			})
		}
	}
	g.Wait()
	return seen, siblings
}

// scrape reads the metrics of a router: its interfaces, and whether it reaches its siblings.
func scrape(
	ctx context.Context, c *http.Client, at netip.AddrPort,
) (states map[uint64]interfaceState, siblings bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+"/metrics", nil)
	if err != nil {
		return nil, false, err
	}
	reply, err := c.Do(req)
	if err != nil {
		return nil, false, err
	}
	defer reply.Body.Close()
	var parser expfmt.TextParser
	metrics, err := parser.TextToMetricFamilies(reply.Body)
	if err != nil {
		return nil, false, err
	}
	states = map[uint64]interfaceState{}
	each := func(name string, update func(*interfaceState, *dto.Metric)) {
		for _, m := range metrics[name].GetMetric() {
			for _, l := range m.GetLabel() {
				if id, err := strconv.ParseUint(l.GetValue(), 10, 16); err == nil && l.GetName() == "interface" {
					s := states[id]
					update(&s, m)
					states[id] = s
				}
			}
		}
	}
	each("router_interface_up", func(s *interfaceState, m *dto.Metric) {
		s.state = "down"
		if m.GetGauge().GetValue() == 1 {
			s.state = "up"
		}
	})
	each("router_bfd_state_changes_total", func(s *interfaceState, m *dto.Metric) {
		s.transitions = int(m.GetCounter().GetValue())
	})
	siblings = !slices.ContainsFunc(metrics["router_sibling_reachable"].GetMetric(), func(m *dto.Metric) bool {
		return m.GetGauge().GetValue() != 1
	})
	return states, siblings, nil
}
