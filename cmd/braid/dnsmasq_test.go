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
	"testing"
)

// resolveAt has the programs on a host ask the name server, and look for short names in the domain.
// `ip netns exec` shows them this file as /etc/resolv.conf.
func (h *localHost) resolveAt(t *testing.T, server, domain string) {
	t.Helper()
	dir := filepath.Join("/etc/netns", h.space)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir); _ = os.Remove("/etc/netns") })
	if err := os.WriteFile(filepath.Join(dir, "resolv.conf"), []byte("nameserver "+server+"\nsearch "+domain+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A host without SCION configuration finds the stock control service of its AS through a real dnsmasq,
// in each way that this knows.
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
	state := host.testbed(t, dir)
	api := controlServiceAPI(t, state.ASes[0].ConfigDir)
	ip, port := api.Addr().String(), strconv.Itoa(int(api.Port()))

	const service = "_sciondiscovery._tcp.site.example"
	address := "--host-record=control.site.example," + ip
	for from, options := range map[string][]string{
		"DHCP": {
			"--port=0", "--dhcp-range=10.99.0.0,static,255.255.255.0", "--dhcp-leasefile=" + filepath.Join(dir, "leases"),
			"--dhcp-option=vi-encap:55324,1," + ip, fmt.Sprintf("--dhcp-option=vi-encap:55324,2,%02x:%02x", api.Port()>>8, api.Port()&255),
		},
		"DNS SRV":   {address, "--srv-host=" + service + ",control.site.example," + port},
		"DNS-SD":    {address, "--ptr-record=" + service + ",x." + service, "--srv-host=x." + service + ",control.site.example," + port},
		"DNS NAPTR": {address, "--naptr-record=site.example,1,1,A,x-sciondiscovery:tcp,,control.site.example", "--txt-record=site.example,x-sciondiscovery=" + port},
	} {
		t.Run(from, func(t *testing.T) {
			background(t, server.run(t, exec.Command(program, append([]string{
				"--keep-in-foreground", "--log-facility=-", "--conf-file=/dev/null", "--pid-file", "--user=root",
				"--no-hosts", "--no-resolv", "--local=/example/", "--listen-address=" + server.ip, "--bind-interfaces",
			}, options...)...)))
			var got bootstrapped
			soon(t, "the discovery server", func() bool {
				out, err := host.run(t, braid(t, t.TempDir(), "bootstrap", "--dry-run", "--json")).Output()
				return err == nil && json.Unmarshal(out, &got) == nil
			})
			if got.From != from || got.IA != state.ASes[0].IA.String() || len(got.TRCs) != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
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
