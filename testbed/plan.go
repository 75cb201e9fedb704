package testbed

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"github.com/scionproto/scion/pkg/addr"

	"braid/pathsel"
	"braid/testbed/linkemu"
)

// Every testbed has its own block of 127.0.0.0/8, so several can run side by side. The testbed
// binds the first address of the block to claim it. Then follows an address for each AS, which the
// AS's control service, routers and end hosts share. IPv6 has only ::1, so there a testbed claims a
// block of ports.
//
// All ports are below the range from which the kernel gives ports to end hosts (32768 and up).
const (
	controlPort   = 30252 // as scionproto's generator has it
	firstPort     = 30300
	lastPort      = 32767
	claimPort     = controlPort
	first6Port    = 10240
	ports6        = 1024 // in a block
	blocks6       = (controlPort - first6Port) / ports6
	defaultBits   = 24
	firstOctet    = 16 // of the second byte; resolvers and others use 127.0 to 127.15
	octets        = 255 - firstOctet
	claimAttempts = 64
)

// plan has the addresses of all processes.
type plan struct {
	subnet netip.Prefix
	ases   []asPlan
	links  []linkPlan

	listeners []listener
}

type asPlan struct {
	AS
	folder  string // below the testbed's directory
	host    netip.Addr
	control netip.AddrPort
	api     netip.AddrPort // of the control service: it serves the topology and TRCs there
	routers []routerPlan
}

type routerPlan struct {
	name              string
	command           []string // see Network.chooseRouters
	internal, metrics netip.AddrPort
	interfaces        []interfacePlan
}

// routerAt returns the router of an AS that has the interface; nil if there is none.
func (a asPlan) routerAt(id uint64) *routerPlan {
	i := slices.IndexFunc(a.routers, func(r routerPlan) bool { return r.has(id) })
	if i < 0 {
		return nil
	}
	return &a.routers[i]
}

type interfacePlan struct {
	link          *Link
	id            uint64
	neighbor      pathsel.Interface
	linkTo        string // the neighbour's role
	local, remote netip.AddrPort
}

// linkPlan is where the emulator of a link listens, and where the routers do.
type linkPlan struct{ a, b linkemu.Endpoint }

// planner gives out ports.
type planner struct {
	plan
	next, last map[netip.Addr]int
	full       netip.Addr // an address that has too few ports; invalid if there is none
}

func (p *planner) port(ip netip.Addr) netip.AddrPort {
	if p.next[ip] > p.last[ip] {
		p.full = ip
	}
	p.next[ip]++
	return netip.AddrPortFrom(ip, uint16(p.next[ip]-1))
}

// listen notes who will bind an address.
func (p *planner) listen(network string, at netip.AddrPort, who string, args ...any) {
	p.listeners = append(p.listeners, listener{network, at, fmt.Sprintf(who, args...)})
}

