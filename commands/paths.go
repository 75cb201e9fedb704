package commands

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/pathsel"
	"braid/scionnet"
)

func pathsCommand() *cli.Command {
	return &cli.Command{
		Name:      "paths",
		Usage:     "list the paths to an AS",
		ArgsUsage: "DST",
		Description: `DST is an ISD-AS (1-ff00:0:111) or the address of a host
(1-ff00:0:111,[127.0.0.1]:31000). With --probe one SCMP message is sent over each path: an echo
request to the host or, if DST is an ISD-AS, a request to the last router on the path. With a path
policy, the list has only the allowed paths, in the policy's order. The exit code is 1 if there is
no path, or if paths were probed and none is alive.`,
		Flags: slices.Concat([]cli.Flag{
			flags.Bool("json", "write one JSON object, with the keys of 'scion showpaths --format "+
				"json' and more", "j"),
			flags.Bool("extended", "show each path's full fingerprint, sequence and expiry", "e"),
			flags.Bool("probe", "send a packet over each path and wait for the answer"),
			flags.Bool("refresh", "ask the control service again, instead of using paths in the "+
				"daemon's cache", "r"),
			flags.File("status", "", "show the torrents and paths of a running download or seed "+
				"that writes its --status to `FILE`, instead of the paths to DST"),
			flags.String("torrent", "", "show the paths of `TORRENT` of the daemon, by its "+
				"number, name or the beginning of its info hash, instead of the paths to DST"),
			flags.Env("api", "BRAID_API",
				"with --torrent: the daemon's `ADDR`: unix:PATH, HOST:PORT or a URL"),
			flags.File("password-file", "", "with --torrent: `FILE` with the daemon's password"),
			flags.Bool("verbose", "with --torrent: show reasons; with --status: show whole "+
				"addresses, and fingerprints of paths", "v"),
			flags.Period("timeout", 5*time.Second, "give up after `TIME`, for everything together"),
		}, policyFlags(), scionFlags()),
		Action: runPaths,
	}
}

func runPaths(ctx context.Context, cmd *cli.Command) error {
	wanted := cmd.Args().Len()
	for _, flag := range []string{"status", "torrent"} {
		if cmd.IsSet(flag) {
			wanted++
		}
	}
	switch {
	case wanted != 1:
		return program.UsageErrorf("name one destination, such as: braid paths 1-ff00:0:111; " +
			"or give --status or --torrent instead")
	case cmd.IsSet("status"):
		return showStatus(cmd, cmd.String("status"), time.Now())
	case cmd.IsSet("torrent"):
		return withDaemon(torrentPaths)(ctx, cmd)
	}
	dst, host, err := parseDestination(cmd.Args().First())
	if err != nil {
		return program.UsageErrorf("%w", err)
	}
	f := newCmdline(cmd)
	policy := f.policy()
	if f.Err != nil {
		return f.Err
	}
	unbounded := ctx
	ctx, cancel := context.WithTimeout(ctx, cmd.Duration("timeout"))
	defer cancel()
	h, err := openHost(ctx, cmd, nil)
	if err != nil {
		return err
	}
	defer h.Close()
	if cmd.Bool("refresh") {
		if err := h.Refresh(ctx, dst); err != nil {
			return err
		}
	}
	l := pathList{LocalIA: h.IA(), Destination: dst, LocalIP: h.LocalIP()}
	paths, err := h.Paths(ctx, dst)
	noPath := errors.Is(err, scionnet.ErrNoPath) && !errors.Is(err, scionnet.ErrNoControl)
	if err != nil && !(noPath && cmd.Bool("json")) { // in JSON, an empty list says so
		return err
	}
	paths, refused := policy.Apply(paths)
	l.refuse(refused)
	if cmd.Bool("interactive") && len(paths) > 0 {
		chosen,
			err := newQuestions(envOf(cmd).In, terminal.Stderr(cmd)).paths(unbounded, h, dst, paths)
		if err != nil {
			return err
		}
		policy.Chosen = map[pathsel.IA][]pathsel.Fingerprint{dst: chosen}
		paths, _ = policy.Apply(paths)
		// The timeout does not include the user's time to think.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(unbounded, cmd.Duration("timeout"))
		defer cancel()
	}
	l.unjudged = policy.Unjudged(paths)
	var probes []scionnet.Probe
	if cmd.Bool("probe") && len(paths) > 0 {
		if probes, err = h.Probe(ctx, dst, host, paths); err != nil {
			return err
		}
	}
	l.fill(h, paths, probes)
	if !cmd.Bool("json") {
		l.print(terminal.Stdout(cmd), cmd.Bool("extended"), time.Now())
	} else if err := terminal.PrintJSON(terminal.Stdout(cmd), l); err != nil {
		return err
	}
	return l.verdict(cmd.Bool("probe"))
}

