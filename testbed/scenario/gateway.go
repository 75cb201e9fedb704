package scenario

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
)

// A leecher behind a gateway is any client on IP: it knows the gateway's tracker, and nothing of SCION. Its gateway is
// a process of its own in the same AS, which finds the seeds through the swarm's tracker on SCION. Between the two is
// no link: both are on the machine's loopback interface, where the programs of SCION are, too.

// gatewaySuffix follows the name of a leecher in that of its gateway. No name in a file has it.
const gatewaySuffix = "+gateway"

// startBehindGateway starts a gateway, waits until it serves, and starts the leecher. The flags and the selector of the
// leecher are the gateway's, which is the end on SCION.
func (a *attempt) startBehindGateway(ctx context.Context, p Peer, torrents []string) error {
	ip := a.network.HostIP(p.AS)
	g := Peer{Name: p.Name + gatewaySuffix, Role: Gateway, Client: Braid, Transport: SCION, AS: p.AS}
	cache, local := filepath.Join(a.scratch, g.Name), fmt.Sprintf("%s:0", ip)
	a.temporary = append(a.temporary, cache)
	args := append([]string{"gateway"}, torrents...)
	args = append(args, "--cache", cache, "--tracker-listen", "http://"+local, "--listen", local,
		"--listen", fmt.Sprintf("%s,[%s]:0", p.AS, ip), "--tracker", a.peers[0].listen,
		"--config-dir", a.network.ConfigDir(p.AS), "--local", ip.String(), "--path-selection", p.Selector)
	args = append(args, a.common(g.Name)...)
	gateway, err := a.startProcess(exec.Command(a.braid, append(args, p.Args...)...), nil, g)
	if err != nil {
		return err
	}
	a.peers = append(a.peers, gateway)
	if err := a.await(ctx, func() bool { return gateway.ready || gateway.ended }); err != nil {
		return err
	}
	if gateway.ended {
		return failure{errors.New("gateway of " + p.Name + " ended: " + gateway.lastWords())}
	}
	out := filepath.Join(a.scratch, p.Name)
	args = append(a.download(p, torrents, out), "--transport", TCP, "--tracker", gateway.listen)
	ps, err := a.startProcess(exec.Command(a.braid, append(args, a.common(p.Name)...)...), nil, p)
	if err != nil {
		return err
	}
	ps.out, ps.leaves = out, p.Stop != nil || p.Crash != nil
	a.peers = append(a.peers, ps)
	return nil
}
