package commands

import (
	"strings"
	"testing"
)

func TestLocalDiscoveryFlag(t *testing.T) {
	dir := t.TempDir()
	for says, flags := range map[string][]string{
		"want on or off":              {"--lsd", "yes", "--peer", "127.0.0.1:1"},
		"--transport scion forbids":   {"--lsd", "on", "--transport", "scion", "--peer", "1-ff00:0:110,[127.0.0.1]:1"},
		"local network with --lsd on": nil, // who else could know peers
	} {
		magnet := "magnet:?xt=urn:btih:" + strings.Repeat("0", 40)
		code, _, said := ends(t, dir, append([]string{"download", magnet, "--dht", "off"}, flags...)...)
		if code != 2 || !strings.Contains(said, says) {
			t.Errorf("%v: exit code %d, %s", flags, code, said)
		}
	}
}
