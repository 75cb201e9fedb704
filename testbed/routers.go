package testbed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// chooseRouters sets the command of each router.
func (n *Network) chooseRouters(stock string) error {
	orStock := func(command []string) []string {
		if len(command) == 0 {
			return []string{stock}
		}
		return command
	}
	used := make([]bool, len(n.opts.RoutersOf))
	for _, a := range n.plan.ases {
		for j := range a.routers {
			r := &a.routers[j]
			r.command = orStock(n.opts.RouterCommand)
			for i, of := range n.opts.RoutersOf {
				if of.Interface.IA == a.IA && (of.Interface.ID == 0 || r.has(of.Interface.ID)) {
					r.command, used[i] = orStock(of.Command), true
				}
			}
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		return fmt.Errorf("no router of topology %s is at %s", n.opts.Topology.Name, n.opts.RoutersOf[i].Interface)
	}
	return nil
}

func (n *Network) startRouters() error {
	logs := n.logDir()
	if err := os.RemoveAll(logs); err != nil {
		return fmt.Errorf("remove old logs: %w", err)
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return fmt.Errorf("create log folder: %w", err)
	}
	n.launcher = NewLauncher()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.plan.ases {
		for _, r := range a.routers {
			if err := n.startProcess(a, r.name, r.command); err != nil {
				return err
			}
		}
	}
	return nil
}

// startServices is called with mu held.
func (n *Network) startServices(program string) error {
	for _, a := range n.plan.ases {
		if err := n.startProcess(a, controlService, []string{program}); err != nil {
			return err
		}
	}
	return nil
}

// restartServices starts the control services anew, configured by g, and waits until they answer.
// Their databases are files, so they still know all segments.
func (n *Network) restartServices(ctx context.Context, g generator, program string) error {
	if err := n.replaceServices(g, program); err != nil {
		return err
	}
	if err := n.writeState(); err != nil {
		return err
	}
	return n.waitForSegments(ctx)
}

func (n *Network) replaceServices(g generator, program string) error {
	n.mu.Lock() // Close comes before or after
	defer n.mu.Unlock()
	if n.life.Err() != nil {
		return errTakenDown
	}
	var services []*process
	n.processes = slices.DeleteFunc(n.processes, func(p *process) bool {
		if p.name == controlService {
			services = append(services, p)
		}
		return p.name == controlService
	})
	stopAll(services)
	for _, a := range n.plan.ases {
		if err := g.control(a); err != nil {
			return fmt.Errorf("write configuration of %s: %w", a.IA, err)
		}
	}
	return n.startServices(program)
}

// all are the processes of this moment.
func (n *Network) all() []*process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.processes)
}

// startProcess is called with mu held.
func (n *Network) startProcess(a asPlan, name string, command []string) error {
	config := filepath.Join(n.ConfigDir(a.IA), name+".toml")
	log := filepath.Join(n.logDir(), strings.ReplaceAll(a.folder, "/", "-")+"-"+name+".log")
	p := &process{ia: a.IA, name: name, log: log}
	err := n.launcher.start(p, command, config, n.ended)
	if err == nil {
		n.processes = append(n.processes, p)
	}
	return err
}

func (n *Network) logDir() string { return filepath.Join(n.dir, "logs") }
