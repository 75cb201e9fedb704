package testbed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"braid/pathsel"
	"braid/testbed/linkemu"
)

const (
	coreAS = `{core: true, voting: true, authoritative: true, issuing: true}`
	leafAS = `{cert_issuer: 1-1}`
)

func TestParseTopology(t *testing.T) {
	topo, err := ParseTopology("dir/x.topo", strings.NewReader(`--- # comment
defaults: {mtu: 1400, dispatched_ports: "31000-32767"}
ASes:
  "1-ff00:0:110": {core: true, voting: true, authoritative: true, issuing: true, mtu: 1500, underlay: UDP/IPv6}
  "1-64512":
    cert_issuer: 1-ff00:0:110
    test_dispatcher: false
links:
  - {a: "1-ff00:0:110-A#3", b: "1-64512", linkAtoB: child, mtu: 1280, bw: 500,
     rate: 1.5mbit, delay: 30ms, jitter: 2ms, loss: 1%, queue: 64KiB}
  - {a: "1-ff00:0:110", b: "1-64512-B#1", linkAtoB: CHILD, underlay: UDP/IPv6, queue: 50ms}
`))
	if err != nil {
		t.Fatal(err)
	}
	core, leaf := pathsel.IA(1<<48|0xff00_0000_0110), pathsel.IA(1<<48|64512)
	if topo.Name != "x" || len(topo.ASes) != 2 || len(topo.Links) != 2 {
		t.Fatalf("parsed %+v", topo)
	}
	if want := (AS{IA: core, Core: true, Voting: true, Authoritative: true, Issuing: true, MTU: 1500, IPv6: true, Line: 4}); topo.ASes[0] != want {
		t.Errorf("core AS %+v, want %+v", topo.ASes[0], want)
	}
	if want := (AS{IA: leaf, CertIssuer: core, MTU: 1400, Line: 5}); topo.ASes[1] != want {
		t.Errorf("leaf AS %+v, want %+v", topo.ASes[1], want)
	}
	end := func(ia pathsel.IA, id uint64, router string) LinkEnd {
		return LinkEnd{Interface: pathsel.Interface{IA: ia, ID: id}, Router: router}
	}
	wants := []Link{
		{A: end(core, 3, "A"), B: end(leaf, 2, ""), Type: Child, MTU: 1280, Config: linkemu.Config{
			Rate: 1_500_000, Delay: 30 * time.Millisecond, Jitter: 2 * time.Millisecond, Loss: 0.01, QueueBytes: 64 << 10}},
		{A: end(core, 1, ""), B: end(leaf, 1, "B"), Type: Child, MTU: 1400, IPv6: true,
			Config: linkemu.Config{QueueTime: 50 * time.Millisecond}},
	}
	for i, want := range wants {
		if topo.Links[i] != want {
			t.Errorf("link %d: %+v, want %+v", i, topo.Links[i], want)
		}
	}
}

