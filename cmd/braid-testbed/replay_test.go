package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"braid/commands/terminal"
	"braid/pathsel"
)

// recordTrace is what a selector made of two paths, of which the second was silent for a while.
func recordTrace(t testing.TB, name string, w io.Writer) {
	t.Helper()
	s, err := pathsel.New(name)
	if err != nil {
		t.Fatal(err)
	}
	dst, err := pathsel.ParseIA("1-ff00:0:110")
	if err != nil {
		t.Fatal(err)
	}
	var paths []pathsel.Path
	for i := range 2 {
		ifs := []pathsel.Interface{{IA: 1, ID: uint64(i + 1)}, {IA: dst, ID: uint64(i + 1)}}
		paths = append(paths, pathsel.Path{Fingerprint: pathsel.FingerprintOf(ifs), Dst: dst, Interfaces: ifs, MTU: 1400})
	}
	v := pathsel.View{Now: time.Unix(1e9, 0), MaxPaths: 2, Candidates: pathsel.Map("peer", paths, 2), Remaining: 1 << 30}
	for range 20 {
		plan := s.Decide(v)
		if err := pathsel.WriteStep(w, pathsel.Step{Selector: name, View: v, Plan: plan}); err != nil {
			t.Fatal(err)
		}
		v.Memory = plan.Memory
		v.Candidates = append([]pathsel.Candidate(nil), v.Candidates...)
		for _, d := range plan.Decisions {
			for i := range v.Candidates {
				if c := &v.Candidates[i]; c.Key == d.Key && d.Action == pathsel.Open {
					c.State, c.Since, c.Handshake = pathsel.Active, v.Now, 20*time.Millisecond
				}
			}
		}
		v.Now = v.Now.Add(200 * time.Millisecond)
	}
}

func TestReplay(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"trace", "trace.gz"} {
		var trace bytes.Buffer
		if name == "trace" {
			recordTrace(t, "all", &trace)
		} else {
			z := gzip.NewWriter(&trace)
			recordTrace(t, "all", z)
			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), trace.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (last replayEnd, out string) {
		t.Helper()
		code, out, stderr := ends(t, dir, append([]string{"replay", "--json"}, args...)...)
		if code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, stderr)
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Event != "end" || last.Steps != 20 || len(lines) != 1+last.Different {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return last, out
	}
	for _, name := range []string{"trace", "trace.gz"} {
		if e, _ := run(name, "--path-selection", "all"); e.Different != 0 || e.Recorded != e.Replayed || e.Recorded.Selected != 2 {
			t.Errorf("%s: the same selector decides differently: %+v", name, e)
		}
		if e, out := run(name, "--path-selection", "first"); e.Different == 0 || !strings.Contains(out, `"action":"close"`) || e.Replayed.Selector != "first" {
			t.Errorf("%s: %s", name, out)
		}
	}
	small, _ := os.Stat(filepath.Join(dir, "trace.gz"))
	large, _ := os.Stat(filepath.Join(dir, "trace"))
	if small.Size()*5 > large.Size() {
		t.Errorf("%d bytes compressed, %d not", small.Size(), large.Size())
	}
	for name, text := range map[string]string{"empty": "", "torn": `{"selector":"all","view":{"max_pa`, "other": "hello\n", "no.gz": "hello"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"empty"}, {"torn"}, {"other"}, {"no.gz"}, {"missing"}, {}, {"trace", "--path-selection", "luck"}} {
		if code, _, stderr := ends(t, dir, append([]string{"replay"}, args...)...); code == 0 || strings.Contains(stderr, "panic") {
			t.Errorf("%v: exit code %d: %s", args, code, stderr)
		}
	}
}

// Whatever a trace says, replaying it ends without a panic.
func FuzzReplay(f *testing.F) {
	for _, name := range []string{"all", "adaptive"} {
		var b bytes.Buffer
		recordTrace(f, name, &b)
		for line := range bytes.Lines(b.Bytes()) {
			f.Add(append(bytes.Clone(line), line...))
		}
	}
	f.Add([]byte(`{"view":{"max_paths":1,"candidates":[{"key":{},"state":"parked"}]}}`))
	f.Fuzz(func(t *testing.T, trace []byte) {
		for _, name := range []string{"adaptive", "slots", "all", "first"} {
			s, err := pathsel.New(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := replay(bytes.NewReader(trace), s, &terminal.Printer{W: io.Discard}, true); err != nil {
				_ = fmt.Sprint(err)
			}
		}
	})
}