// makePlan assigns addresses to everything in the topology. They depend only on subnet and port6.
// port6 is the first port on ::1; 0 means that there is no IPv6.
func makePlan(t Topology, subnet netip.Prefix, port6 int) (plan, error) {
	p := planner{
		plan: plan{subnet: subnet.Masked()},
		next: map[netip.Addr]int{netip.IPv6Loopback(): port6 + 1}, // the first port is the claim
		last: map[netip.Addr]int{netip.IPv6Loopback(): port6 + ports6 - 1},
	}
	ip := p.subnet.Addr()
	v4 := map[pathsel.IA]netip.Addr{}
	index := map[pathsel.IA]int{}
	for i, as := range t.ASes {
		ip = ip.Next()
		if !p.subnet.Contains(ip) {
			return plan{}, fmt.Errorf("%s has no room for the %d ASes of topology %s; take a larger --subnet",
				subnet, len(t.ASes), t.Name)
		}
		p.next[ip], p.last[ip] = firstPort, lastPort
		v4[as.IA], index[as.IA] = ip, i
		a := asPlan{AS: as, folder: folderOf(as.IA), host: ip, control: netip.AddrPortFrom(ip, controlPort)}
		if as.IPv6 {
			a.host = netip.IPv6Loopback()
			a.control = p.port(a.host)
		}
		p.listen("udp", a.control, "control service of %s", as.IA)
		p.listen("tcp", a.control, "control service of %s", as.IA)
		p.ases = append(p.ases, a)
	}
	for i := range t.Links {
		l := &t.Links[i]
		linkIP := func(ia pathsel.IA) netip.Addr {
			if l.IPv6 {
				return netip.IPv6Loopback()
			}
			return v4[ia]
		}
		a, b := linkIP(l.A.Interface.IA), linkIP(l.B.Interface.IA)
		// Each router talks to the emulator, which listens at the neighbour's address.
		lp := linkPlan{a: linkemu.Endpoint{Router: p.port(a)}, b: linkemu.Endpoint{Router: p.port(b)}}
		lp.a.Local, lp.b.Local = p.port(b), p.port(a)
		p.links = append(p.links, lp)
		for _, e := range []struct {
			near, far LinkEnd
			at        linkemu.Endpoint
			farRole   string
		}{{l.A, l.B, lp.a, roles[l.Type][1]}, {l.B, l.A, lp.b, roles[l.Type][0]}} {
			r := p.router(&p.ases[index[e.near.Interface.IA]], e.near.Router)
			r.interfaces = append(r.interfaces, interfacePlan{
				link: l, id: e.near.Interface.ID, neighbor: e.far.Interface, linkTo: e.farRole,
				local: e.at.Router, remote: e.at.Local,
			})
			p.listen("udp", e.at.Router, "router %s of %s", r.name, e.near.Interface.IA)
			p.listen("udp", e.at.Local, "emulator of link %d", i+1)
		}
	}
	for i := range p.ases { // the last ones, so that the others keep their ports
		p.ases[i].api = p.port(p.ases[i].host)
		p.listen("tcp", p.ases[i].api, "control service of %s", p.ases[i].IA)
	}
	if p.full.IsValid() {
		return plan{}, fmt.Errorf("topology %s needs more ports on %s than the testbed has there", t.Name, p.full)
	}
	return p.plan, nil
}

// router returns the AS's router with that letter, or a new one.
func (p *planner) router(a *asPlan, letter string) *routerPlan {
	name := "br-" + cmp.Or(letter, strconv.Itoa(len(a.routers)+1))
	for i := range a.routers {
		if letter != "" && a.routers[i].name == name {
			return &a.routers[i]
		}
	}
	r := routerPlan{name: name, internal: p.port(a.host), metrics: p.port(a.host)}
	p.listen("udp", r.internal, "router %s of %s", name, a.IA)
	p.listen("tcp", r.metrics, "router %s of %s", name, a.IA)
	a.routers = append(a.routers, r)
	return &a.routers[len(a.routers)-1]
}

func (r *routerPlan) has(interfaceID uint64) bool {
	return slices.ContainsFunc(r.interfaces, func(i interfacePlan) bool { return i.id == interfaceID })
}

// roles names the ends A and B of a link the way topology.json does.
var roles = map[LinkType][2]string{
	Core: {"core", "core"}, Child: {"parent", "child"}, Peer: {"peer", "peer"},
}

// folderOf is where scion-pki keeps an AS of several ISDs: ISD1/ASff00_0_110.
func folderOf(ia pathsel.IA) string {
	return addr.FormatISD(addr.IA(ia).ISD(), addr.WithDefaultPrefix()) + "/" +
		addr.FormatAS(addr.IA(ia).AS(), addr.WithDefaultPrefix(), addr.WithFileSeparator())
}

// listener is an address that a process of the testbed will bind.
type listener struct {
	network string // udp or tcp
	at      netip.AddrPort
	who     string
}

// probe binds and releases all addresses. The error says which one is in use.
func (p plan) probe() error {
	for _, l := range p.listeners {
		c, err := bind(l.network, l.at)
		if err != nil {
			return fmt.Errorf("%s %s, wanted by the %s, is in use: "+
				"stop what listens there or choose other addresses with --subnet (%w)", l.network, l.at, l.who, err)
		}
		c.Close()
	}
	return nil
}

