// Package doctor finds out why SCION does not work on a host, and says what to do.
//
// Gather collects facts: files, the clock, the answers of the AS's services and routers, and the
// paths to a target. It judges nothing. Examine is a function from these facts to findings. It asks
// nobody, so its tests are tables.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"

	"braid/pathsel"
	"braid/scionnet"
)

// Status is the result of a check.
type Status string

const (
	OK   Status = "ok"
	Warn Status = "warning" // works, but not as well as it could
	Fail Status = "failed"
)

// Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Found  string `json:"found"`
	Why    string `json:"why,omitempty"` // why that matters
	Do     string `json:"do,omitempty"`  // what to do about it
}

// Failed tells whether something is wrong.
func Failed(all []Finding) bool {
	return slices.ContainsFunc(all, func(f Finding) bool { return f.Status == Fail })
}

// Validity is the lifetime of a TRC or certificate.
type Validity struct {
	Name     string
	ISD      uint16 // of a TRC
	From, To time.Time
	Err      error // it cannot be read
	Foreign  bool  // a TRC of another network with the same ISD number
}

// Reach has the facts about the way to a host or an AS.
type Reach struct {
	To     string
	IA     pathsel.IA
	Host   netip.Addr // zero: the AS as a whole
	Port   uint16     // 0: none was named
	Err    error      // of the lookup
	Paths  []pathsel.Path
	Traces []scionnet.Trace // how far packets get, for each path
	Echo   []scionnet.Probe // of the host; empty without one
	Dial   error            // of a QUIC connection to the port
	// Carried are the measured MTUs of the first paths; 0: unknown.
	Carried []int
}

// Tracker is the answer of a tracker.
type Tracker struct {
	URL string
	Err error
}

// Facts are the result of Gather.
type Facts struct {
	Now               time.Time
	ConfigDir, Daemon string
	OpenErr           error // of the host
	IA                pathsel.IA
	LocalIP           netip.Addr
	ForeignIP         bool // no interface has LocalIP
	TRCs, Certs       []Validity
	Control           error
	From, To          uint16 // dispatched ports
	Port              uint16 // to listen on; 0: any
	PortErr           error  // it cannot be opened
	Dispatcher        bool   // something listens at port 30041
	Routers           []scionnet.RouterView
	RoutersErr        error
	Core              []Reach
	Target            *Reach
	Buffer            int   // the largest receive buffer that the system allows, in bytes; 0: unknown
	Offload           error // the kernel neither cuts nor joins packets
	Name              string
	NameErr           error
	Tracker           *Tracker
	Dir               string
	DirErr            error // it cannot be written to
	Free              int64 // bytes in Dir
	FreeErr           error // Free is not known
}

// checks are in the order in which users see them. Checks on which others depend come first.
var checks = []func(Facts, *findings){
	checkSetup, checkLocalIP, checkTRCs, checkCertificates, checkClock, checkControl, checkPorts,
	checkDispatcher, checkRouters, checkCore, checkName, checkTarget, checkMTU, checkBuffers,
	checkTracker, checkDisk,
}

// Examine turns facts into findings.
func Examine(f Facts) []Finding {
	var all findings
	for _, check := range checks {
		check(f, &all)
	}
	return all
}

type findings []Finding

// ok adds the finding that nothing is wrong.
func (all *findings) ok(check, format string, args ...any) {
	all.add(check, OK, fmt.Sprintf(format, args...), "", "")
}

func (all *findings) add(check string, s Status, found, why, do string) {
	found = strings.ReplaceAll(found, context.DeadlineExceeded.Error(), "no answer in time")
	*all = append(*all, Finding{check, s, found, why, do})
}

