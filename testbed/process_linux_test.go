package testbed

import (
	"os"
	"os/exec"
	"testing"
)

// A process may raise its priority twice, as one that runs scenarios twice does. Its children are
// as they would be without that. It happens in a process of its own, since nothing lowers it again.
func TestRaisedOnce(t *testing.T) {
	const alone = "BRAID_TEST_RAISES_PRIORITY"
	if os.Getenv(alone) == "" {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRaisedOnce$")
		c.Env = append(os.Environ(), alone+"=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	want, err := exec.Command("nice").Output()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := RaisePriority(); err != nil {
			t.Skipf("the priority cannot be raised: %v", err)
		}
	}
	l := NewLauncher()
	defer l.Close()
	file, err := os.Create(t.TempDir() + "/nice")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	child := exec.Command("nice")
	child.Stdout = file
	if err := l.Start(child); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file.Name()); err != nil || string(got) != string(want) {
		t.Errorf("nice level %s, want %s, %v", got, want, err)
	}
}
