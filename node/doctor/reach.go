package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"braid/scionnet"
)

func checkRouters(f Facts) (out []Finding) {
	const check = "border router"
	if f.RoutersErr != nil {
		return one(check, Fail, f.RoutersErr.Error(),
			"all packets to other ASes go through the border routers",
			"check the local address (--local) and the network")
	}
	for _, r := range f.Routers {
		name := r.Router.String()
		switch {
		case r.Seen == (scionnet.Addr{}):
			s := Fail
			if anyAlive(f) {
				s = Warn // routers older than 0.15 do not answer, but forward packets
			}
			out = append(out, Finding{
				check, s, name + " does not answer",
				"paths through it carry nothing, or it is too old to tell whether there is a NAT",
				"check that UDP to " + name + " passes the firewall, and ask your AS whether the " +
					"router runs",
			})
		case r.Seen == r.Local:
			out = append(out, fine(check, "%s answers; there is no NAT", name))
		case f.To != 0 && (r.Seen.Port < f.From || r.Seen.Port > f.To):
			e := &scionnet.NATPortError{Local: r.Local, Seen: r.Seen, From: f.From, To: f.To}
			found := fmt.Sprintf("%s sees this host behind a NAT, at port %d", name, r.Seen.Port)
			out = append(out, Finding{
				check, Fail, found, "answers to that port get lost", e.Error(),
			})
		default:
			out = append(out, fine(check, "%s answers; a NAT shows this host as %s",
				name, netip.AddrPortFrom(r.Seen.Host, r.Seen.Port)))
		}
	}
	return out
}

func anyAlive(f Facts) bool {
	for _, r := range append(f.Core[:len(f.Core):len(f.Core)], f.targets()...) {
		if r.alive() > 0 {
			return true
		}
	}
	return false
}

