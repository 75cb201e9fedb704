package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"braid/pathsel"
	"braid/testbed"
)

// One of two paths to 1-ff00:0:112 is hidden: its control service registers the segment at
// 1-ff00:0:113, which tells members of the group only. The registry is an AS of its own, since a
// stock control service tells hosts of its own AS all segments in its database.
const hiddenTopology = `
ASes:
  "1-ff00:0:110": {core: true, voting: true, authoritative: true, issuing: true}
  "1-ff00:0:111": {cert_issuer: 1-ff00:0:110}
  "1-ff00:0:112": {cert_issuer: 1-ff00:0:110}
  "1-ff00:0:113": {cert_issuer: 1-ff00:0:110}
links:
  - {a: "1-ff00:0:110#1", b: "1-ff00:0:111#1", linkAtoB: CHILD}
  - {a: "1-ff00:0:110#2", b: "1-ff00:0:112#1", linkAtoB: CHILD}
  - {a: "1-ff00:0:110#3", b: "1-ff00:0:112#2", linkAtoB: CHILD}
  - {a: "1-ff00:0:110#4", b: "1-ff00:0:113#1", linkAtoB: CHILD}
`

const hiddenGroups = `
groups:
  ff00:0:110-1:
    owner: 1-ff00:0:110
    writers: [1-ff00:0:112]
    readers: [1-ff00:0:111]
    registries: [1-ff00:0:113]
registration_policy_per_interface:
  1: [public]
  2: [ff00:0:110-1]
`