// parseDestination reads an ISD-AS, or the address of a host in one.
func parseDestination(s string) (pathsel.IA, netip.Addr, error) {
	if strings.Contains(s, ",") {
		a, err := scionnet.ParseAddr(s)
		return a.IA, a.Host, err
	}
	ia, err := pathsel.ParseIA(s)
	if err == nil && (ia.ISD() == 0 || ia.AS() == 0) {
		err = fmt.Errorf("ISD-AS %q is a wildcard, not a destination", s)
	}
	return ia, netip.Addr{}, err
}

// pathList is the output. Keys that 'scion showpaths --format json' also has are the same as there,
// with the same units.
type pathList struct {
	LocalIA     pathsel.IA   `json:"local_isd_as"`
	Destination pathsel.IA   `json:"destination"`
	LocalIP     netip.Addr   `json:"-"`
	Paths       []pathReport `json:"paths,omitempty"`
	// Refused are the paths that the policy does not allow.
	Refused []refusedReport `json:"refused,omitempty"`

	summary  string // of the refused
	unjudged int    // paths whose latency the policy could not judge
}

type refusedReport struct {
	Fingerprint     string              `json:"fingerprint"`
	FullFingerprint pathsel.Fingerprint `json:"full_fingerprint"`
	Sequence        string              `json:"sequence"`
	By              pathsel.Clause      `json:"by"` // the flag
	Reason          string              `json:"reason"`
}

func (l *pathList) refuse(refused []pathsel.Refusal) {
	for _, r := range refused {
		l.Refused = append(l.Refused, refusedReport{
			Fingerprint:     shown(r.Path.Fingerprint),
			FullFingerprint: r.Path.Fingerprint,
			Sequence:        r.Path.Sequence(),
			By:              r.Clause,
			Reason:          r.Reason,
		})
	}
	l.summary = pathsel.Summary(refused)
}

type pathReport struct {
	Fingerprint string              `json:"fingerprint"`
	Hops        []pathsel.Interface `json:"hops"`
	Sequence    string              `json:"sequence"`
	NextHop     string              `json:"next_hop"`
	Expiry      time.Time           `json:"expiry"`
	MTU         int                 `json:"mtu"`
	// Latency in nanoseconds from each interface to the next, -1 where it is not announced.
	Latency    []time.Duration `json:"latency"`
	EPIC       bool            `json:"epic"` // offered; see --epic
	Status     string          `json:"status,omitempty"`
	StatusInfo string          `json:"status_info,omitempty"`
	LocalIP    *netip.Addr     `json:"local_ip,omitempty"`

	FullFingerprint pathsel.Fingerprint `json:"full_fingerprint"`
	// LatencyMS is the sum of Latency, if every part is announced.
	LatencyMS *float64 `json:"latency_ms,omitempty"`
	Bandwidth uint64   `json:"bandwidth_bit_s,omitempty"`
	RTTMS     float64  `json:"rtt_ms,omitempty"` // of the probe
}

// shownFingerprint is the number of digits that the scion tool shows.
const shownFingerprint = 16

func shown(f pathsel.Fingerprint) string {
	if f == "" {
		return "local"
	}
	return string(f[:min(shownFingerprint, len(f))])
}

