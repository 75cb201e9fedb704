package client

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"braid/scionnet"
)

const (
	// maxSDPLines bounds a description; one of a data channel has about 20 lines, and one for each
	// address.
	maxSDPLines = 100
	// maxCandidates is the number of addresses that are tried.
	maxCandidates = 20
)

// filterSDP returns the description of one end of a data channel (RFC 8839, RFC 8841), with the
// addresses that may be revealed or contacted: with local all, otherwise those on the Internet. It
// refuses descriptions of anything else.
func filterSDP(sdp string, local bool) (string, error) {
	lines := strings.Split(strings.TrimRight(sdp, "\r\n"), "\n")
	if len(lines) > maxSDPLines {
		return "", fmt.Errorf("a description of a WebRTC connection with more than %d lines",
			maxSDPLines)
	}
	var b strings.Builder
	media, candidates := 0, 0
	for _, line := range lines {
		line = strings.ReplaceAll(line, "\r", "") // also in front, where pion skips it
		if rest, ok := strings.CutPrefix(line, "m="); ok {
			if media++; media > 1 || !strings.HasPrefix(rest, "application ") {
				return "", errors.New("a WebRTC connection with more than a data channel")
			}
		}
		if rest, ok := strings.CutPrefix(line, "a=candidate:"); ok {
			if rest, ok = filterCandidate(rest, local); !ok || candidates >= maxCandidates {
				continue
			}
			candidates++
			line = "a=candidate:" + rest
		}
		b.WriteString(line + "\r\n")
	}
	if media == 0 {
		return "", errors.New("a WebRTC connection without a data channel")
	}
	return b.String(), nil
}

// filterCandidate returns a candidate (RFC 8839, section 5.1) as it may be revealed or contacted.
func filterCandidate(c string, local bool) (string, bool) {
	f := strings.Fields(c)
	if len(f) < 8 || !strings.EqualFold(f[2], "udp") {
		return "", false
	}
	a, err := netip.ParseAddr(f[4])
	if err != nil || a.Zone() != "" { // a name, as browsers give their local addresses
		return "", false
	}
	if _, err := strconv.ParseUint(f[5], 10, 16); err != nil {
		return "", false
	}
	if local {
		return c, true
	}
	if scionnet.ScopeOf(a) != scionnet.ScopePublic {
		return "", false
	}
	if i := slices.Index(f, "raddr"); i > 0 { // the local address behind a public one
		if len(f) < i+4 {
			return "", false
		}
		f[i+1], f[i+3] = "0.0.0.0", "0"
	}
	return strings.Join(f, " "), true
}
