package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"braid/node/bootstrap"
)

// files shows files below /etc to the programs on a host, as `ip netns exec` does.
func (h *localHost) files(t *testing.T, texts map[string]string) {
	t.Helper()
	dir := filepath.Join("/etc/netns", h.space)
	t.Cleanup(func() { _ = os.RemoveAll(dir); _ = os.Remove("/etc/netns") })
	for name, text := range texts {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// resolveAt has the programs on a host ask the name server, and look for short names in the domain.
func (h *localHost) resolveAt(t *testing.T, server, domain string) {
	t.Helper()
	h.files(t, map[string]string{"resolv.conf": "nameserver " + server + "\nsearch " + domain + "\n"})
}

// A host without SCION configuration finds the stock control service of its AS through a real
// dnsmasq, in each way that this knows.
func TestBootstrapFromDnsmasq(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("dnsmasq")
	if err != nil {
		t.Skip("needs dnsmasq: run ./scripts/install-deps")
	}
	l := startLocalNet(t)
	host, server := l.host(t), l.host(t)
	host.resolveAt(t, server.ip, "site.example")
	dir := t.TempDir()
	state := host.testbed(t, dir, "")
	api := controlServiceAPI(t, state.ASes[0].ConfigDir)
	ip, port := api.Addr().String(), strconv.Itoa(int(api.Port()))

	const service = "_sciondiscovery._tcp.site.example"
	address := "--host-record=control.site.example," + ip
	for name, options := range map[string][]string{
		"DHCP, www-server": {
			"--port=0", "--dhcp-range=10.99.0.0,static,255.255.255.0", "--dhcp-leasefile=" + filepath.Join(dir, "leases"), "--dhcp-option=72," + ip,
		},
		"DHCP": {
			"--port=0", "--dhcp-range=10.99.0.0,static,255.255.255.0", "--dhcp-leasefile=" + filepath.Join(dir, "leases"),
			"--dhcp-option=vi-encap:55324,1," + ip, fmt.Sprintf("--dhcp-option=vi-encap:55324,2,%02x:%02x", api.Port()>>8, api.Port()&255),
		},
		"DNS SRV":   {address, "--srv-host=" + service + ",control.site.example," + port},
		"DNS-SD":    {address, "--ptr-record=" + service + ",x." + service, "--srv-host=x." + service + ",control.site.example," + port},
		"DNS NAPTR": {address, "--naptr-record=site.example,1,1,A,x-sciondiscovery:tcp,,control.site.example", "--txt-record=site.example,x-sciondiscovery=" + port},
	} {
		t.Run(name, func(t *testing.T) {
			background(t, server.run(t, exec.Command(program, append([]string{
				"--keep-in-foreground", "--log-facility=-", "--conf-file=/dev/null", "--pid-file", "--user=root",
				"--no-hosts", "--no-resolv", "--local=/example/", "--listen-address=" + server.ip, "--bind-interfaces",
			}, options...)...)))
			from, _, plain := strings.Cut(name, ",")
			if plain { // the option has no port
				host.forward(t, bootstrap.DefaultPort, api.Addr(), api)
			}
			got := host.discover(t)
			if got.From != from || got.IA != state.ASes[0].IA.String() || len(got.TRCs) != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A real mDNS responder, avahi, leads a host to the stock control service of its AS.
func TestBootstrapFromAvahi(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("avahi-daemon")
	if err != nil {
		t.Skip("needs avahi-daemon: run ./scripts/install-deps")
	}
	l := startLocalNet(t)
	host, server := l.host(t), l.host(t)
	dir := t.TempDir()
	state := host.testbed(t, dir, "")
	api := controlServiceAPI(t, state.ASes[0].ConfigDir)
	server.files(t, map[string]string{
		"avahi/avahi-daemon.conf": "[server]\nenable-dbus=no\nuse-ipv6=no\n",
		"avahi/hosts":             host.ip + " control.local\n",
		"avahi/services/scion.service": fmt.Sprintf("<service-group><name>SCION</name><service><type>_sciondiscovery._tcp</type>"+
			"<host-name>control.local</host-name><port>%d</port></service></service-group>", api.Port()),
	})
	// Its socket and its process ID would be those of the machine's own avahi.
	background(t, server.run(t, exec.Command("sh", "-c", "mount -t tmpfs none /run && exec "+program+" --no-drop-root --no-chroot --no-rlimits")))
	// An answer with the API's own address, on loopback, counts for nothing.
	host.forward(t, int(api.Port()), netip.MustParseAddr(host.ip), api)
	got := host.discover(t)
	if got.From != "mDNS" || got.IA != state.ASes[0].IA.String() || len(got.TRCs) != 1 {
		t.Errorf("%+v", got)
	}
}

// discover has braid look for a discovery server, until there is one.
func (h *localHost) discover(t *testing.T) (got bootstrapResult) {
	t.Helper()
	soon(t, "the discovery server", func() bool {
		out, err := h.run(t, braid(t, t.TempDir(), "bootstrap", "--dry-run", "--json")).Output()
		return err == nil && json.Unmarshal(out, &got) == nil
	})
	return got
}

// forward has connections of and to the host arrive at the API if they go to that port of that
// address.
func (h *localHost) forward(t *testing.T, port int, ip netip.Addr, api netip.AddrPort) {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("needs nft: run ./scripts/install-deps")
	}
	rules := "add table ip api;"
	for _, hook := range []string{"output", "prerouting"} {
		rules += fmt.Sprintf("add chain ip api %s { type nat hook %[1]s priority -100; }; add rule ip api %[1]s ip daddr %s tcp dport %d dnat to %s;", hook, ip, port, api)
	}
	if out, err := h.run(t, exec.Command("nft", rules)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "exec", h.space, "nft", "delete table ip api").Run() })
}

// controlServiceAPI reads where the control service of an AS serves its topology and TRCs.
func controlServiceAPI(t *testing.T, configDir string) netip.AddrPort {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(configDir, "cs*.toml"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)\[api\].*?addr *= *["']([^"']+)["']`).FindSubmatch(b)
	if found == nil {
		t.Fatalf("no address of the API in %s", b)
	}
	return netip.MustParseAddrPort(string(found[1]))
}
