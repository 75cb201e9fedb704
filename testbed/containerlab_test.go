package testbed

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"braid/testbed/linkemu"
)

// lab is a topology file of containerlab.
type lab struct {
	Name     string
	Topology struct {
		Defaults struct{ Kind, Image, Cmd string }
		Nodes    map[string]struct{ Binds, Exec []string }
		Links    []struct {
			Endpoints []string
			MTU       int
		}
	}
}

// What containerlab's schema says of a topology file, as far as we use it: unknown keys of a node
// are refused, endpoints are node:device and unique, lists are not empty.
func checkLab(t *testing.T, file string) lab {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	var l lab
	if err := d.Decode(&l); err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
	if !name.MatchString(l.Name) || l.Topology.Defaults.Kind != "linux" || l.Topology.Defaults.Image == "" {
		t.Errorf("%+v", l)
	}
	ends := map[string]bool{}
	for _, c := range l.Topology.Links {
		if len(c.Endpoints) != 2 || c.MTU < 1280+linkHeaders || c.MTU > 65535 {
			t.Errorf("link %+v", c)
		}
		for _, e := range c.Endpoints {
			node, device, ok := strings.Cut(e, ":")
			if _, known := l.Topology.Nodes[node]; !ok || !known || ends[e] || !regexp.MustCompile(`^eth[1-9][0-9]*$`).MatchString(device) {
				t.Errorf("end %q", e)
			}
			ends[e] = true
		}
	}
	for n, node := range l.Topology.Nodes {
		if !name.MatchString(n) || len(n) > 63 || len(node.Binds) != 1 || len(node.Exec) < 2 {
			t.Errorf("node %s: %+v", n, node)
			continue
		}
		src, dst, _ := strings.Cut(node.Binds[0], ":")
		if st, err := os.Stat(filepath.Join(filepath.Dir(file), src)); err != nil || !st.IsDir() || dst != labConfig {
			t.Errorf("node %s mounts %s", n, node.Binds[0])
		}
		if last := node.Exec[len(node.Exec)-1]; last != "sh /etc/scion/start" {
			t.Errorf("node %s ends with %q", n, last)
		}
	}
	return l
}

