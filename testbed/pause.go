package testbed

import (
	"fmt"
	"os"
	"slices"

	"braid/pathsel"
)

// Pause stops the border router that has the interface, and waits until its process has stopped.
// The router keeps its sockets and answers nothing. Pause returns all interfaces of that router.
// Close also works while a router is paused.
func (n *Network) Pause(at pathsel.Interface) ([]pathsel.Interface, error) {
	return n.withRouter(at, "pause", pauseProcess)
}

// Resume lets the router that has the interface go on.
func (n *Network) Resume(at pathsel.Interface) error {
	_, err := n.withRouter(at, "resume", resumeProcess)
	return err
}

// withRouter does something with the process of a router, and returns the router's interfaces.
func (n *Network) withRouter(
	at pathsel.Interface, what string, do func(*os.Process) error,
) ([]pathsel.Interface, error) {
	a, _ := n.as(at.IA)
	r := a.routerAt(at.ID)
	processes := n.all()
	i := slices.IndexFunc(processes, func(p *process) bool {
		return r != nil && p.ia == at.IA && p.name == r.name
	})
	if i < 0 {
		return nil, fmt.Errorf("no router of topology %s has the interface %s", n.opts.Topology.Name, at)
	}
	p := processes[i]
	if err := do(p.cmd.Process); err != nil {
		return nil, fmt.Errorf("%s %s: %w", what, p, err)
	}
	n.log.Info("router signalled", "router", p.String(), "signal", what)
	var all []pathsel.Interface
	for _, i := range r.interfaces {
		all = append(all, pathsel.Interface{IA: at.IA, ID: i.id})
	}
	return all, nil
}