func (l *pathList) fill(h *scionnet.Host, paths []pathsel.Path, probes []scionnet.Probe) {
	for i, p := range paths {
		d := h.Details(p)
		r := pathReport{
			Fingerprint:     shown(p.Fingerprint),
			FullFingerprint: p.Fingerprint,
			Hops:            append([]pathsel.Interface{}, p.Interfaces...),
			Sequence:        p.Sequence(),
			NextHop:         d.NextHop,
			Expiry:          p.Expiry,
			MTU:             p.MTU,
			Latency:         d.Latency,
			EPIC:            d.EPIC,
			Bandwidth:       p.Bandwidth,
		}
		if p.LatencyKnown {
			latency := terminal.Milliseconds(p.Latency)
			r.LatencyMS = &latency
		}
		if probes != nil {
			x := probes[i]
			r.Status, r.StatusInfo, r.RTTMS = string(x.Status), x.Info, terminal.Milliseconds(x.RTT)
			r.LocalIP = &l.LocalIP
		}
		l.Paths = append(l.Paths, r)
	}
}

// arrows writes the hops as the scion tool does: [1-ff00:0:110 1>2 1-ff00:0:111].
func arrows(hops []pathsel.Interface) string {
	if len(hops) == 0 {
		return "[]"
	}
	var b strings.Builder
	b.WriteString("[" + hops[0].IA.String())
	for i := 0; i+1 < len(hops); i += 2 {
		fmt.Fprintf(&b, " %d>%d %s", hops[i].ID, hops[i+1].ID, hops[i+1].IA)
	}
	b.WriteString("]")
	return b.String()
}

func (l *pathList) print(out *terminal.Printer, extended bool, now time.Time) {
	out.Printf("Available paths to %s\n", l.Destination)
	width := len(fmt.Sprint(len(l.Paths) - 1))
	t := terminal.NewTable(out)
	for i, p := range l.Paths {
		t.Printf("[%*d] %s\t%s\tMTU: %d\t%s\t%s", width, i,
			p.Fingerprint[:min(8, len(p.Fingerprint))], arrows(p.Hops), p.MTU,
			p.latencyText(), bandwidthText(p.Bandwidth))
		if p.Status != "" {
			t.Printf("\t%s", p.statusText())
		}
		t.Printf("\n")
		if extended {
			t.Flush()
			indent := strings.Repeat(" ", width+3)
			out.Printf("%sFingerprint: %s\n%sSequence: %s\n%sNextHop: %s\n%sExpires: %s (%s)\n",
				indent, p.FullFingerprint, indent, p.Sequence, indent, p.NextHop,
				indent, p.Expiry.Format(time.RFC3339), p.Expiry.Sub(now).Truncate(time.Second))
		}
	}
	t.Flush()
	if l.unjudged > 0 {
		out.Printf("%d of these announce no latency, or not all of it: "+
			"--max-latency cannot judge them.\n", l.unjudged)
	}
	if len(l.Refused) > 0 && len(l.Paths) > 0 {
		out.Printf("Not allowed: %s: %s.\n", terminal.Plural(len(l.Refused), "more path"),
			l.summary)
	}
}

func (p pathReport) latencyText() string {
	if p.LatencyMS == nil {
		return "Latency: ?"
	}
	return fmt.Sprintf("Latency: %gms", *p.LatencyMS)
}

func bandwidthText(bitS uint64) string {
	if bitS == 0 {
		return "Bandwidth: ?"
	}
	return fmt.Sprintf("Bandwidth: %gMbit/s", float64(bitS)/1e6)
}

func (p pathReport) statusText() string {
	if p.Status == string(scionnet.PathAlive) {
		return fmt.Sprintf("Status: alive, %.3gms", p.RTTMS)
	}
	if p.StatusInfo == "" {
		return "Status: " + p.Status
	}
	return "Status: " + p.Status + " (" + p.StatusInfo + ")"
}

func (l *pathList) verdict(probed bool) error {
	if len(l.Paths) == 0 && len(l.Refused) > 0 {
		return fmt.Errorf("none of the %d paths to %s is allowed: %s",
			len(l.Refused), l.Destination, l.summary)
	}
	if len(l.Paths) == 0 {
		return errors.New("no path found")
	}
	if !probed {
		return nil
	}
	for _, p := range l.Paths {
		if p.Status == string(scionnet.PathAlive) {
			return nil
		}
	}
	return errors.New("no path alive")
}