func (f Facts) targets() []Reach {
	if f.Target == nil {
		return nil
	}
	return []Reach{*f.Target}
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

func checkCore(f Facts) (out []Finding) {
	for _, r := range f.Core {
		out = append(out, r.findings("core AS")...)
	}
	return out
}

func (r Reach) findings(check string) []Finding {
	const why = "without a path nothing can be sent there"
	n, alive := len(r.Paths), r.alive()
	switch {
	case r.Err != nil || n == 0:
		found := fmt.Sprintf("there is no path to %s", r.IA)
		if r.Err != nil && !errors.Is(r.Err, scionnet.ErrNoPath) {
			found += ": " + r.Err.Error()
		}
		return one(check, Fail, found, why, "check the ISD-AS, the trust roots, the clock and the "+
			"control service; then ask your AS")
	case alive == 0:
		found := fmt.Sprintf("none of %d paths to %s works (%s)", n, r.IA, r.broken())
		return one(check, Fail, found, why,
			"check the border routers above; if they answer, ask the AS named here")
	case alive < n:
		found := fmt.Sprintf("%d of %d paths to %s work (%s)", alive, n, r.IA, r.broken())
		return one(check, Warn, found, "braid uses the others", "ask the AS named here")
	}
	return []Finding{fine(check, "%d of %d paths to %s work", alive, n, r.IA)}
}

func checkName(f Facts) []Finding {
	if f.Name == "" {
		return nil
	}
	const check = "name"
	if f.NameErr != nil {
		return one(check, Fail, fmt.Sprintf("%s: %v", f.Name, f.NameErr),
			"the target cannot be found by its name",
			"add a line \"ISD-AS,[IP] "+f.Name+"\" to /etc/scion/hosts, or a TXT record "+
				"\"scion=ISD-AS,IP\" to DNS")
	}
	return []Finding{fine(check, "%s is %s", f.Name, f.Target.To)}
}

func checkTarget(f Facts) (out []Finding) {
	r := f.Target
	if r == nil || f.OpenErr != nil {
		return nil
	}
	out = r.findings("target")
	if r.alive() == 0 && len(r.Traces) > 0 || len(r.Paths) == 0 {
		return out
	}
	echoes := 0
	for _, p := range r.Echo {
		if p.Status == scionnet.PathAlive {
			echoes++
		}
	}
	connected := r.Port != 0 && r.Dial == nil
	if len(r.Echo) > 0 {
		if echoes > 0 {
			out = append(out, fine("target host", "%s answers over %d of %d paths",
				r.Host, echoes, len(r.Echo)))
		} else if !connected {
			out = append(out, Finding{
				"target host", Warn,
				fmt.Sprintf("%s answers no echo request, on any of %d paths",
					r.Host, len(r.Echo)),
				"it is off, behind a firewall or NAT, or does not answer echo requests (many do not)",
				"check that the host runs, and its address",
			})
		}
	}
	switch {
	case r.Port == 0:
	case connected:
		out = append(out, fine("target port", "a braid accepts connections at %s", r.To))
	case errors.Is(r.Dial, scionnet.ErrRefused):
		out = append(out, Finding{
			"target port", Fail, fmt.Sprintf("%s refuses connections", r.To),
			"it has no room, or is another program", "try later, and check the port",
		})
	default:
		out = append(out, Finding{
			"target port", Fail,
			fmt.Sprintf("nothing accepts connections at %s (%s)", r.To, lastOf(r.Dial)),
			"peers connect there",
			"check that braid runs there with this port in --listen, and that its firewall lets " +
				"UDP in from its AS's routers",
		})
	}
	return out
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

func checkMTU(f Facts) []Finding {
	r := f.Target
	if r == nil {
		return nil
	}
	const check = "MTU"
	known := 0
	for i, carried := range r.Carried {
		if carried == 0 || i >= len(r.Paths) {
			continue
		}
		known++
		if p := r.Paths[i]; carried < p.MTU {
			found := fmt.Sprintf("path %s carries packets of %d bytes, and announces %d",
				p.Fingerprint.Short(), carried, p.MTU)
			return one(check, Warn, found,
				"larger packets get lost; braid uses smaller ones, which cost more",
				"ask the ASes on the path to correct the MTU of their links or of the announcement")
		}
	}
	if known == 0 {
		return nil
	}
	return []Finding{fine(check, "packets of the size that braid needs pass over %d paths", known)}
}

// leastBuffer is quic-go's recommendation. With less, packets of fast connections are lost in the
// receiving host.
const leastBuffer = 7_500_000

func checkBuffers(f Facts) (out []Finding) {
	if f.Buffer > 0 && f.Buffer < leastBuffer {
		out = append(out, Finding{
			"socket buffers", Warn, fmt.Sprintf("at most %d bytes", f.Buffer),
			"above some 100 Mbit/s packets are lost in this host",
			fmt.Sprintf("sysctl -w net.core.rmem_max=%d net.core.wmem_max=%[1]d", leastBuffer),
		})
	} else if f.Buffer > 0 {
		out = append(out, fine("socket buffers", "up to %d bytes", f.Buffer))
	}
	if f.Offload != nil {
		out = append(out, Finding{
			"offloading", Warn,
			"the kernel does not cut or join UDP packets: " + f.Offload.Error(),
			"each packet costs a system call", "use Linux 5.0 or newer",
		})
	}
	return out
}

func checkTracker(f Facts) []Finding {
	if f.Tracker == nil {
		return nil
	}
	if f.Tracker.Err != nil {
		return one("tracker", Fail,
			fmt.Sprintf("%s does not answer: %s", f.Tracker.URL, f.Tracker.Err),
			"peers are found through it",
			"check its URL, or ask its operator; other trackers and the DHT may be enough")
	}
	return []Finding{fine("tracker", "%s answers", f.Tracker.URL)}
}

// leastFree is the room that a small download may need.
const leastFree = 100 << 20

func checkDisk(f Facts) []Finding {
	const check = "disk"
	switch {
	case f.Dir == "":
		return nil
	case f.DirErr != nil:
		return one(check, Fail, f.DirErr.Error(), "downloads are written there",
			"make the directory, or choose one that you may write to")
	case f.Free < leastFree:
		return one(check, Fail, fmt.Sprintf("%s has %d MiB left", f.Dir, f.Free>>20),
			"a download stops when the disk is full",
			"free some space, or choose another directory")
	}
	return []Finding{fine(check, "%s has %d MiB left", f.Dir, f.Free>>20)}
}
