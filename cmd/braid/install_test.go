package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What scripts/install installs runs anywhere, and is gone after --remove. What was there stays.
// With --testbed, braid-testbed finds the SCION programs.
func TestInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	t.Parallel()
	script, err := filepath.Abs("../../scripts/install")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../../bin/braid", "../../bin/braid-testbed", "../../bin/small/braid", "../../bin/scion/router"} {
		if _, err := os.Stat(name); err != nil {
			t.Skip("scripts/build has not run")
		}
	}
	dir := t.TempDir()
	prefix := filepath.Join(dir, "prefix")
	if err := os.MkdirAll(filepath.Join(prefix, "lib/mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(ok bool, name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if (err == nil) != ok {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
		return string(out)
	}
	run(true, script, "--prefix", prefix)
	braid := filepath.Join(prefix, "bin/braid")
	lab := filepath.Join(prefix, "bin/braid-testbed")
	if _, err := os.Stat(lab); err == nil {
		t.Error("braid-testbed is installed without --testbed")
	}
	run(true, script, "--testbed", "--prefix", "prefix") // over it
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(true, braid, "create", "file")
	run(true, braid, "verify", "file.torrent")
	t.Cleanup(func() { _ = exec.Command(lab, "down", "-d", filepath.Join(dir, "net")).Run() }) // after a failure
	run(true, lab, "up", "two-paths", "-d", "net")
	for name, command := range map[string]string{"braid-tracker.service": "tracker", "braid.service": "daemon"} {
		unit := filepath.Join(prefix, "lib/systemd/system", name)
		if b, err := os.ReadFile(unit); err != nil || !strings.Contains(string(b), "\nExecStart="+braid+" "+command) {
			t.Errorf("%v: the unit does not start %s: %s", err, braid, b)
		}
		if verify, err := exec.LookPath("systemd-analyze"); err != nil {
			t.Logf("systemd does not look at the unit: %v", err)
		} else {
			out, _ := exec.CommandContext(t.Context(), verify, "verify", "--man=no", unit).CombinedOutput()
			if strings.Contains(string(out), name) {
				t.Errorf("systemd-analyze: %s", out)
			}
		}
	}
	run(true, lab, "down", "-d", "net")
	run(true, script, "--remove", "--prefix", prefix)
	var left []string
	_ = filepath.WalkDir(prefix, func(name string, _ os.DirEntry, err error) error {
		left = append(left, strings.TrimPrefix(name, prefix))
		return err
	})
	if got := strings.Join(left, " "); got != " /lib /lib/mine" {
		t.Errorf("left behind: %s", got)
	}
	run(false, script, "--remove", "--prefix", prefix)
	run(false, script, "--prefix", filepath.Join(dir, "a b"))
	run(false, script, "--nonsense")
	run(false, script, "--testbed", "--remove", "--prefix", prefix)
}
