package testbed

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/scionproto/scion/pkg/private/util"
	"github.com/scionproto/scion/private/topology"
)

// scionBin is where scripts/build puts the SCION programs.
const scionBin = "../bin/scion"

func TestGenerate(t *testing.T) {
	bin, err := findPrograms(scionBin)
	if err != nil {
		t.Fatal(err)
	}
	topo := load(t, "diamond")
	p, err := makePlan(topo, netip.MustParsePrefix("127.99.7.0/24"), 0)
	if err != nil {
		t.Fatal(err)
	}
	g := generator{dir: filepath.Join(t.TempDir(), "gen"), plan: p, bfd: time.Second, pki: bin.pki}
	if err := g.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, a := range p.ases {
		dir := g.asDir(a)
		// As scionproto itself reads it.
		rt, err := topology.RWTopologyFromJSONFile(filepath.Join(dir, "topology.json"))
		if err != nil {
			t.Errorf("%s: %v", a.IA, err)
			continue
		}
		if rt.IsCore != a.Core || rt.MTU != a.MTU || len(rt.IFInfoMap) != len(a.routers[0].interfaces) {
			t.Errorf("%s: core %v, MTU %d, %d interfaces; want those of %+v", a.IA, rt.IsCore, rt.MTU, len(rt.IFInfoMap), a)
		}
		trcs, err := filepath.Glob(filepath.Join(dir, "certs", "ISD*.trc"))
		if err != nil || len(trcs) != 2 {
			t.Errorf("%s: trust root configurations %v, want one for each ISD", a.IA, trcs)
		}
		var info struct {
			Latency   map[string]struct{ Inter, Intra any }
			Bandwidth map[string]struct{ Inter int64 }
		}
		b, err := os.ReadFile(filepath.Join(dir, "staticInfoConfig.json"))
		if err == nil {
			err = json.Unmarshal(b, &info)
		}
		if err != nil || len(info.Latency) != len(rt.IFInfoMap) || len(info.Bandwidth) != len(rt.IFInfoMap) {
			t.Errorf("%s: static info %+v, %v", a.IA, info, err)
		}
	}
	// Again in the same place: a new start never sees the old databases.
	stale := filepath.Join(g.asDir(p.ases[0]), "cs-1.path.db")
	if err := os.WriteFile(stale, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := g.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); err == nil {
		t.Error("a database of the former network is still there")
	}
}

// The router reads the interval at which it watches links, as scionproto writes durations.
func TestBFDInterval(t *testing.T) {
	for _, want := range []time.Duration{time.Second, 2500 * time.Millisecond, 90 * time.Second} {
		router := generator{bfd: want}.routerTOML(routerPlan{}, "")["router"].(map[string]any)
		text := router["bfd"].(map[string]any)["desired_min_tx_interval"].(string)
		if got, err := util.ParseDuration(text); err != nil || got != want {
			t.Errorf("%v: %q, which is %v, %v", want, text, got, err)
		}
	}
}

func TestExpTime(t *testing.T) {
	for _, tt := range []struct {
		d    time.Duration
		want uint8
	}{
		{expirationUnit, 0}, {6 * time.Minute, 0}, {2 * expirationUnit, 1}, {6 * time.Hour, 63}, {24 * time.Hour, 255}, {48 * time.Hour, 255},
	} {
		if got := expTime(tt.d); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.d, got, tt.want)
		}
	}
}

func TestBeaconInterval(t *testing.T) {
	for _, tt := range []struct {
		segments int
		want     time.Duration
	}{{0, 2 * time.Second}, {24, 2 * time.Second}, {134, 3 * time.Second}, {10_000, 5 * time.Second}} {
		if got := (generator{segments: tt.segments}).beaconInterval(); got != tt.want {
			t.Errorf("%d segments: %v, want %v", tt.segments, got, tt.want)
		}
	}
}
