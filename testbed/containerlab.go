package testbed

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
	"time"

	"braid/pathsel"
)

// Export of a topology to containerlab (https://containerlab.dev): a container for each AS, with
// its control service, its routers and braid, and a cable for each link. The kernel's netem and tbf
// replace the emulator. The directory is:
//
//	NAME.clab.yml   the lab: nodes, links, and commands for each node
//	Dockerfile, bin the image of all nodes, with scionproto's programs and braid
//	config/         of each AS, mounted at /etc/scion
//	lab             a script: build, up, link, braid, down
//	README.md

//go:embed containerlab/*
var containerlabFiles embed.FS

const (
	labConfig    = "/etc/scion" // of an AS in its container
	labLinkPort  = 50000
	labBurst     = 32 << 10 // bytes that tbf lets through at once: more than one batch of a router
	maxLabNode   = 40       // characters; containerlab's names become host names
	labImageName = "braid-lab"
)

// Addresses are private to a lab: its containers share only the management network with others.
var (
	labHosts = netip.MustParsePrefix("10.200.0.0/16") // one for each AS
	labLinks = netip.MustParsePrefix("10.201.0.0/16") // a /30 for each link
)

// ContainerlabOptions say what to export, and where.
type ContainerlabOptions struct {
	Topology Topology
	// Dir must be new or empty.
	Dir string
	// Braid is the program to copy, SCIONBin the directory of the SCION programs (as in Options).
	Braid, SCIONBin string
	BFD             time.Duration // as in Options
}