func TestParseTopologyErrors(t *testing.T) {
	// pair is a correct topology of two ASes with room for another key and a link.
	pair := func(link string) string {
		return "ASes:\n  1-1: " + coreAS + "\n  1-2: " + leafAS + "\nlinks:\n  - {a: 1-1#1, b: 1-2#1, linkAtoB: CHILD}\n" + link
	}
	for _, tt := range []struct{ name, in, want string }{
		{"empty", "", "x.topo:1: empty"},
		{"not YAML", "ASes:\n  - {", "x.topo:2: "},
		{"not a mapping", "[1, 2]", "x.topo:1: topology: want keys and values"},
		{"no ASes", "links: []", "x.topo:1: no ASes"},
		{"unknown section", "ASes: {}\nlinkz: []", `x.topo:2: topology: unknown key "linkz"; known are ASes, defaults, links`},
		{"ASes empty", "ASes: {}", "x.topo:1: ASes: want an ISD-AS"},
		{"bad ISD-AS", "ASes:\n  x: " + coreAS, `x.topo:2: ISD-AS "x"`},
		{"wildcard", "ASes:\n  1-0: " + coreAS, "x.topo:2: ISD-AS \"1-0\": 0 is a wildcard"},
		{"AS twice", "ASes:\n  1-1: " + coreAS + "\n  \"1-0:0:1\": " + coreAS, "x.topo:3: AS 1-1 twice, first in line 2"},
		{"AS key", "ASes:\n  1-1: {croe: true}", `x.topo:2: AS 1-1: unknown key "croe"`},
		{"key twice", "ASes:\n  1-1: {core: true, core: true}", `x.topo:2: AS 1-1: key "core" twice`},
		{"bad bool", "ASes:\n  1-1: {core: perhaps}", "x.topo:2: \"perhaps\": want true or false"},
		{"value is a list", "ASes:\n  1-1: {mtu: [1]}", "x.topo:2: want a single value"},
		{"value is an alias", "ASes:\n  1-1: {core: &a true, voting: *a}", "x.topo:2: want a single value"},
		{"AS mtu small", "ASes:\n  1-1: {mtu: 1000}", "x.topo:2: mtu \"1000\": must be a number from 1280 to 8488"},
		{"underlay", "ASes:\n  1-1: {underlay: IPX}", "x.topo:2: underlay \"IPX\""},
		{"no core", "ASes:\n  1-1: {issuing: true, voting: true}", "x.topo:2: ISD 1 has no core AS"},
		{"no authoritative", "ASes:\n  1-1: {core: true, issuing: true, voting: true}", "x.topo:2: ISD 1 has no authoritative AS"},
		{"no voting", "ASes:\n  1-1: {core: true, issuing: true, authoritative: true}", "x.topo:2: ISD 1 has no voting AS"},
		{"second ISD without core", "ASes:\n  1-1: " + coreAS + "\n  2-1: {issuing: true}", "x.topo:3: ISD 2 has no core AS"},
		{"authoritative leaf", "ASes:\n  1-1: {authoritative: true, issuing: true}", "x.topo:2: AS 1-1 is authoritative but not core"},
		{"no issuer", "ASes:\n  1-1: " + coreAS + "\n  1-2: {}", "x.topo:3: AS 1-2: no cert_issuer"},
		{"unknown issuer", "ASes:\n  1-1: " + coreAS + "\n  1-2: {cert_issuer: 1-3}", "x.topo:3: AS 1-2: cert_issuer 1-3 is not among the ASes"},
		{"issuer does not issue", "ASes:\n  1-1: " + coreAS + "\n  1-2: " + leafAS + "\n  1-3: {cert_issuer: 1-2}", "x.topo:4: AS 1-3: cert_issuer 1-2 is not issuing"},
		{"foreign issuer", "ASes:\n  1-1: " + coreAS + "\n  2-1: " + coreAS + "\n  1-3: {cert_issuer: 2-1}", "x.topo:4: AS 1-3: cert_issuer 2-1 is in another ISD"},
		{"links no list", "ASes:\n  1-1: " + coreAS + "\nlinks: 7", "x.topo:3: links: want a list"},
		{"link key", pair("  - {a: 1-1#2, b: 1-2#2, linkAtoB: CHILD, speed: 7}"), `x.topo:6: link: unknown key "speed"`},
		{"link end missing", pair("  - {a: 1-1#2, linkAtoB: CHILD}"), "x.topo:6: link: want a, b and linkAtoB"},
		{"unknown AS", pair("  - {a: 1-1#2, b: 1-3#2, linkAtoB: CHILD}"), `x.topo:6: link end "1-3#2": AS 1-3 is not among the ASes`},
		{"no letter", pair("  - {a: 1-1-#2, b: 1-2#2, linkAtoB: CHILD}"), `x.topo:6: link end "1-1-#2": no letter`},
		{"a number, as of a router without a letter", pair("  - {a: 1-1-1#2, b: 1-2#2, linkAtoB: CHILD}"), `x.topo:6: link end "1-1-1#2": no letter`},
		{"a name that leads out", pair("  - {a: 1-1-../x#2, b: 1-2#2, linkAtoB: CHILD}"), `x.topo:6: link end "1-1-../x#2": no letter`},
		{"interface 0", pair("  - {a: 1-1#0, b: 1-2#2, linkAtoB: CHILD}"), `x.topo:6: link end "1-1#0": interface must be`},
		{"interface large", pair("  - {a: 1-1#65536, b: 1-2#2, linkAtoB: CHILD}"), `x.topo:6: link end "1-1#65536": interface must be`},
		{"interface twice", pair("  - {a: 1-1-B#1, b: 1-2#2, linkAtoB: CHILD}"), "x.topo:6: interface 1-1#1 twice, first in line 5"},
		{"to itself", pair("  - {a: 1-1#2, b: 1-1#3, linkAtoB: CORE}"), "x.topo:6: link 1-1#2 to 1-1#3: both ends are in one AS"},
		{"link type", pair("  - {a: 1-1#2, b: 1-2#2, linkAtoB: SIBLING}"), "x.topo:6: linkAtoB \"SIBLING\": want CORE, CHILD or PEER"},
		{"core link to a leaf", pair("  - {a: 1-1#2, b: 1-2#2, linkAtoB: CORE}"), "x.topo:6: link 1-1#2 to 1-2#2: CORE, but 1-2 is not a core AS"},
		{"core link from a leaf", pair("  - {a: 1-2#2, b: 1-1#2, linkAtoB: CORE}"), "x.topo:6: link 1-2#2 to 1-1#2: CORE, but 1-2 is not a core AS"},
		{"core as child", pair("  - {a: 1-2#2, b: 1-1#2, linkAtoB: CHILD}"), "x.topo:6: link 1-2#2 to 1-1#2: CHILD, but 1-1 is a core AS"},
		{"child in another ISD", "ASes:\n  1-1: " + coreAS + "\n  2-1: " + coreAS + "\n  2-2: {cert_issuer: 2-1}\nlinks:\n  - {a: 1-1#1, b: 2-2#1, linkAtoB: CHILD}", "x.topo:6: link 1-1#1 to 2-2#1: CHILD, but the ASes are in different ISDs"},
		{"rate", pair("  - {a: 1-1#2, b: 1-2#2, linkAtoB: CHILD, rate: fast}"), `x.topo:6: rate "fast"`},
		{"delay", pair("  - {a: 1-1#2, b: 1-2#2, linkAtoB: CHILD, delay: -3ms}"), `x.topo:6: delay "-3ms"`},
		{"loss", pair("  - {a: 1-1#2, b: 1-2#2, linkAtoB: CHILD, loss: 101%}"), `x.topo:6: loss "101%"`},
		{"queue", pair("  - {a: 1-1#2, b: 1-2#2, linkAtoB: CHILD, queue: long}"), `x.topo:6: queue "long"`},
		{"policer without a rate", pair("  - {a: 1-1#2, b: 1-2#2, linkAtoB: CHILD, police: true}"), "x.topo:6: link 1-1#2 to 1-2#2: link: police needs a rate"},
		{"link mtu", pair("  - {a: 1-1#2, b: 1-2#2, linkAtoB: CHILD, mtu: 9000}"), `x.topo:6: mtu "9000"`},
		{"no parent", "ASes:\n  1-1: " + coreAS + "\n  1-2: " + leafAS, "x.topo:3: AS 1-2 has no parent"},
		{"below itself", "ASes:\n  1-1: " + coreAS + "\n  1-2: " + leafAS + "\n  1-3: " + leafAS + "\nlinks:\n  - {a: 1-2#1, b: 1-3#1, linkAtoB: CHILD}\n  - {a: 1-3#2, b: 1-2#2, linkAtoB: CHILD}", "x.topo:3: AS 1-2 is below no core AS"},
		{"core alone", "ASes:\n  1-1: " + coreAS + "\n  1-2: " + coreAS, "x.topo:3: core AS 1-2 is not connected"},
		{"too large", strings.Repeat("#", maxTopologyBytes+1), "x.topo: larger than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseTopology("x.topo", strings.NewReader(tt.in))
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error %v\nwant %s...", err, tt.want)
			}
		})
	}
}