func checkSetup(f Facts, all *findings) {
	const check, why = "SCION setup", "without it braid knows neither routers nor paths"
	from := "topology.json in " + f.ConfigDir
	if f.Daemon != "" {
		from = "the daemon at " + f.Daemon
	}
	switch {
	case f.OpenErr == nil:
		all.ok(check, "AS %s, from %s", f.IA, from)
	case errors.Is(f.OpenErr, scionnet.ErrOtherAS):
		all.add(check, Fail, f.OpenErr.Error(), why,
			"leave out --isd-as, correct --listen, or name the configuration of that AS")
	case f.Daemon != "":
		all.add(check, Fail, f.OpenErr.Error(), why,
			"start the daemon (systemctl start scion-daemon), or check --sciond and SCION_DAEMON")
	case errors.Is(f.OpenErr, fs.ErrNotExist),
		strings.Contains(f.OpenErr.Error(), "no such file"):
		all.add(check, Fail, "there is no "+from, why,
			"run braid bootstrap, ask your AS for its bootstrap server, or name the directory "+
				"with --config-dir")
	default:
		all.add(check, Fail, f.OpenErr.Error(), why,
			"repair "+from+", or fetch it from your AS again")
	}
}

func checkLocalIP(f Facts, all *findings) {
	const check = "local address"
	switch {
	case !f.LocalIP.IsValid():
	case f.ForeignIP:
		all.add(check, Fail, fmt.Sprintf("no interface of this host has %s", f.LocalIP),
			"packets cannot be sent from there, and answers go elsewhere",
			"name an address of this host with --local, or leave --local out")
	default:
		all.ok(check, "%s", f.LocalIP)
	}
}

// fault is the status of a finding about a bad file. It is only a warning if there is a SCION
// daemon, which may use other files.
func (f Facts) fault() Status {
	if f.Daemon != "" {
		return Warn
	}
	return Fail
}

func checkTRCs(f Facts, all *findings) {
	const check, why = "trust roots", "paths are believed only if their signatures lead to a valid TRC"
	const renew = "fetch the present TRC from your AS, or correct the clock"
	home := false
	for _, v := range f.TRCs {
		home = home || v.ISD == f.IA.ISD() && v.Err == nil && !v.Foreign
		name := f.named(v)
		switch {
		case v.Err != nil:
			all.add(check, f.fault(), fmt.Sprintf("%s cannot be read: %v", name, v.Err), why,
				"fetch it again from your AS")
		case v.Foreign:
			all.add(check, f.fault(),
				fmt.Sprintf("%s is not the TRC of ISD %d that the control service has", name, v.ISD),
				"it is of another network with the same ISD number, or the control service is "+
					"not that of your AS",
				"remove the file if your AS does not use it, and fetch the TRCs from your AS")
		case f.Now.After(v.To):
			all.add(check, f.fault(), fmt.Sprintf("%s expired on %s", name, day(v.To)), why, renew)
		case f.Now.Before(v.From):
			all.add(check, f.fault(), fmt.Sprintf("%s is valid from %s on", name, day(v.From)),
				why, renew)
		default:
			all.ok(check, "%s, valid until %s", name, day(v.To))
		}
	}
	switch {
	case home || f.IA == 0:
	case f.Daemon == "":
		all.add(check, Fail,
			fmt.Sprintf("there is no TRC of ISD %d in %s/certs", f.IA.ISD(), f.ConfigDir), why,
			"fetch the TRCs from your AS")
	default:
		what := "TRCs"
		if len(f.Certs) == 0 {
			what = "TRCs and certificates"
		}
		all.add(check, Warn,
			fmt.Sprintf("%s were not checked: the daemon at %s does not show its own, "+
				"and %s has no TRC of ISD %d", what, f.Daemon, f.filesDir(), f.IA.ISD()),
			why,
			"run braid doctor where the daemon runs, and name the config_dir of its "+
				"configuration with --config-dir")
	}
}

// named names a TRC or certificate. If there is a daemon, which may use other files, it adds the
// directory.
func (f Facts) named(v Validity) string {
	if f.Daemon != "" {
		return v.Name + " in " + f.filesDir()
	}
	return v.Name
}

// filesDir is the directory in which TRCs and certificates were looked for.
func (f Facts) filesDir() string {
	if f.ConfigDir == "" {
		return "this host"
	}
	return f.ConfigDir
}

