package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"braid/commands/program"
	"braid/pathsel"
	"braid/testbed"
)

// TestPathsLikeShowpaths compares with the scion tool on a real network: whatever key both have
// must mean the same.
func TestPathsLikeShowpaths(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	t.Parallel()
	n, src, dst := startNetwork(t, "two-paths")
	where := []string{"--config-dir", n.ConfigDir(src), "--local", n.HostIP(src).String()}

	theirs, err := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(scionBin), "scion"), append([]string{"showpaths", dst.String(), "--format", "json"}, where...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	paths := func(args ...string) (code int, out, said string) {
		return ends(t, t.TempDir(), slices.Concat([]string{"paths"}, args, where)...)
	}
	code, ours, said := paths(dst.String(), "--json", "--probe")
	if code != 0 {
		t.Fatal(said)
	}
	a, b := decode(t, theirs), decode(t, []byte(ours))
	compareKeys(t, "", a, b)

	soon(t, "two paths that are alive", func() bool { // within five seconds
		code, out, _ := paths(dst.String(), "--probe", "-e")
		return code == 0 && strings.Count(out, "Status: alive") == 2
	})
	if code, out, said := paths(src.String(), "--probe"); code != 0 || !strings.Contains(out, "local") {
		t.Errorf("own AS: %d: %s\n%s", code, said, out)
	}
	if code, out, said := paths("9-9", "--json"); code != program.Failed || decode(t, []byte(out))["destination"] != "9-9" {
		t.Errorf("AS that does not exist: %d: %s\n%s", code, said, out)
	}
	// The network does not have this link. Only the network knows that.
	dir, _, _ := strings.Cut(n.ConfigDir(src), "/gen/")
	err = testbed.ChangeLink(t.Context(), dir, testbed.LinkChange{
		Interface: pathsel.Interface{IA: src, ID: 99}, Direction: "both", Down: new(true),
	})
	if err == nil || !strings.Contains(err.Error(), "no link of topology two-paths ends at 1-ff00:0:110#99") {
		t.Errorf("a link that does not exist: %v", err)
	}
}

func decode(t *testing.T, b []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v in\n%s", err, b)
	}
	return v
}

func compareKeys(t *testing.T, at string, theirs, ours any) {
	t.Helper()
	switch a := theirs.(type) {
	case map[string]any:
		b, _ := ours.(map[string]any)
		for k, v := range a {
			switch k {
			case "discovery": // control services on the way: not about paths
			case "expiry":
				x, err1 := time.Parse(time.RFC3339, v.(string))
				y, err2 := time.Parse(time.RFC3339, b[k].(string))
				if d := x.Sub(y).Abs(); err1 != nil || err2 != nil || d > time.Minute {
					t.Errorf("%s.%s: %v and %v", at, k, v, b[k])
				}
			default:
				compareKeys(t, at+"."+k, v, b[k])
			}
		}
	case []any:
		b, _ := ours.([]any)
		if len(a) != len(b) {
			t.Errorf("%s: %d elements, braid has %d", at, len(a), len(b))
			return
		}
		for i := range a {
			compareKeys(t, at, a[i], b[i])
		}
	default:
		if !reflect.DeepEqual(theirs, ours) {
			t.Errorf("%s: scion has %v, braid %v", at, theirs, ours)
		}
	}
}