// Through the stock SCION daemon braid downloads over ordinary paths, and over those of the hidden
// path groups that the daemon's configuration names.
func TestHiddenPaths(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	t.Parallel()
	topo, err := testbed.ParseTopology("hidden", strings.NewReader(hiddenTopology))
	if err != nil {
		t.Fatal(err)
	}
	core, from, to := topo.ASes[0].IA, topo.ASes[1].IA, topo.ASes[2].IA
	n, err := testbed.Start(t.Context(), testbed.Options{
		Topology: topo, Dir: t.TempDir(), HiddenPaths: hiddenGroups, Between: []pathsel.IA{core, from},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	dir := t.TempDir()
	data := randomFile(t, dir, 20, 1<<20)
	must(t, dir, "create", "--offline", "-o", "x.torrent", "file")
	seed := ready(t, dir, "seed", "x.torrent", "--json", "--dht", "off", "--config-dir", n.ConfigDir(to), "--listen", fmt.Sprintf("%s,[%s]:0", to, n.HostIP(to)))[0]

	t.Run("doctor", func(t *testing.T) {
		t.Parallel()
		daemon := startSCIOND(t, n.ConfigDir(from), "")
		// soonSays asks doctor until its lines begin as wanted: it gives up a question after two
		// seconds.
		soonSays := func(files string, want ...string) {
			t.Helper()
			var lines []string
			defer func() {
				if t.Failed() {
					t.Logf("doctor says %q", lines)
				}
			}()
			soon(t, fmt.Sprintf("%q", want), func() bool {
				_, out, said := ends(t, dir, "doctor", "--json", "--sciond", daemon, "--local", n.HostIP(from).String(), "--config-dir", files)
				var found struct {
					Findings []struct{ Check, Status, Found string }
				}
				if err := json.Unmarshal([]byte(out), &found); err != nil {
					t.Fatal(err, out, said)
				}
				lines = nil
				for _, f := range found.Findings {
					if f.Check == "trust roots" || f.Check == "core AS" {
						lines = append(lines, f.Status+": "+f.Found)
					}
				}
				return slices.EqualFunc(lines, want, strings.HasPrefix)
			})
		}
		alive := fmt.Sprintf("ok: 1 of 1 paths to %s work", core)
		files := n.ConfigDir(from)
		soonSays(files, "ok: TRC ISD1-B1-S1 in "+files+", valid until", alive)
		soonSays(t.TempDir(), "warning: TRCs and certificates were not checked: the daemon at "+daemon, alive)
		// Beside a TRC of another network with the same ISD number, the AS's own one is found, also
		// in PEM.
		files = t.TempDir()
		if err := os.Mkdir(filepath.Join(files, "certs"), 0o700); err != nil {
			t.Fatal(err)
		}
		own, err := os.ReadFile(filepath.Join(n.ConfigDir(from), "certs", "ISD1-B1-S1.trc"))
		if err != nil {
			t.Fatal(err)
		}
		if block, _ := pem.Decode(own); block == nil {
			own = pem.EncodeToMemory(&pem.Block{Type: "TRC", Bytes: own})
		}
		for name, b := range map[string][]byte{"own.trc": own, "a.trc": foreignTRC(t, "ISD1-B1-S1.trc"), "b.trc": foreignTRC(t, "ISD1-B1-S2.trc")} {
			if err := os.WriteFile(filepath.Join(files, "certs", name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		soonSays(files, "ok: TRC ISD1-B1-S1 in "+files, "warning: a.trc in "+files+" is not the TRC of ISD 1 that the control service has",
			"warning: b.trc in "+files+" is not the TRC", alive)
		foreign := fmt.Sprintf("%s,[%s]:31000", to, n.HostIP(from)) // no braid can listen there
		if _, out, _ := ends(t, dir, "doctor", "--sciond", daemon, "--listen", foreign); !strings.Contains(out, fmt.Sprintf("another AS: %s, not %s", from, to)) {
			t.Errorf("--listen in another AS:\n%s", out)
		}
	})
	for groups, want := range map[string]int{"": 1, filepath.Join(n.ConfigDir(from), "hidden.yml"): 2} {
		t.Run(fmt.Sprintf("%d paths", want), func(t *testing.T) {
			t.Parallel()
			daemon := startSCIOND(t, n.ConfigDir(from), groups)
			var seen listedPaths
			soon(t, "all paths", func() bool {
				_, out, _ := ends(t, dir, "paths", to.String(), "--json", "--sciond", daemon)
				seen = listedPaths{}
				_ = json.Unmarshal([]byte(out), &seen) // nothing while there is no path
				return len(seen.Paths) >= want
			})
			if len(seen.Paths) != want {
				t.Errorf("paths to %s: %+v, want %d", to, seen.Paths, want)
			}
			out := t.TempDir()
			download := []string{"download", filepath.Join(dir, "x.torrent"), "-o", out, "--dht", "off", "--peer", seed,
				"--sciond", daemon, "--local", n.HostIP(from).String()}
			for _, p := range seen.Paths {
				if !p.EPIC {
					t.Errorf("the path %s does not offer EPIC", p.Sequence)
				}
			}
			if want > 1 { // over the hidden path alone, and with EPIC
				download = append(download, "--epic", "--acl", fmt.Sprintf("- %s#1, +", to))
			}
			must(t, out, download...)
			if got, err := os.ReadFile(filepath.Join(out, "file")); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
}

// foreignTRC is one of the TRCs of ISD 1 that scionproto keeps for its own tests.
func foreignTRC(t *testing.T, name string) []byte {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/scionproto/scion").Output()
	if err != nil {
		t.Skipf("no source of scionproto: %v", err)
	}
	b, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "pkg/scrypto/cppki/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// startSCIOND starts the stock SCION daemon of an AS, and returns its address.
func startSCIOND(t *testing.T, configDir, groups string) string {
	t.Helper()
	dir := t.TempDir()
	address := "127.0.0.1:" + freeTCP(t)
	config := filepath.Join(dir, "sd.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
		general = {id = "sd", config_dir = %q}
		sd = {address = %q, hidden_path_groups = %q, query_interval = "1s"}
		trust_db = {connection = %q}
		path_db = {connection = %q}
	`, configDir, address, groups, filepath.Join(dir, "trust.db"), filepath.Join(dir, "path.db")), 0o600); err != nil {
		t.Fatal(err)
	}
	background(t, exec.Command(filepath.Join(os.Getenv(scionBin), "daemon"), "--config", config))
	soon(t, "the SCION daemon", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return address
}

// listedPaths is what braid paths --json prints.
type listedPaths struct {
	Paths []struct {
		Sequence string
		EPIC     bool
	}
}
