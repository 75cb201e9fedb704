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

// peers reads --peer. The name in scion://name:31000 is looked up in the hosts files and in DNS;
// all its addresses are peers.
func (f *flags) peers(ctx context.Context) (out []client.Peer) {
	for _, text := range f.StringSlice("peer") {
		name, isURL := strings.CutPrefix(text, "scion://")
		host, port, err := net.SplitHostPort(name)
		if !isURL || err != nil || !scionnet.IsName(host) {
			p, err := client.ParsePeer(name)
			if _, ok := p.SCION(); err == nil && isURL && !ok {
				err = fmt.Errorf("peer %q: want scion://name:port, or an address on SCION", text)
			}
			if err != nil {
				f.wrong("--peer: %w", err)
			}
			out = append(out, p)
			continue
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			f.wrong("--peer: peer %q: want a port from 1 to 65535", text)
			continue
		}
		found, err := lookUp(ctx, f.Command, host, uint16(n))
		f.note(err)
		for _, a := range found {
			out = append(out, client.SCIONPeer(a))
		}
	}
	return out
}

// lookUp returns the SCION addresses of a host name, with a port.
func lookUp(
	ctx context.Context, cmd *cli.Command, host string, port uint16,
) ([]scionnet.Addr, error) {
	c, err := scionConfig(cmd, nil)
	if err != nil {
		return nil, err
	}
	found, err := c.Names().Lookup(ctx, host, port)
	if err != nil {
		return nil, fmt.Errorf("--peer: %w", err)
	}
	return found, nil
}
