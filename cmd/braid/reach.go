package main

import (
	"fmt"
	"slices"
	"strings"

	"braid/client"
	"braid/tracker"
)

// reach says who can connect to a seed and who cannot, and who does not hear of it from trackers. ip is what addresses on IP speak.
func reach(listen []client.Peer, ip client.IPTransport, torrents []announced) []string {
	name := map[bool]string{true: "SCION", false: "TCP"}
	if ip == client.QUIC {
		name[false] = "QUIC"
	}
	on := map[bool]bool{} // SCION, IP
	for _, p := range listen {
		_, scion := p.SCION()
		on[scion] = true
	}
	var out []string
	switch {
	case !on[false]:
		out = append(out, "SCION peers only: other clients cannot connect (add --listen HOST:PORT)")
	case !on[true]:
		out = append(out, name[false]+" peers only: SCION peers cannot connect (add --listen ISD-AS,[IP]:PORT)")
	default:
		out = append(out, "peers on SCION and on "+name[false])
	}
	for _, scion := range []bool{true, false} {
		if !on[scion] {
			continue
		}
		var unknown []string
		through := "" // a tracker that may say more
		for _, t := range torrents {
			urls := slices.Concat(t.tiers...)
			here := func(u tracker.URL) bool { _, s := u.SCION(); return s == scion }
			if len(urls) == 0 || slices.ContainsFunc(urls, here) {
				continue
			}
			unknown = append(unknown, t.source.Name)
			if i := slices.IndexFunc(urls, tellsSiblings); i >= 0 {
				through = urls[i].String()
			}
		}
		if len(unknown) == 0 {
			continue
		}
		of := "this seed"
		if len(torrents) > 1 {
			of = listed(unknown)
		}
		network := map[bool]string{true: "SCION", false: "IP"}[scion]
		if through == "" {
			out = append(out, fmt.Sprintf("no tracker on %s is named: nobody hears there of %s", network, of))
		} else {
			out = append(out, fmt.Sprintf("no tracker on %s is named: peers there hear of %s only if the tracker %s is on %s, too", network, of, through, network))
		}
	}
	return out
}

// tellsSiblings tells whether a tracker could say where else it is reached: over UDP there is no place for it.
func tellsSiblings(u tracker.URL) bool { return u.Scheme() != "udp" }

// listed is the first of the names, and how many more there are.
func listed(names []string) string {
	const shown = 2
	if more := len(names) - shown; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), more)
	}
	return strings.Join(names, " and ")
}