// ExportContainerlab writes the topology for containerlab.
func ExportContainerlab(ctx context.Context, o ContainerlabOptions) error {
	entries, err := os.ReadDir(o.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("export to containerlab: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("export to containerlab: %s is not empty; choose another directory", o.Dir)
	}
	bin, err := findPrograms(o.SCIONBin)
	if err != nil {
		return err
	}
	if len(o.Topology.Links) == 0 {
		return fmt.Errorf("export to containerlab: topology %s has no links", o.Topology.Name)
	}
	p, cables, err := labPlan(o.Topology)
	if err != nil {
		return err
	}
	found, err := discover(o.Topology, bestSetSize)
	if err != nil {
		return fmt.Errorf("export to containerlab: %w", err)
	}
	g := generator{
		dir: filepath.Join(o.Dir, "config"), plan: p, bfd: cmp.Or(o.BFD, defaultBFD), pki: bin.pki,
		at: labConfig, segments: wanted(found.surveys(o.Topology, bestSetSize)),
	}
	if err := g.run(ctx); err != nil {
		return err
	}
	if err := writeLabFiles(o, p, cables); err != nil {
		return fmt.Errorf("export to containerlab: %w", err)
	}
	for _, program := range []string{bin.router, bin.control, o.Braid} {
		to := filepath.Join(o.Dir, "bin", filepath.Base(program))
		_, err := copyFile(program, to, 0)
		if err == nil {
			err = os.Chmod(to, 0o755)
		}
		if err != nil {
			return fmt.Errorf("export to containerlab: copy a program: %w", err)
		}
	}
	return nil
}

// cable is a link of the lab. MTU is in bytes of an IP packet.
type cable struct {
	A, B cableEnd
	MTU  int
}

type cableEnd struct {
	Interface pathsel.Interface
	Node      string
	Device    string
	Address   netip.Prefix
	// TC are arguments of tc(8) that give the device the properties of the link in this direction.
	TC []string
}

// labAS is an AS of the lab.
type labAS struct {
	IA      pathsel.IA
	Node    string
	Host    netip.Addr
	Folder  string // of its configuration
	Routers []string
	Ends    []cableEnd
}

// labPlan assigns addresses. Those of hosts are on the loopback device of their container.
func labPlan(t Topology) (plan, []cable, error) {
	t = withoutIPv6(t)
	p, err := makePlan(t, labHosts, 0)
	if err != nil {
		return plan{}, nil, fmt.Errorf("export to containerlab: %w", err)
	}
	devices := map[pathsel.IA]int{}
	cables := make([]cable, len(t.Links))
	ends := map[pathsel.Interface]*cableEnd{}
	ip := labLinks.Addr()
	for i, l := range t.Links {
		near := ip.Next()
		far := near.Next()
		for _, e := range []struct {
			end *cableEnd
			at  pathsel.Interface
			ip  netip.Addr
		}{{&cables[i].A, l.A.Interface, near}, {&cables[i].B, l.B.Interface, far}} {
			devices[e.at.IA]++
			device := fmt.Sprintf("eth%d", devices[e.at.IA])
			*e.end = cableEnd{
				e.at, nodeName(e.at.IA), device, netip.PrefixFrom(e.ip, 30), tcArgs(device, l),
			}
			ends[e.at] = e.end
		}
		cables[i].MTU = l.MTU + linkHeaders
		ip = far.Next().Next()
	}
	for i := range p.ases {
		for j := range p.ases[i].routers {
			for k := range p.ases[i].routers[j].interfaces {
				x := &p.ases[i].routers[j].interfaces[k]
				own := ends[pathsel.Interface{IA: p.ases[i].IA, ID: x.id}]
				x.local = netip.AddrPortFrom(own.Address.Addr(), labLinkPort)
				x.remote = netip.AddrPortFrom(ends[x.neighbor].Address.Addr(), labLinkPort)
			}
		}
	}
	return p, cables, nil
}

// nodeName is the AS as a host name.
func nodeName(ia pathsel.IA) string {
	return "as" + strings.ReplaceAll(ia.String(), ":", "-")
}

// tcArgs returns the arguments of the tc commands that shape a device: netem delays and loses
// packets, and tbf inside it has rate and queue.
func tcArgs(device string, l Link) (args []string) {
	c := l.Config
	if c.Delay == 0 && c.Jitter == 0 && c.Loss == 0 && c.Rate == 0 {
		return nil
	}
	// The limit is in packets that are under way, and larger than the link needs.
	root := fmt.Sprintf("qdisc replace dev %s root handle 1: netem limit 100000", device)
	if c.Delay > 0 || c.Jitter > 0 {
		// netem varies the delay in both directions; the emulator adds between 0 and the jitter.
		root += fmt.Sprintf(" delay %dus", (c.Delay + c.Jitter/2).Microseconds())
		if c.Jitter > 0 {
			root += fmt.Sprintf(" %dus", (c.Jitter / 2).Microseconds())
		}
	}
	if c.Loss > 0 {
		root += fmt.Sprintf(" loss %g%%", 100*c.Loss)
	}
	args = append(args, root)
	if c.Rate > 0 {
		bytes, wait := c.QueueLimit()
		if bytes == 0 {
			bytes = int(float64(c.Rate) / 8 * wait.Seconds())
		}
		packet := l.MTU + linkHeaders
		burst, limit := labBurst, max(bytes, packet)
		if c.Police { // the queue is the bucket, and no more than a packet waits
			burst, limit = limit, packet
		}
		args = append(args, fmt.Sprintf(
			"qdisc replace dev %s parent 1:1 handle 10: tbf rate %dbit burst %db limit %db",
			device, c.Rate, burst, limit))
	}
	return args
}

// linkHeaders are those of the underlay around a SCION packet: IPv4 and UDP.
const linkHeaders = 28

// labName is the topology's name as part of a container's.
func labName(s string) string {
	s = regexp.MustCompile("[^a-z0-9-]").ReplaceAllString(strings.ToLower(s), "-")
	s = cmp.Or(strings.Trim(s, "-"), "lab")
	return s[:min(len(s), maxLabNode)]
}

// writeLabFiles fills in the templates: those of the lab once, start for each AS.
func writeLabFiles(o ContainerlabOptions, p plan, cables []cable) error {
	t := template.Must(template.New("").Funcs(template.FuncMap{
		"list": func(ends ...cableEnd) []cableEnd { return ends },
		"last": func(ases []labAS) int { return len(ases) - 1 },
	}).ParseFS(containerlabFiles, "containerlab/*"))
	write := func(template, name string, mode fs.FileMode, data any) error {
		f, err := os.OpenFile(filepath.Join(o.Dir, filepath.FromSlash(name)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		return errors.Join(t.ExecuteTemplate(f, template, data), f.Close())
	}
	var ases []labAS
	for _, a := range p.ases {
		as := labAS{IA: a.IA, Node: nodeName(a.IA), Host: a.host, Folder: a.folder}
		for _, r := range a.routers {
			as.Routers = append(as.Routers, r.name)
		}
		for _, c := range cables {
			for _, e := range []cableEnd{c.A, c.B} {
				if e.Interface.IA == a.IA {
					as.Ends = append(as.Ends, e)
				}
			}
		}
		ases = append(ases, as)
		if err := write("start", "config/"+a.folder+"/start", 0o755, as); err != nil {
			return err
		}
	}
	name := labName(o.Topology.Name)
	data := map[string]any{"Name": name, "Image": labImageName, "ASes": ases, "Cables": cables, "Config": labConfig}
	return errors.Join(
		write("clab.yml", name+".clab.yml", 0o644, data), write("lab", "lab", 0o755, data),
		write("README.md", "README.md", 0o644, data), write("Dockerfile", "Dockerfile", 0o644, data),
	)
}
