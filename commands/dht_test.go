package commands

import (
	"strings"
	"testing"
)

func TestDHTFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, tt := range []struct {
		code int
		says string
		args []string
	}{
		{2, "--listen", nil},
		{2, "arguments", []string{"x"}},
		{2, "want IP:port", []string{"--listen", "name:1"}},
		{2, "one node on IPv4", []string{"--listen", "127.0.0.1:0", "--listen", "127.0.0.2:0"}},
		{2, "one node on IPv4", []string{"--listen", "127.0.0.1:0", "--listen", "[::1]:0", "--listen", "127.0.0.2:0"}},
		{2, "--dht-node", []string{"--listen", "127.0.0.1:0", "--dht-node", "127.0.0.1"}},
		{2, "no node can have", []string{"--listen", "127.0.0.1:0", "--dht-node", "0.0.0.0:1"}},
		{2, "one on IP", []string{"--listen", "127.0.0.1:0", "--publish", "key"}},
		{2, "64 hex", []string{"--listen", "127.0.0.1:0", "--dht-item", "abc"}},
		{1, "topology.json", []string{"--listen", "1-ff00:0:110,[127.0.0.1]:0", "--config-dir", dir}},
	} {
		if code, _, said := ends(t, dir, append([]string{"dht"}, tt.args...)...); code != tt.code || !strings.Contains(said, tt.says) {
			t.Errorf("%v: exit code %d, %s", tt.args, code, said)
		}
	}
}
