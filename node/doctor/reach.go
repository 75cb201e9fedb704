package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"braid/scionnet"
)

func checkRouters(f Facts, all *findings) {
	const check = "border router"
	if f.RoutersErr != nil {
		all.add(check, Fail, f.RoutersErr.Error(),
			"all packets to other ASes go through the border routers",
			"check the local address (--local) and the network")
		return
	}
	for _, r := range f.Routers {
		name := r.Router.String()
		switch {
		case r.Seen == (scionnet.Addr{}):
			s := Fail
			if anyAlive(f) {
				s = Warn // routers older than 0.15 do not answer, but forward packets
			}
			all.add(check, s, name+" does not answer",
				"paths through it carry nothing, or it is too old to tell whether there is a NAT",
				"check that UDP to "+name+" passes the firewall, and ask your AS whether the "+
					"router runs")
		case r.Seen == r.Local:
			all.ok(check, "%s answers; there is no NAT", name)
		case f.To != 0 && (r.Seen.Port < f.From || r.Seen.Port > f.To):
			e := &scionnet.NATPortError{Local: r.Local, Seen: r.Seen, From: f.From, To: f.To}
			all.add(check, Fail,
				fmt.Sprintf("%s sees this host behind a NAT, at port %d", name, r.Seen.Port),
				"answers to that port get lost", e.Error())
		default:
			all.ok(check, "%s answers; a NAT shows this host as %s",
				name, netip.AddrPortFrom(r.Seen.Host, r.Seen.Port))
		}
	}
}

// reaches returns the facts about all ASes and hosts.
func (f Facts) reaches() []Reach {
	if f.Target == nil {
		return f.Core
	}
	return append(slices.Clone(f.Core), *f.Target)
}

func anyAlive(f Facts) bool {
	return slices.ContainsFunc(f.reaches(), func(r Reach) bool { return r.alive() > 0 })
}

// alive counts the paths whose last router answers.
func (r Reach) alive() (n int) {
	for i, t := range r.Traces {
		if i < len(r.Paths) && t.Alive(r.Paths[i]) {
			n++
		}
	}
	return n
}

// broken says where packets stop on the first path that does not reach the AS.
func (r Reach) broken() string {
	for i, t := range r.Traces {
		if i >= len(r.Paths) || t.Alive(r.Paths[i]) {
			continue
		}
		p := r.Paths[i]
		name := "path " + p.Fingerprint.Short()
		switch {
		case t.Down.IA != 0:
			return fmt.Sprintf("%s: interface %s is down", name, t.Down)
		case t.Unknown:
			return name + " is no longer offered"
		case t.Answered == 0:
			return fmt.Sprintf("%s: the first router does not answer", name)
		case t.Answered < len(p.Interfaces):
			return fmt.Sprintf("%s: nothing answers behind %s", name, p.Interfaces[t.Answered-1])
		}
	}
	return ""
}

func checkCore(f Facts, all *findings) {
	for _, r := range f.Core {
		r.check("core AS", all)
	}
}

func (r Reach) check(check string, all *findings) {
	const why = "without a path nothing can be sent there"
	n, alive := len(r.Paths), r.alive()
	switch {
	case r.Err != nil || n == 0:
		found := fmt.Sprintf("there is no path to %s", r.IA)
		if r.Err != nil && !errors.Is(r.Err, scionnet.ErrNoPath) {
			found += ": " + r.Err.Error()
		}
		all.add(check, Fail, found, why, "check the ISD-AS, the trust roots, the clock and the "+
			"control service; then ask your AS")
	case alive == 0:
		all.add(check, Fail, fmt.Sprintf("none of %d paths to %s works (%s)", n, r.IA, r.broken()),
			why, "check the border routers above; if they answer, ask the AS named here")
	case alive < n:
		found := fmt.Sprintf("%d of %d paths to %s work (%s)", alive, n, r.IA, r.broken())
		all.add(check, Warn, found, "braid uses the others", "ask the AS named here")
	default:
		all.ok(check, "%d of %d paths to %s work", alive, n, r.IA)
	}
}

func checkName(f Facts, all *findings) {
	const check = "name"
	switch {
	case f.Name == "":
	case f.NameErr != nil:
		all.add(check, Fail, fmt.Sprintf("%s: %v", f.Name, f.NameErr),
			"the target cannot be found by its name",
			"add a line \"ISD-AS,[IP] "+f.Name+"\" to /etc/scion/hosts, or a TXT record "+
				"\"scion=ISD-AS,IP\" to DNS")
	default:
		all.ok(check, "%s is %s", f.Name, f.Target.To)
	}
}

