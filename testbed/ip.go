package testbed

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"

	"braid/pathsel"
	"braid/testbed/linkemu"
)

// Hosts on IP use the same emulated links as hosts on SCION.
//
// A host is a process in its own network namespace, with one network device. This process reads and
// writes the packets of the device, so any program can run there. The packets share the rate,
// delay, loss and queues of the links with SCION packets. IP uses one way between two ASes, the
// shortest, even if a link is down.
//
//	process ── device ── IPNetwork ── Link ── … ── Link ── IPNetwork ── device ── process
//
// This needs no privilege on systems where all users may make user namespaces and open
// /dev/net/tun.

// IPNetwork is a network's hosts on IP.
type IPNetwork struct {
	network *Network
	mtu     int

	mu     sync.Mutex
	hosts  map[netip.Addr]*IPHost
	next   netip.Addr
	routes map[Pair][]hop
}

// IPHost is a host on IP. It has one process.
type IPHost struct {
	ip      *IPNetwork
	ia      pathsel.IA // 0: no link separates it from any AS
	addr    netip.Addr
	device  *os.File // nil before Start, and after Close
	waiting *os.File // over which the device comes
	reading sync.WaitGroup
	in, out uint64 // bytes of IP packets
}

// hop is a link of the topology, and the end at which packets enter it.
type hop struct {
	link int
	from linkemu.End
}

// ipSubnet contains the addresses of all hosts. They are visible in their namespaces only.
var ipSubnet = netip.MustParsePrefix("10.66.0.0/16")

// IP returns the network for hosts on IP, with the MTU that the links have now. The caller closes
// its hosts before the network.
func (n *Network) IP() *IPNetwork {
	x := &IPNetwork{
		network: n, mtu: 1500, next: ipSubnet.Addr().Next(),
		hosts: map[netip.Addr]*IPHost{}, routes: map[Pair][]hop{},
	}
	for _, a := range n.opts.Topology.ASes {
		x.mtu = min(x.mtu, a.MTU)
	}
	for i, l := range n.opts.Topology.Links {
		ab, ba := n.links[i].Config()
		x.mtu = min(x.mtu, l.MTU, cmp.Or(ab.MTU, l.MTU), cmp.Or(ba.MTU, l.MTU))
	}
	return x
}

// MTU is that of the hosts' devices, in bytes of an IP packet: what every link takes as a SCION
// packet.
func (x *IPNetwork) MTU() int { return x.mtu }

// Route returns the way from one AS to another, by the interface that sends on each link. It has
// the fewest links; of several, its links come first in the topology. It is empty inside an AS.
func (x *IPNetwork) Route(src, dst pathsel.IA) ([]pathsel.Interface, error) {
	hops, err := x.route(src, dst)
	var out []pathsel.Interface
	for _, h := range hops {
		l := x.network.opts.Topology.Links[h.link]
		out = append(out, [...]LinkEnd{l.A, l.B}[h.from].Interface)
	}
	return out, err
}

func (x *IPNetwork) route(src, dst pathsel.IA) ([]hop, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if hops, ok := x.routes[Pair{src, dst}]; ok {
		return hops, nil
	}
	hops := ipRoute(x.network.opts.Topology, src, dst)
	if hops == nil && src != dst && src != 0 && dst != 0 {
		return nil, fmt.Errorf("no links lead from %s to %s", src, dst)
	}
	x.routes[Pair{src, dst}] = hops
	return hops, nil
}

// ipRoute finds the way with the fewest links, breadth first in the order of the links; nil if
// there is none or none is needed.
func ipRoute(t Topology, src, dst pathsel.IA) []hop {
	if src == 0 || dst == 0 || src == dst {
		return nil
	}
	reached := map[pathsel.IA][]hop{src: {}}
	for queue := []pathsel.IA{src}; len(queue) > 0; queue = queue[1:] {
		for i, l := range t.Links {
			ends := [...]pathsel.IA{l.A.Interface.IA, l.B.Interface.IA}
			for from, at := range ends {
				to := ends[1-from]
				if _, ok := reached[to]; at == queue[0] && !ok {
					reached[to] = append(slices.Clip(reached[at]), hop{i, linkemu.End(from)})
					queue = append(queue, to)
				}
			}
		}
	}
	return reached[dst]
}