func TestExportContainerlab(t *testing.T) {
	topo, err := ShippedTopology("unequal")
	if err != nil {
		t.Fatal(err)
	}
	braid := filepath.Join(t.TempDir(), "braid")
	if err := os.WriteFile(braid, []byte("a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "lab")
	o := ContainerlabOptions{Topology: topo, Dir: dir, Braid: braid, SCIONBin: scionBin, BFD: -1}
	if err := ExportContainerlab(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	l := checkLab(t, filepath.Join(dir, "unequal.clab.yml"))
	if len(l.Topology.Nodes) != len(topo.ASes) || len(l.Topology.Links) != len(topo.Links) {
		t.Errorf("%d nodes, %d links", len(l.Topology.Nodes), len(l.Topology.Links))
	}
	for _, f := range []string{"README.md", "Dockerfile", "bin/router", "bin/control", "bin/braid"} {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			t.Error(err)
		}
	}
	// Nothing of this machine is in what goes to another; the configuration is where it is mounted.
	err = filepath.WalkDir(filepath.Join(dir, "config"), func(p string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		if err == nil && (strings.Contains(string(b), dir) || strings.Contains(string(b), "127.")) {
			t.Errorf("%s names a place or an address of this machine", p)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	toml, err := os.ReadFile(filepath.Join(dir, "config", "ISD1", "ASff00_0_110", "cs-1.toml"))
	if err != nil || !strings.Contains(string(toml), "config_dir = '/etc/scion'") || !strings.Contains(string(toml), "'/etc/scion/propagation.yml'") {
		t.Errorf("%v: %s", err, toml)
	}
	for _, script := range []string{filepath.Join(dir, "lab"), filepath.Join(dir, "config", "ISD1", "ASff00_0_110", "start")} {
		if out, err := exec.Command("sh", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", script, err, out)
		}
	}
	driveLab(t, dir, topo)
	if err := ExportContainerlab(t.Context(), o); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("into a directory with a lab: %v", err)
	}
	o.Dir, o.Topology.Links = t.TempDir(), nil
	if err := ExportContainerlab(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no links") {
		t.Errorf("without links: %v", err)
	}
}

// driveLab runs the lab's script with a docker that says what it is asked for.
func driveLab(t *testing.T, dir string, topo Topology) {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte("#!/bin/sh\necho \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	l := topo.Links[0]
	at, node := l.A.Interface.String(), "clab-unequal-"+nodeName(l.A.Interface.IA)
	for _, tt := range []struct {
		args []string
		want string
		code int
	}{
		{[]string{"link", at, "down"}, "exec " + node + " tc qdisc replace dev eth1 root handle 1: netem loss 100%", 0},
		{[]string{"link", at, "delay", "80ms"}, "exec " + node + " tc qdisc change dev eth1 root handle 1: netem limit 100000 delay 80ms", 0},
		{[]string{"link", at, "up"}, "exec " + node + " tc " + strings.Join(tcArgs("eth1", l), "\nexec "+node+" tc "), 0},
		{[]string{"rate", at, "5mbit"}, "exec " + node + " tc qdisc change dev eth1 parent 1:1 handle 10: tbf rate 5mbit burst 32kb limit 256kb", 0},
		{[]string{"braid", l.A.Interface.IA.String(), "paths", "1-1"}, "exec -i " + node + " braid paths 1-1 --config-dir /etc/scion", 0},
		{[]string{"link", "1-ff00:0:999#1", "down"}, "", 2},
		{[]string{"rate", l.A.Interface.IA.String() + "#99", "1mbit"}, "", 2},
		{nil, "", 2},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		c := exec.CommandContext(ctx, "sh", append([]string{filepath.Join(dir, "lab")}, tt.args...)...)
		c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := c.Output()
		cancel()
		if got := strings.TrimSpace(string(out)); got != strings.TrimSpace(tt.want) || c.ProcessState.ExitCode() != tt.code {
			t.Errorf("lab %q: %q, %v, want %q, %d", tt.args, got, err, tt.want, tt.code)
		}
	}
}

// Addresses fit together for every shipped topology: what one router sends to is where the other
// one listens.
func TestLabPlan(t *testing.T) {
	for _, name := range Shipped() {
		topo, err := ShippedTopology(name)
		if err != nil {
			t.Fatal(err)
		}
		p, cables, err := labPlan(topo)
		if err != nil {
			t.Fatal(err)
		}
		local, remote := map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}
		for _, a := range p.ases {
			if !labHosts.Contains(a.host) {
				t.Errorf("%s: host %s", name, a.host)
			}
			for _, r := range a.routers {
				for _, i := range r.interfaces {
					if local[i.local] || !labLinks.Contains(i.local.Addr()) {
						t.Errorf("%s: %s twice, or of no link", name, i.local)
					}
					local[i.local], remote[i.remote] = true, true
				}
			}
		}
		if len(local) != 2*len(topo.Links) || len(cables) != len(topo.Links) {
			t.Errorf("%s: %d ends of %d links", name, len(local), len(topo.Links))
		}
		for r := range remote {
			if !local[r] {
				t.Errorf("%s: nobody listens at %s", name, r)
			}
		}
		for _, c := range cables {
			if c.A.Address.Masked() != c.B.Address.Masked() || c.A.Address == c.B.Address {
				t.Errorf("%s: a cable with %s and %s", name, c.A.Address, c.B.Address)
			}
		}
	}
}

func TestTCArgs(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		c    linkemu.Config
		want []string
	}{
		{linkemu.Config{}, nil},
		{linkemu.Config{Delay: 10 * ms}, []string{"qdisc replace dev eth1 root handle 1: netem limit 100000 delay 10000us"}},
		{linkemu.Config{Delay: 10 * ms, Jitter: 4 * ms, Loss: .01}, []string{"qdisc replace dev eth1 root handle 1: netem limit 100000 delay 12000us 2000us loss 1%"}},
		{linkemu.Config{Rate: 10e6, QueueBytes: 20000}, []string{
			"qdisc replace dev eth1 root handle 1: netem limit 100000",
			"qdisc replace dev eth1 parent 1:1 handle 10: tbf rate 10000000bit burst 32768b limit 20000b",
		}},
		{linkemu.Config{Rate: 8e6, QueueTime: 50 * ms}, []string{
			"qdisc replace dev eth1 root handle 1: netem limit 100000",
			"qdisc replace dev eth1 parent 1:1 handle 10: tbf rate 8000000bit burst 32768b limit 50000b",
		}},
		{linkemu.Config{Rate: 8e6, QueueTime: 50 * ms, Police: true}, []string{
			"qdisc replace dev eth1 root handle 1: netem limit 100000",
			"qdisc replace dev eth1 parent 1:1 handle 10: tbf rate 8000000bit burst 50000b limit 1500b",
		}},
	} {
		if got := tcArgs("eth1", Link{MTU: 1472, Config: tt.c}); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %q, want %q", tt.c, got, tt.want)
		}
	}
}
