package commands

import (
	"strings"
	"testing"
)

// Each consequence has a line, which names the system or its cure.
func TestMissing(t *testing.T) {
	for _, tt := range []struct {
		goos   string
		sqlite bool
		want   []string // a part of each line
	}{
		{"linux", true, nil},
		{"linux", false, []string{"--sciond"}},
		{"darwin", true, []string{"on darwin packets"}},
		{"freebsd", false, []string{"--sciond", "on freebsd packets"}},
		{"windows", true, []string{"on windows packets", "on windows files are not locked"}},
		{"plan9", false, []string{"--sciond", "on plan9 packets", "on plan9 files are not locked"}},
	} {
		got := missing(tt.goos, tt.sqlite)
		if len(got) != len(tt.want) {
			t.Errorf("%s, SQLite %v: %q", tt.goos, tt.sqlite, got)
			continue
		}
		for i, part := range tt.want {
			if !strings.Contains(got[i], part) || strings.Contains(got[i], "\n") {
				t.Errorf("%s, SQLite %v: %q lacks %q", tt.goos, tt.sqlite, got[i], part)
			}
		}
	}
}

// Commands that transfer nothing say nothing, wherever they run.
func TestMissingIsSaidBeforeTransfers(t *testing.T) {
	for _, tt := range []struct {
		args string
		says bool
	}{{"version", false}, {"info nowhere.torrent", false}, {"download nowhere.torrent", !hasSQLite()}} {
		_, _, said := ends(t, t.TempDir(), strings.Fields(tt.args)...)
		if says := strings.Contains(said, "built without cgo"); says != tt.says {
			t.Errorf("braid %s says %q", tt.args, said)
		}
	}
}
