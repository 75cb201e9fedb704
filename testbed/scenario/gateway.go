package scenario

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
)

// A leecher behind a gateway is any client on IP: it knows the gateway's tracker, and nothing of
// SCION. Its gateway is a process of its own in the same AS, which finds the seeds through the
// swarm's tracker on SCION. Between the two is no link: both are on the machine's loopback
// interface, where the programs of SCION are, too.

// gatewaySuffix follows the name of a leecher in that of its gateway. No name in a file has it.
const gatewaySuffix = "+gateway"

// startBehindGateway starts a gateway, waits until it serves, and starts the leecher. The flags and
// the selector of the leecher are the gateway's, which is the end on SCION.
func (a *attempt) startBehindGateway(ctx context.Context, p Peer, torrents []string) error {
	g := Peer{Name: p.Name + gatewaySuffix, Role: Gateway, Client: Braid, Transport: SCION, AS: p.AS}
	cache, local := filepath.Join(a.scratch, g.Name), a.network.HostIP(p.AS).String()+":0"
	args := append([]string{a.braid, "gateway"}, torrents...)
	args = append(args, "--cache", cache, "--tracker-listen", "http://"+local, "--listen", local,
		"--listen", a.network.HostAddr(p.AS, 0), "--tracker", a.peers[0].listen, "--path-selection", p.Selector)
	args = slices.Concat(args, a.network.HostFlags(p.AS), a.common(g.Name), p.Args)
	gateway, err := a.startProcess(g, nil, "", args)
	if err != nil {
		return err
	}
	if err := a.awaitReady(ctx, gateway); err != nil {
		return err
	}
	if gateway.ended {
		return failure{errors.New("gateway of " + p.Name + " ended: " + gateway.lastWords())}
	}
	out := filepath.Join(a.scratch, p.Name)
	args = append(a.download(p, torrents, out), "--transport", TCP, "--tracker", gateway.listen)
	_, err = a.startProcess(p, nil, out, append(args, a.common(p.Name)...))
	return err
}
