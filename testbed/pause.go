package testbed

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"braid/pathsel"
)

// Pause stops the border router that has the interface, and waits until its process has stopped.
// The router keeps its sockets and answers nothing. Pause returns all interfaces of that router.
// Close also works while a router is paused.
func (n *Network) Pause(at pathsel.Interface) ([]pathsel.Interface, error) {
	return n.signalRouter(at, syscall.SIGSTOP)
}

// Resume lets the router that has the interface go on.
func (n *Network) Resume(at pathsel.Interface) error {
	_, err := n.signalRouter(at, syscall.SIGCONT)
	return err
}

func (n *Network) signalRouter(at pathsel.Interface, s syscall.Signal) ([]pathsel.Interface, error) {
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
	if err := p.cmd.Process.Signal(s); err != nil {
		return nil, fmt.Errorf("send %v to %s: %w", s, p, err)
	}
	if s == syscall.SIGSTOP {
		if err := awaitStop(p.cmd.Process.Pid); err != nil {
			return nil, fmt.Errorf("stop %s: %w", p, err)
		}
	}
	n.log.Info("router signalled", "router", p.String(), "signal", s.String())
	var all []pathsel.Interface
	for _, i := range r.interfaces {
		all = append(all, pathsel.Interface{IA: at.IA, ID: i.id})
	}
	return all, nil
}

// awaitStop returns when no thread of a process runs any more. A signal only asks for that: a
// thread goes on until it has been scheduled once more, and a router answered a question after its
// pause.
func awaitStop(pid int) error {
	for range 500 { // of 10 ms
		threads, err := procfs.AllThreads(pid)
		if err != nil {
			return err
		}
		running := slices.ContainsFunc(threads, func(t procfs.Proc) bool {
			s, err := t.Stat() // a thread that has ended has none
			return err == nil && s.State != "T"
		})
		if len(threads) > 0 && !running {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("process %d still runs", pid)
}