func TestLoadTopology(t *testing.T) {
	for _, tt := range []struct {
		name               string
		ases, links, paths int
		src, dst           string
	}{
		{"two-paths", 2, 2, 2, "1-ff00:0:110", "1-ff00:0:111"},
		{"unequal", 2, 2, 2, "1-ff00:0:110", "1-ff00:0:111"},
		{"shared-bottleneck", 3, 5, 4, "1-ff00:0:111", "1-ff00:0:112"},
		{"diamond", 7, 10, 7, "1-ff00:0:111", "2-ff00:0:211"},
		{"tiny4", 3, 2, 1, "1-ff00:0:111", "1-ff00:0:112"},
		{"default", 16, 29, 4, "1-ff00:0:110", "1-ff00:0:121"},
	} {
		topo, err := LoadTopology(tt.name)
		if err != nil {
			t.Error(err)
			continue
		}
		if topo.Name != tt.name || len(topo.ASes) != tt.ases || len(topo.Links) != tt.links {
			t.Errorf("%s: name %s, %d ASes, %d links, want %d and %d", tt.name, topo.Name, len(topo.ASes), len(topo.Links), tt.ases, tt.links)
		}
		src, _ := pathsel.ParseIA(tt.src)
		dst, _ := pathsel.ParseIA(tt.dst)
		if got := mustImply(t, topo, bestSetSize)[Pair{src, dst}]; got != tt.paths {
			t.Errorf("%s: %d paths from %s to %s, want %d", tt.name, got, src, dst, tt.paths)
		}
	}
	if len(Shipped()) != 6 {
		t.Errorf("shipped are %v: test them all here", Shipped())
	}

	file := filepath.Join(t.TempDir(), "tiny4")
	if err := os.WriteFile(file, []byte("ASes:\n  1-1: "+coreAS), 0o644); err != nil {
		t.Fatal(err)
	}
	if topo, err := LoadTopology(file); err != nil || len(topo.ASes) != 1 {
		t.Errorf("a file: %+v, %v", topo, err)
	}
	if _, err := LoadTopology("no-such"); err == nil || !strings.Contains(err.Error(), "two-paths") {
		t.Errorf("error %v, want one that lists the shipped topologies", err)
	}
}

func FuzzParseTopology(f *testing.F) {
	for _, name := range Shipped() {
		b, err := shipped.ReadFile("topologies/" + name + ".topo")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Add("ASes:\n  1-1: " + coreAS + "\n  1-2: " + leafAS + "\nlinks:\n  - {a: 1-1, b: 1-2, linkAtoB: CHILD, rate: 1e9bit, delay: 1h}\n")
	f.Add("ASes: &a {x: *a}")
	f.Fuzz(func(t *testing.T, in string) {
		topo, err := ParseTopology("fuzz.topo", strings.NewReader(in))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "fuzz.topo:") {
				t.Fatalf("error without a place: %v", err)
			}
			return
		}
		if len(topo.ASes) == 0 {
			t.Fatal("accepted a topology without ASes")
		}
		seen := map[pathsel.Interface]bool{}
		for _, l := range topo.Links {
			if err := l.Config.Validate(); err != nil {
				t.Fatalf("accepted a link that the emulator refuses: %v", err)
			}
			for _, e := range []LinkEnd{l.A, l.B} {
				if e.Interface.ID == 0 || seen[e.Interface] {
					t.Fatalf("accepted interface %s, which is 0 or taken", e.Interface)
				}
				seen[e.Interface] = true
			}
		}
	})
}