func checkCertificates(f Facts, all *findings) {
	const (
		check = "certificates"
		why   = "control services refuse signatures with certificates that are not valid"
		do    = "renew it (scion-pki certificate renew)"
	)
	for _, v := range f.Certs {
		name := f.named(v)
		switch {
		case v.Err != nil:
			all.add(check, Warn, fmt.Sprintf("%s cannot be read: %v", name, v.Err), why, do)
		case f.Now.After(v.To):
			all.add(check, f.fault(), fmt.Sprintf("%s expired on %s", name, day(v.To)), why, do)
		case f.Now.Before(v.From):
			all.add(check, f.fault(), fmt.Sprintf("%s is valid from %s on", name, day(v.From)), why,
				"correct the clock")
		default:
			all.ok(check, "%s, valid until %s", name, day(v.To))
		}
	}
}

// mostLife is the longest lifetime of a hop field (SCION control plane specification).
const mostLife = 24 * time.Hour

// checkClock compares the clock with the lifetimes of paths and TRCs, which others have written.
func checkClock(f Facts, all *findings) {
	const (
		check = "clock"
		why   = "paths and certificates seem to have expired, or not to be valid yet"
		do    = "set the clock (timedatectl set-ntp true)"
	)
	now := f.Now.UTC().Format(time.DateTime) + " UTC"
	paths, ahead, behind := 0, 0, 0
	for _, r := range f.reaches() {
		for _, p := range r.Paths {
			if p.Expiry.IsZero() || p.Dst == p.Src {
				continue
			}
			paths++
			if f.Now.After(p.Expiry) {
				ahead++
			} else if f.Now.Add(mostLife + time.Hour).Before(p.Expiry) {
				behind++
			}
		}
	}
	young, old, usable := 0, 0, 0
	for _, v := range f.TRCs {
		switch {
		case v.Err != nil || v.Foreign:
			continue
		case f.Now.Before(v.From):
			young++
		case f.Now.After(v.To) && f.Daemon == "": // a daemon may have a newer one
			old++
		}
		usable++
	}
	switch {
	case behind > 0 || young > 0 && young == usable:
		all.add(check, Fail, now+" is too early: paths or TRCs are from the future", why, do)
	case paths > 0 && ahead == paths || old > 0 && old == usable && paths > 0:
		all.add(check, Fail,
			now+" is too late: the control service hands out paths that would have expired", why, do)
	default:
		all.ok(check, "%s", now)
	}
}

func checkControl(f Facts, all *findings) {
	const check = "control service"
	switch {
	case f.OpenErr != nil:
	case f.Control != nil:
		all.add(check, Fail, f.Control.Error(), "it knows the paths to other ASes",
			"check the network to it and the firewall (TCP and UDP), or ask your AS whether it runs")
	default:
		all.ok(check, "answers")
	}
}

func checkPorts(f Facts, all *findings) {
	const check = "port"
	ports := fmt.Sprintf("AS %s delivers to ports %d-%d", f.IA, f.From, f.To)
	switch {
	case f.OpenErr != nil:
	case f.To == 0:
		all.add(check, Warn, fmt.Sprintf("AS %s names no range of ports", f.IA),
			"its routers deliver to port 30041 only, where a dispatcher passes packets on",
			"ask your AS for dispatched_ports in its topology")
	case f.Port != 0 && (f.Port < f.From || f.Port > f.To):
		all.add(check, Fail, fmt.Sprintf("%s, not to port %d", ports, f.Port),
			"nobody can connect to a port outside of it", "choose a port of the range")
	case f.PortErr != nil:
		all.add(check, Fail, f.PortErr.Error(), "braid cannot accept connections there",
			"choose another port, or end the program that has it (ss -ulpn)")
	default:
		all.ok(check, "%s", ports)
	}
}

func checkDispatcher(f Facts, all *findings) {
	if f.OpenErr != nil || !f.Dispatcher {
		return
	}
	all.add("port 30041", Warn,
		"something listens there: a dispatcher, a shim for one, or a braid that accepts peers",
		"a dispatcher older than scionproto 0.12 takes packets for other programs away; "+
			"while it runs, this host answers echo requests only if the dispatcher does",
		"unless it is a braid or a program needs it, stop the dispatcher "+
			"(systemctl stop scion-dispatcher)")
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }
