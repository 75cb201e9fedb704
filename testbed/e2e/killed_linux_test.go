package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"braid/testbed/scenario"
	"braid/units/await"
)

// Two runs of eight seconds each over TCP, which need no SCION. The second one lasts longer than a
// busy machine takes to kill it.
const twoRuns = `
about: what a runner that is killed leaves behind
topology: one-link
size: 10MB
takes: 8s
runs: 2
links:
  - {rate: 10mbit, delay: 1ms}
peers:
  - {name: seeder, as: "1-ff00:0:110", role: seed, transport: tcp}
  - {name: leecher, as: "1-ff00:0:111", role: leech, transport: tcp}
`

// kill -9 of the runner in the middle of its second run: nobody that it has started lives on, the
// same command begins with the second run, and what the first one gave stays. What lay in the
// temporary directory goes.
func TestKilledRunner(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a scenario")
	}
	t.Parallel()
	dir := t.TempDir()
	file, runs, temp := filepath.Join(dir, "killed.yaml"), filepath.Join(dir, "runs"), filepath.Join(dir, "temp")
	topology, err := os.ReadFile(filepath.Join("..", "scenarios", "one-link.topo"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{file: strings.Replace(twoRuns, "one-link", "one-link.topo", 1), filepath.Join(dir, "one-link.topo"): string(topology)} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(temp, 0o755); err != nil {
		t.Fatal(err)
	}
	command := func() *exec.Cmd {
		c := exec.Command(labProgram(t), "run", file, "-o", runs, "--json")
		c.Env = append(os.Environ(), "TMPDIR="+temp)
		return c
	}
	result := func(run int) (r scenario.Result, ok bool) {
		b, err := os.ReadFile(filepath.Join(runs, "killed", "default", strconv.Itoa(run), "result.json"))
		return r, err == nil && json.Unmarshal(b, &r) == nil
	}

	victim := command()
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	exists := func(names ...string) bool {
		_, err := os.Stat(filepath.Join(append([]string{runs}, names...)...))
		return err == nil
	}
	await.True(t, "the runner at work", func() bool { return exists("run.json") })
	// Before the second run: until this has ended, on a busy machine, that could be over.
	if out, err := command().CombinedOutput(); err == nil || !strings.Contains(string(out), "another braid") {
		t.Errorf("a second runner in the same directory: %v, %s", err, out)
	}
	var children []string
	await.True(t, "the second run with both peers", func() bool {
		children = childrenOf(victim.Process.Pid)
		return exists("killed", "default", "2", "leecher.log") && len(children) > 1
	})
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()
	for _, pid := range children {
		await.True(t, "the end of process "+pid+" after its runner", func() bool { return !alive(pid) })
	}
	first, ok := result(1)
	if _, done := result(2); !ok || done {
		t.Fatalf("killed too late: run 1 is done: %v, run 2: %v", ok, done)
	}
	if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) != 1 {
		t.Fatalf("what a killed runner leaves: %v", left)
	}

	out, err := command().Output()
	if err != nil {
		t.Fatalf("the same command again: %v", err)
	}
	var sum scenario.Summary
	if err := json.Unmarshal(out, &sum); err != nil || sum.Runs != 2 || !sum.Verified || sum.Failed != 0 {
		t.Errorf("%v: %s", err, out)
	}
	if again, _ := result(1); !again.Began.Equal(first.Began) {
		t.Error("the first run was run again")
	}
	if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) != 0 {
		t.Errorf("left in the temporary directory: %v", left)
	}
}

// childrenOf are the processes whose parent is one (proc(5), /proc/pid/stat).
func childrenOf(pid int) (children []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		if f := statOf(name); len(f) > 1 && f[1] == strconv.Itoa(pid) {
			children = append(children, filepath.Base(filepath.Dir(name)))
		}
	}
	slices.Sort(children)
	return children
}

// statOf are the fields of a stat file after the program's name: state, parent, ...
func statOf(name string) []string {
	b, _ := os.ReadFile(name)
	return strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
}

// alive tells whether a process runs; one that nobody has waited for yet does not.
func alive(pid string) bool {
	f := statOf(filepath.Join("/proc", pid, "stat"))
	return len(f) > 0 && f[0] != "Z"
}
