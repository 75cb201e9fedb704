//go:build darwin || freebsd || linux

package scionnet

import (
	"slices"

	"golang.org/x/sys/unix"
)

// withoutECN removes the ECN field (RFC 3168) from control data. With this field, a router may mark
// a packet instead of dropping it.
func withoutECN(oob []byte) []byte {
	for rest := oob; len(rest) > 0; {
		h, _, next, err := unix.ParseOneSocketControlMessage(rest)
		switch {
		case err != nil:
			return oob
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_TOS,
			h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_TCLASS:
			return slices.Concat(oob[:len(oob)-len(rest)], next)
		}
		rest = next
	}
	return oob
}
