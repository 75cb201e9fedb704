package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

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
		c, err := scionConfig(f.Command, nil)
		if err != nil {
			f.note(err)
			continue
		}
		found, err := c.Names().Lookup(ctx, host, uint16(n))
		if err != nil {
			f.note(fmt.Errorf("--peer: %w", err))
		}
		for _, a := range found {
			out = append(out, client.SCIONPeer(a))
		}
	}
	return out
}
