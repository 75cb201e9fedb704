package commands

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Commands that run beside each other in one process have their own directories, variables, output
// and settings.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			dir, name := t.TempDir(), fmt.Sprintf("file-%d", i)
			if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte(name), 10_000), 0o600); err != nil {
				t.Error(err)
				return
			}
			var out, said bytes.Buffer
			env := testEnv(dir, &out, &said)
			for _, args := range []string{"create " + name, "info " + name + ".torrent", "verify " + name + ".torrent", "help download"} {
				if code := Run(t.Context(), env, strings.Fields(args)); code != 0 {
					t.Errorf("braid %s: exit code %d: %s", args, code, said.String())
				}
			}
			for j := range 4 {
				if has := strings.Contains(out.String(), fmt.Sprintf("file-%d", j)); has != (i == j) {
					t.Errorf("the output of %s names file-%d: %t", name, j, has)
				}
			}
		})
	}
	all.Wait()
}
