package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/scionnet"
)

// namedPeers are the peers of --peer. In scion://name:31000 the name is looked up in the files of
// hosts and in DNS; all addresses that it has are peers.
func namedPeers(ctx context.Context, cmd *cli.Command) ([]client.Peer, error) {
	var out []client.Peer
	for _, text := range cmd.StringSlice("peer") {
		name, isURL := strings.CutPrefix(text, "scion://")
		host, port, err := net.SplitHostPort(name)
		if !isURL || err != nil || !scionnet.IsName(host) {
			p, err := client.ParsePeer(name)
			if _, ok := p.SCION(); err == nil && isURL && !ok {
				err = fmt.Errorf("peer %q: want scion://name:port, or an address on SCION", text)
			}
			if err != nil {
				return nil, usageErrorf("--peer: %w", err)
			}
			out = append(out, p)
			continue
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return nil, usageErrorf("--peer: peer %q: want a port from 1 to 65535", text)
		}
		c, err := scionConfig(cmd, nil)
		if err != nil {
			return nil, err
		}
		found, err := c.Names().Lookup(ctx, host, uint16(n))
		if err != nil {
			return nil, fmt.Errorf("--peer: %w", err)
		}
		for _, a := range found {
			out = append(out, client.SCIONPeer(a))
		}
	}
	return out, nil
}