// AddHost adds a host in the AS. AS 0 reaches every AS without a link. There is room for 65 000
// hosts.
func (x *IPNetwork) AddHost(ia pathsel.IA) *IPHost {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := &IPHost{ip: x, ia: ia, addr: x.next}
	x.hosts[h.addr] = h
	x.next = x.next.Next()
	return h
}

// Addr is the host's address.
func (h *IPHost) Addr() netip.Addr { return h.addr }

// Traffic returns the bytes of IP packets that the host has received and sent.
func (h *IPHost) Traffic() (in, out uint64) {
	h.ip.mu.Lock()
	defer h.ip.mu.Unlock()
	return h.in, h.out
}

// Command returns a command that runs a program on the host, once. lab is the program braid-testbed.
// Connect must be called after the start.
func (h *IPHost) Command(lab, program string, args ...string) (*exec.Cmd, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", h.addr, err)
	}
	h.waiting = ours
	prefix := netip.PrefixFrom(h.addr, ipSubnet.Bits()).String()
	host := []string{"host", "--address", prefix, "--mtu", fmt.Sprint(h.ip.mtu), "--", program}
	cmd := exec.Command(lab, append(host, args...)...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = ownNetwork()
	return cmd, nil
}

// Connect waits for the host's device and connects it to the network. It closes the files that
// Command opened for the child.
func (h *IPHost) Connect(cmd *exec.Cmd) error {
	for _, f := range cmd.ExtraFiles {
		f.Close() // the child has its own; the end of its side is how its death is noticed
	}
	device, err := receiveFile(h.waiting)
	h.waiting.Close()
	if err != nil {
		return fmt.Errorf("host %s has no network device: %w; "+
			"root, or user namespaces and /dev/net/tun for everybody, are needed", h.addr, err)
	}
	h.ip.mu.Lock()
	h.device = device
	h.ip.mu.Unlock()
	h.reading.Go(func() { h.read(device) })
	return nil
}

// read sends the host's packets until the device is closed or its namespace has gone.
func (h *IPHost) read(device *os.File) {
	buf := make([]byte, 1<<16)
	for {
		n, err := device.Read(buf)
		if err != nil {
			return
		}
		h.send(buf[:n])
	}
}

// send sends a packet to its destination. Packets for other addresses, such as a client's local
// multicast, are dropped.
func (h *IPHost) send(p []byte) {
	const header = 20 // RFC 791
	if len(p) < header || p[0]>>4 != 4 {
		return
	}
	x := h.ip
	to := netip.AddrFrom4([4]byte(p[16:20]))
	x.mu.Lock()
	dst := x.hosts[to]
	h.out += uint64(len(p))
	x.mu.Unlock()
	if dst == nil {
		return
	}
	hops, err := x.route(h.ia, dst.ia)
	if err != nil {
		return // checked before anybody was started
	}
	x.forward(hops, p, dst)
}

// forward sends a packet over the links.
func (x *IPNetwork) forward(hops []hop, p []byte, dst *IPHost) {
	if len(hops) == 0 {
		dst.receive(p)
		return
	}
	x.network.links[hops[0].link].Carry(hops[0].from, p, func(p []byte) { x.forward(hops[1:], p, dst) })
}

// receive delivers a packet to the host. If the device has no room, the packet is lost, as in a
// network card.
func (h *IPHost) receive(p []byte) {
	h.ip.mu.Lock()
	device := h.device
	h.in += uint64(binary.BigEndian.Uint16(p[2:4]))
	h.ip.mu.Unlock()
	if device != nil {
		_, _ = device.Write(p)
	}
}

// Close removes the host from the network. Its process must have ended.
func (h *IPHost) Close() error {
	x := h.ip
	x.mu.Lock()
	device := h.device
	h.device = nil
	delete(x.hosts, h.addr)
	x.mu.Unlock()
	if device == nil {
		return nil
	}
	err := device.Close()
	h.reading.Wait()
	return err
}
