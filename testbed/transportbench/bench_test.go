package transportbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"braid/testbed/bench"
)

// asEnd is the first argument by which this test's program is one end of a transfer.
const asEnd = "be-one-end"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asEnd {
		if err := bench.Work(context.Background(), os.Stdin, os.Stdout, End); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestInsideOneAS runs every case that needs neither a router nor whole clients.
func TestInsideOneAS(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var rows []Row
	cfg := Config{End: []string{exe, asEnd}, Dir: t.TempDir(), Runs: 1, Bytes: 1 << 20, Progress: func(string) {}}
	for _, r := range Cases() {
		if r.Routers == "none" && !isDownload(r.Case) {
			cfg.Cases = append(cfg.Cases, r)
		}
	}
	if err := Run(t.Context(), cfg, func(r Row) { rows = append(rows, r) }); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range rows {
		names = append(names, fmt.Sprint(r.Case, " ", r.MTU))
		if r.Runs != 1 || r.MbitS <= 0 || r.CPU.Client <= 0 || r.CPU.Server <= 0 || r.CPU.Routers != 0 || r.Spread.MbitS[0] > r.MbitS || r.Spread.MbitS[1] < r.MbitS {
			t.Errorf("%+v", r)
		}
	}
	want := []string{"tcp 1400", "tls 1400", "quic-udp 1400", "quic-snet 1400", "quic-braid 1400", "raw 1400", "quic-braid 8400", "raw 8400"}
	if !slices.Equal(names, want) {
		t.Errorf("cases %q, want %q", names, want)
	}
}

// A run that is interrupted keeps the results that it has.
func TestInterrupted(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cfg := Config{
		End: []string{exe, asEnd}, Dir: t.TempDir(), Runs: 2, Bytes: 1 << 20, Cases: Cases()[:3],
		Progress: func(next string) {
			if strings.HasPrefix(next, "run 1 of 2: quic-udp") {
				cancel()
			}
		},
	}
	var rows []Row
	if err := Run(ctx, cfg, func(r Row) { rows = append(rows, r) }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	var names []string
	for _, r := range rows {
		names = append(names, r.Case)
		if r.Runs != 1 || r.MbitS <= 0 {
			t.Errorf("%+v", r)
		}
	}
	if want := []string{"tcp", "tls"}; !slices.Equal(names, want) {
		t.Errorf("cases %q, want %q", names, want)
	}
}

// The names in the JSON form are a promise.
func TestRowJSON(t *testing.T) {
	gap := 0.25
	row := Row{Case: "tcp", MTU: 1400, Routers: "none", Paths: 1, Seeds: 4, MbitS: 2, CPU: CPU{1, 2, 3}, Runs: 5}
	for _, tt := range []struct {
		gap  *float64
		json string
	}{{nil, ""}, {&gap, `"gap":0.25,`}} {
		row.Gap = tt.gap
		b, err := json.Marshal(row)
		want := `{"case":"tcp","mtu":1400,"routers":"none","paths":1,"seeds":4,"mbit_s":2,` + tt.json +
			`"cpu_s_per_gb":{"client":1,"server":2,"routers":3},"spread":{"mbit_s":[0,0],"cpu_s_per_gb_ends":[0,0]},"runs":5}`
		if err != nil || string(b) != want {
			t.Errorf("%s\nwant %s", b, want)
		}
	}
}

// Every number of paths and seeds has a row of its own.
func TestDownloads(t *testing.T) {
	var got []string
	for _, r := range WithSeeds(Cases(), []int{1, 4}) {
		if r.MTU == ordinaryMTU && r.Routers != "fast" && (isDownload(r.Case) || r.Case == "tcp") {
			got = append(got, fmt.Sprint(r.Case, " ", r.Routers, " ", r.Paths, " ", r.Seeds))
		}
	}
	want := []string{
		"tcp none 1 1",
		"aria2-tcp none 1 1", "aria2-tcp none 1 4", "braid-tcp none 1 1", "braid-tcp none 1 4",
		"braid-scion none 1 1", "braid-scion none 1 4",
		"braid-scion stock 1 1", "braid-scion stock 1 4", "braid-scion stock 2 1", "braid-scion stock 2 4",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestGap(t *testing.T) {
	for _, tt := range []struct {
		course []progress // T and Fetched
		want   float64
	}{
		{nil, 0},
		{[]progress{{"", 5, 10}}, 0}, // the time before the first payload
		{[]progress{{"", 1, 10}, {"", 2, 20}, {"", 9, 20}}, 1},                // the time after the last
		{[]progress{{"", 1, 10}, {"", 2, 10}, {"", 4, 20}, {"", 4.5, 30}}, 3}, // a report without news
		{[]progress{{"", 1, 0}, {"", 8, 10}, {"", 8.25, 20}, {"", 8.5, 30}}, 0.25},
	} {
		if got := gap(tt.course); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.course, got, tt.want)
		}
	}
}

func TestSummary(t *testing.T) {
	var samples []sample
	for _, v := range []float64{5, 1, 4, 2, 3} {
		samples = append(samples, sample{mbit: v, cpu: CPU{v, 10 * v, 100 * v}})
	}
	r := summary(Row{}, samples)
	if r.Runs != 5 || r.MbitS != 3 || r.CPU != (CPU{3, 30, 300}) || r.Spread.MbitS != [2]float64{1, 5} || r.Spread.CPU != [2]float64{11, 55} {
		t.Errorf("%+v", r)
	}
	if r := summary(Row{}, samples[:2]); r.MbitS != 3 || r.Gap != nil {
		t.Errorf("median of two: %v, gap %v", r.MbitS, r.Gap)
	}
	for i, gap := range []float64{3, 1, 2} {
		samples[i].gap = &gap
	}
	if r := summary(Row{}, samples); r.Gap == nil || *r.Gap != 2 {
		t.Errorf("gap %v", r.Gap)
	}
}