func bind(network string, at netip.AddrPort) (io.Closer, error) {
	if network == "tcp" {
		return net.ListenTCP(network, net.TCPAddrFromAddrPort(at))
	}
	return net.ListenUDP(network, net.UDPAddrFromAddrPort(at))
}

// claims hold the blocks of a testbed for as long as it lives.
type claims []io.Closer

func (c claims) release() {
	for _, s := range c {
		s.Close()
	}
}

// claimPlan finds a free block of addresses. The search starts at a block that depends on the
// testbed's directory, so a testbed normally has the same addresses each time. With a fixed subnet
// there is no search.
func claimPlan(t Topology, dir string, fixed netip.Prefix) (plan, claims, error) {
	h := fnv.New64a()
	_, _ = io.WriteString(h, dir) // a hash takes everything
	start := h.Sum64()
	var held claims
	port6 := 0
	if usesIPv6(t) {
		p6, claim, err := claimPorts6(start)
		if err != nil {
			return plan{}, nil, err
		}
		port6, held = p6, claims{claim}
	}
	var err error
	for i := range uint64(claimAttempts) {
		subnet := fixed
		if !fixed.IsValid() {
			n := (start + i) % (octets * 256)
			first := netip.AddrFrom4([4]byte{127, byte(firstOctet + n/256), byte(n % 256), 0})
			subnet = netip.PrefixFrom(first, defaultBits)
		}
		var p plan
		var claim io.Closer
		if p, err = makePlan(t, subnet, port6); err != nil {
			break
		}
		at := netip.AddrPortFrom(p.subnet.Addr(), claimPort)
		if claim, err = bind("udp", at); err == nil {
			if err = p.probe(); err == nil {
				return p, append(held, claim), nil
			}
			claim.Close()
		} else if errors.Is(err, syscall.EADDRNOTAVAIL) {
			err = fmt.Errorf("this host does not have %s of subnet %s: choose another --subnet (%w)",
				at.Addr(), subnet, err)
		} else {
			err = fmt.Errorf("%s is used by another testbed (udp %s is bound): "+
				"take it down or choose another --subnet (%w)", subnet, at, err)
		}
		if fixed.IsValid() {
			break
		}
	}
	held.release()
	return plan{}, nil, err
}

func claimPorts6(start uint64) (int, io.Closer, error) {
	for i := range uint64(blocks6) {
		port := first6Port + int((start+i)%blocks6)*ports6
		if c, err := bind("udp", netip.AddrPortFrom(netip.IPv6Loopback(), uint16(port))); err == nil {
			return port, c, nil
		}
	}
	return 0, nil, errors.New("all port blocks on ::1 are used by other testbeds: take one down")
}

func usesIPv6(t Topology) bool {
	return slices.ContainsFunc(t.ASes, func(a AS) bool { return a.IPv6 }) ||
		slices.ContainsFunc(t.Links, func(l Link) bool { return l.IPv6 })
}

// withoutIPv6 is the topology with every underlay on IPv4.
func withoutIPv6(t Topology) Topology {
	t.ASes = append([]AS(nil), t.ASes...)
	t.Links = append([]Link(nil), t.Links...)
	for i := range t.ASes {
		t.ASes[i].IPv6 = false
	}
	for i := range t.Links {
		t.Links[i].IPv6 = false
	}
	return t
}

func haveIPv6() bool {
	c, err := bind("udp", netip.AddrPortFrom(netip.IPv6Loopback(), 0))
	if err == nil {
		c.Close()
	}
	return err == nil
}

// checkSubnet accepts a block of loopback or private addresses. The host must have private ones
// already. They are for hosts in other network namespaces.
func checkSubnet(p netip.Prefix) error {
	if !p.Addr().Is4() || p.Bits() < 8 || !p.Addr().IsLoopback() && !p.Addr().IsPrivate() {
		return fmt.Errorf("subnet %s: want a part of 127.0.0.0/8, such as 127.77.0.0/24, "+
			"or private addresses of this host", p)
	}
	return nil
}
