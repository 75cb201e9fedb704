package dhtbench

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"braid/dht/sim"
	"braid/scionnet"
	"braid/testbed/bench"
)

func TestMeasureAndDraw(t *testing.T) {
	var rows []Row
	for _, c := range Cases[:2] {
		for _, nodes := range []int{20, 40} {
			r, err := Measure(t.Context(), c, nodes, 1)
			if err != nil {
				t.Fatal(err)
			}
			if r.Found < 0.95 {
				t.Errorf("%s: %+v", c.Name, r)
			}
			rows = append(rows, r)
		}
	}
	f := Draw(rows)
	if len(f.Data.Rows) != 4 || !strings.Contains(f.Inline(), "churn") {
		t.Errorf("%d rows, or no line for a case", len(f.Data.Rows))
	}
}

// The axis names sizes, also if no power of ten is among them.
func TestDrawnSizes(t *testing.T) {
	rows := []Row{{Case: "calm", Result: sim.Result{Nodes: 200}}, {Case: "calm", Result: sim.Result{Nodes: 210}}, {Case: "calm", Result: sim.Result{Nodes: 800}}}
	drawn := Draw(rows).Inline()
	if !strings.Contains(drawn, ">200<") || !strings.Contains(drawn, ">800<") {
		t.Error("an axis without sizes")
	}
	if strings.Contains(drawn, ">210<") {
		t.Error("two sizes over each other")
	}
}

// In a small network, every node searches at some time. Nodes that have searched can be replaced.
func TestChurnOfFewNodes(t *testing.T) {
	dir := t.TempDir()
	if err := bench.OneAS(dir, 1400); err != nil {
		t.Fatal(err)
	}
	host, err := scionnet.Open(t.Context(), scionnet.Config{ConfigDir: dir, LocalIP: netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	cfg := OnNetwork(10)
	cfg.Torrents, cfg.Searches, cfg.Churn = 2, 60, 100
	cfg.Joining, cfg.Settling, cfg.Keeping, cfg.Searching = 100*time.Millisecond, 0, 0, 6*time.Second
	n := &Network{hosts: []*scionnet.Host{host}}
	if _, err := n.Measure(t.Context(), Case{"few", "", func(*sim.Config) {}}, cfg); err != nil {
		t.Error(err)
	}
}
