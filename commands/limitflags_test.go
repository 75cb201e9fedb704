package commands

import (
	"strings"
	"testing"

	"braid/commands/program"
)

// What is wrong with a limit is said with the flag's name and the accepted forms.
func TestLimitFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--upload-rate", "fast"}, {"--download-rate", "0"}, {"--rate-limit", "10mbit"}, {"--rate-limit", "1-ff00:0:110#x=10mbit"},
		{"--rate-limit", "1#2=10mbit"}, {"--rate-limit", "1=1"}, {"--rate-limit", "1=10"}, {"--upload-rate", "9kbit"}, {"--upload-rate", "1000"},
	} {
		args := append([]string{"download", "magnet:?xt=urn:btih:0123456789012345678901234567890123456789", "--peer", "127.0.0.1:1"}, args...)
		code, _, said := ends(t, t.TempDir(), args...)
		if code != program.Usage || !strings.Contains(said, args[4]) || !strings.Contains(said, "bit") && !strings.Contains(said, "ISD-AS#IF") {
			t.Errorf("%v: exit code %d, %s", args, code, said)
		}
	}
}