func checkTarget(f Facts, all *findings) {
	r := f.Target
	if r == nil || f.OpenErr != nil {
		return
	}
	r.check("target", all)
	if r.alive() == 0 && len(r.Traces) > 0 || len(r.Paths) == 0 {
		return
	}
	echoes := 0
	for _, p := range r.Echo {
		if p.Status == scionnet.PathAlive {
			echoes++
		}
	}
	connected := r.Port != 0 && r.Dial == nil
	switch {
	case echoes > 0:
		all.ok("target host", "%s answers over %d of %d paths", r.Host, echoes, len(r.Echo))
	case len(r.Echo) > 0 && !connected:
		all.add("target host", Warn,
			fmt.Sprintf("%s answers no echo request, on any of %d paths", r.Host, len(r.Echo)),
			"it is off, behind a firewall or NAT, or does not answer echo requests (many do not)",
			"check that the host runs, and its address")
	}
	switch {
	case r.Port == 0:
	case connected:
		all.ok("target port", "a braid accepts connections at %s", r.To)
	case errors.Is(r.Dial, scionnet.ErrRefused):
		all.add("target port", Fail, fmt.Sprintf("%s refuses connections", r.To),
			"it has no room, or is another program", "try later, and check the port")
	default:
		all.add("target port", Fail,
			fmt.Sprintf("nothing accepts connections at %s (%s)", r.To, lastOf(r.Dial)),
			"peers connect there",
			"check that braid runs there with this port in --listen, and that its firewall lets "+
				"UDP in from its AS's routers")
	}
}

// lastOf returns the last part of an error's text. The parts before it contain addresses that the
// finding shows anyway.
func lastOf(err error) string {
	s := err.Error()
	if i := strings.LastIndex(s, ": "); i >= 0 {
		return s[i+2:]
	}
	return s
}

func checkMTU(f Facts, all *findings) {
	r := f.Target
	if r == nil {
		return
	}
	const check = "MTU"
	known := 0
	for i, carried := range r.Carried {
		if carried == 0 || i >= len(r.Paths) {
			continue
		}
		known++
		if p := r.Paths[i]; carried < p.MTU {
			all.add(check, Warn,
				fmt.Sprintf("path %s carries packets of %d bytes, and announces %d",
					p.Fingerprint.Short(), carried, p.MTU),
				"larger packets get lost; braid uses smaller ones, which cost more",
				"ask the ASes on the path to correct the MTU of their links or of the announcement")
			return
		}
	}
	if known > 0 {
		all.ok(check, "packets of the size that braid needs pass over %d paths", known)
	}
}

// leastBuffer is quic-go's recommendation. With less, packets of fast connections are lost in the
// receiving host.
const leastBuffer = 7_500_000

func checkBuffers(f Facts, all *findings) {
	if f.Buffer > 0 && f.Buffer < leastBuffer {
		all.add("socket buffers", Warn, fmt.Sprintf("at most %d bytes", f.Buffer),
			"above some 100 Mbit/s packets are lost in this host",
			fmt.Sprintf("sysctl -w net.core.rmem_max=%d net.core.wmem_max=%[1]d", leastBuffer))
	} else if f.Buffer > 0 {
		all.ok("socket buffers", "up to %d bytes", f.Buffer)
	}
	if f.Offload != nil {
		all.add("offloading", Warn, "the kernel does not cut or join UDP packets: "+f.Offload.Error(),
			"each packet costs a system call", "use Linux 5.0 or newer")
	}
}

func checkTracker(f Facts, all *findings) {
	switch t := f.Tracker; {
	case t == nil:
	case t.Err != nil:
		all.add("tracker", Fail, fmt.Sprintf("%s does not answer: %s", t.URL, t.Err),
			"peers are found through it",
			"check its URL, or ask its operator; other trackers and the DHT may be enough")
	default:
		all.ok("tracker", "%s answers", t.URL)
	}
}

// leastFree is the room that a small download may need.
const leastFree = 100 << 20

func checkDisk(f Facts, all *findings) {
	const check = "disk"
	switch {
	case f.Dir == "":
	case f.DirErr != nil:
		all.add(check, Fail, f.DirErr.Error(), "downloads are written there",
			"make the directory, or choose one that you may write to")
	case f.FreeErr != nil:
		all.ok(check, "%s can be written to; it is not known how much space is left: %v",
			f.Dir, f.FreeErr)
	case f.Free < leastFree:
		all.add(check, Fail, fmt.Sprintf("%s has %d MiB left", f.Dir, f.Free>>20),
			"a download stops when the disk is full",
			"free some space, or choose another directory")
	default:
		all.ok(check, "%s has %d MiB left", f.Dir, f.Free>>20)
	}
}
