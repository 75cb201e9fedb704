package main

import (
	"fmt"
	"slices"
	"strings"

	"braid/client"
	"braid/node"
)

// reach says which peers can connect to a seed, and on which network no tracker names it. ip is the
// transport on IP.
func reach(listen []client.Peer, ip client.IPTransport, torrents []node.Options) []string {
	onIP := "TCP"
	if ip == client.QUIC {
		onIP = "QUIC"
	}
	isIP := func(p client.Peer) bool { return !onSCION(p) }
	var out []string
	switch {
	case !slices.ContainsFunc(listen, isIP):
		out = append(out, "SCION peers only: other clients cannot connect (add --listen HOST:PORT)")
	case !anyOnSCION(listen):
		out = append(out,
			onIP+" peers only: SCION peers cannot connect (add --listen ISD-AS,[IP]:PORT)")
	default:
		out = append(out, "peers on SCION and on "+onIP)
	}
	for _, u := range node.FindUnheard(listen, torrents) {
		of := "this seed"
		if len(torrents) > 1 {
			of = listed(u.Torrents)
		}
		network := map[bool]string{true: "SCION", false: "IP"}[u.SCION]
		if u.Through == "" {
			out = append(out, fmt.Sprintf("no tracker on %s is named: nobody hears there of %s",
				network, of))
		} else {
			out = append(out, fmt.Sprintf("no tracker on %s is named: peers there hear of %s "+
				"only if the tracker %s is on %s, too", network, of, u.Through, network))
		}
	}
	return out
}

// listed returns the first names, and the number of the others.
func listed(names []string) string {
	const shown = 2
	if more := len(names) - shown; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), more)
	}
	return strings.Join(names, " and ")
}
