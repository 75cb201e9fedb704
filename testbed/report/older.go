package report

import (
	"maps"

	"braid/pathsel"
	"braid/testbed/scenario"
)

// complete adds what results from before it was recorded lack, as their samples tell: what each component cost, and how well
// handshakes predicted bandwidth. A sample every half second is less than the runner knows: a process's last moments are not
// in it. Where there are no samples, nothing is added.
func complete(run scenario.RunDir) {
	for i, r := range run.Results {
		if _, ok := r.Figures["cpu-"+scenario.Components[0]]; ok || r.Figures == nil {
			continue
		}
		c, err := courseOfRun(run, r)
		if err != nil {
			continue
		}
		figures := maps.Clone(r.Figures)
		maps.Copy(figures, c.components())
		if rho, ok := c.handshakeRank(); ok {
			figures["handshake-rank"] = rho
		}
		run.Results[i].Figures = figures
	}
}

// components are the figures cpu-seeders, cpu-leechers and so on: seconds for each GB of payload.
func (c *course) components() map[string]float64 {
	var payload float64
	leechers := map[string]bool{}
	for _, p := range c.peers {
		leechers[p.name] = p.leecher
		if p.leecher {
			payload += p.payload.at(c.end)
		}
	}
	if len(leechers) == 0 {
		for _, f := range c.flows {
			payload += f.at(c.end)
		}
	}
	if payload <= 0 {
		return nil
	}
	figures := map[string]float64{}
	for _, name := range scenario.Components {
		figures["cpu-"+name] = 0
	}
	for _, p := range c.processes {
		component := "control" // services, and a swarm's tracker
		switch kind := kindOf(p); {
		case p.name == "runner":
			component = "emulator"
		case kind == routerProcess:
			component = "routers"
		case p.isPeer && leechers[p.name]:
			component = "leechers"
		case p.isPeer && p.name != "tracker":
			component = "seeders"
		}
		figures["cpu-"+component] += p.used() / (payload / 1e9)
	}
	return figures
}

// handshakeRank is the scenario's figure of that name.
func (c *course) handshakeRank() (rho float64, ok bool) {
	n := 0
	for _, p := range c.leechers() {
		var quick, rate []float64
		for _, q := range p.paths {
			stays, _ := staysOf(p.choices, q, c.end)
			var used float64
			for _, s := range stays {
				if s.state == inUse || s.state == probed {
					used += s.to - s.from
				}
			}
			if q.key.Conn == 0 && q.handshake > 0 && used > 0 {
				quick, rate = append(quick, -q.handshake), append(rate, q.read.at(c.end)/used)
			}
		}
		if v, ok := pathsel.Spearman(quick, rate); ok {
			rho += v
			n++
		}
	}
	return rho / float64(max(1, n)), n > 0
}
