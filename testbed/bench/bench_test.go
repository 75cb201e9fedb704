package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"braid/scionnet"
)

// asWorker is the first argument by which this test's program is a worker.
const asWorker = "be-a-worker"

// double is the job and the result of the worker.
type double struct{ Value int }

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asWorker {
		err := Work(context.Background(), os.Stdin, os.Stdout, func(_ context.Context, j double, report func(any) error) error {
			if j.Value < 0 {
				return errors.New("negative")
			}
			return report(double{2 * j.Value})
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestCall(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, core := range []int{AnyCore, 0} {
		var got double
		if err := Call(t.Context(), core, double{21}, &got, self, asWorker); err != nil || got.Value != 42 {
			t.Errorf("on core %d: %+v, %v", core, got, err)
		}
	}
	if err := Call(t.Context(), AnyCore, double{-1}, &double{}, self, asWorker); err == nil || !strings.Contains(err.Error(), "negative") {
		t.Errorf("the error does not say why the worker failed: %v", err)
	}
	if err := Call(t.Context(), AnyCore, nil, &double{}, "/nowhere/at-all"); err == nil {
		t.Error("a program that does not exist")
	}
}

func TestProcess(t *testing.T) {
	ready, err := Start(t.Context(), AnyCore, nil, "sh", "-c", `echo '{"event":"start"}'; echo '{"event":"ready","listen":["here"]}'; exec yes`)
	if err != nil {
		t.Fatal(err)
	}
	if addrs, err := ready.Ready(); err != nil || len(addrs) != 1 || addrs[0] != "here" {
		t.Errorf("%q, %v", addrs, err)
	}
	for ready.Usage().CPU == 0 {
		runtime.Gosched() // it writes as fast as its output is discarded
	}
	ready.Stop()
	ready.Stop()
	if ready.Usage().CPU <= 0 {
		t.Error("the CPU time of a process is forgotten when it ends")
	}
	mute, err := Start(t.Context(), AnyCore, nil, "sh", "-c", "echo why >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mute.Ready(); err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("the error does not have what the process said: %v", err)
	}
	addr, err := FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	deaf, err := Start(t.Context(), AnyCore, nil, "sleep", "60")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := deaf.Listens(ctx, addr); err == nil {
		t.Error("nobody listens, and it is not noticed")
	}
}

func TestFigures(t *testing.T) {
	length := func(s string) float64 { return float64(len(s)) }
	for _, tt := range []struct {
		runs   []string
		median float64
		extent [2]float64
	}{
		{[]string{"a"}, 1, [2]float64{1, 1}},
		{[]string{"ccc", "a"}, 2, [2]float64{1, 3}},
		{[]string{"ccc", "a", "bb", "ddddd"}, 2.5, [2]float64{1, 5}},
	} {
		if m, r := Median(tt.runs, length), Range(tt.runs, length); m != tt.median || r != tt.extent {
			t.Errorf("%q: median %v, range %v", tt.runs, m, r)
		}
	}
	if m := Median(nil, length); !math.IsNaN(m) {
		t.Errorf("the median of nothing is %v", m)
	}
}

func TestTurns(t *testing.T) {
	why := errors.New("why")
	for _, tt := range []struct {
		fails string // at this turn
		want  [][]string
	}{
		{"", [][]string{{"00", "10"}, {"01", "11"}}},
		{"11", [][]string{{"00", "10"}, {"01"}}},
		{"00", [][]string{nil, nil}},
	} {
		got := make([][]string, 2)
		err := Turns(t.Context(), 2, 2, func(run, i int) (string, error) {
			turn := fmt.Sprint(run) + fmt.Sprint(i)
			if turn == tt.fails {
				return "", why
			}
			return turn, nil
		}, func(i int, results []string) { got[i] = results })
		if !slices.EqualFunc(got, tt.want, slices.Equal) || errors.Is(err, why) != (tt.fails != "") {
			t.Errorf("fails at %q: %q, %v", tt.fails, got, err)
		}
	}
}

func TestTurnsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	got := make([][]int, 2)
	err := Turns(ctx, 2, 2, func(run, i int) (int, error) {
		if run == 1 {
			cancel()
			return 0, errors.New("killed")
		}
		return i, nil
	}, func(i int, results []int) { got[i] = results })
	if want := [][]int{{0}, {1}}; !errors.Is(err, context.Canceled) || !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestRows(t *testing.T) {
	why := errors.New("why")
	for asJSON, want := range map[bool]string{true: "{\"Value\":1}\n{\"Value\":22}\n", false: "  value\n      1\n     22\n"} {
		var b bytes.Buffer
		rows := NewRows(&b, asJSON, "value\t")
		for _, n := range []int{1, 22} {
			rows.Add(double{n}, "%s\t", strconv.Itoa(n))
		}
		if err := rows.End(why); !errors.Is(err, why) || b.String() != want {
			t.Errorf("JSON %v: %q, want %q; %v", asJSON, b.String(), want, err)
		}
	}
	if rows := NewRows(full{}, true, ""); rows.End(nil) != nil {
		t.Error("nothing was written")
	} else if rows.Add(1, ""); rows.End(nil) == nil {
		t.Error("an error of writing is lost")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestOneAS(t *testing.T) {
	dir := t.TempDir()
	if err := OneAS(dir, 1400); err != nil {
		t.Fatal(err)
	}
	h, err := scionnet.Open(t.Context(), scionnet.Config{ConfigDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	b, err := os.ReadFile(dir + "/topology.json")
	if err != nil || !json.Valid(b) {
		t.Errorf("%s, %v", b, err)
	}
}
