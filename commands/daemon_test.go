package commands

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/commands/program"
	"braid/commands/terminal"
	v1 "braid/node/web/v1"
)

func TestChoose(t *testing.T) {
	all := []v1.Torrent{
		{Number: 1, Name: "a", InfoHash: "1234" + strings.Repeat("0", 36)}, {Number: 2, Name: "b", InfoHash: "1235" + strings.Repeat("0", 36)},
		{Number: 3, Name: "b", InfoHash: "12350" + strings.Repeat("1", 35)}, {Number: 12, Name: "1", InfoHash: "ffff" + strings.Repeat("0", 36)},
	}
	for _, tt := range []struct {
		name string
		want int
		says string
	}{
		{"1", 1, ""}, {"12", 12, ""}, {"a", 1, ""}, {"1234", 1, ""}, {"FFFF", 12, ""}, {"123500", 2, ""},
		{"b", 0, "means 2 torrents"}, {"1235", 0, "means 2 torrents"}, {"123", 0, "no torrent"}, {"", 0, "no torrent"}, {"c", 0, "no torrent"},
	} {
		got, err := choose(all, tt.name)
		if got.Number != tt.want || tt.says == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: %d, %v", tt.name, got.Number, err)
		}
	}
}

// The table fits 80 columns with the longest figures, and 42 with the most important ones. Names
// keep some columns.
func TestTorrentTable(t *testing.T) {
	left := 86399.
	all := []v1.Torrent{
		{Number: 9999, Name: strings.Repeat("name ", 20), State: "downloading", SizeBytes: 1023 << 30, HaveBytes: 1000 << 30, DownMbitS: 999.9, UpMbitS: 999.9, Ratio: 99.99, LeftS: &left},
		{Number: 1, InfoHash: "ab", State: "metadata"},
	}
	for _, columns := range []int{80, 42} {
		var text []string
		for _, l := range torrentTable(all, columns) {
			text = append(text, lineText(l))
			if n := terminal.ColumnsOfText(text[len(text)-1]); n > columns {
				t.Errorf("%d columns: %s", n, text[len(text)-1])
			}
		}
		if len(text) != 3 || !strings.Contains(text[2], " ab") || !strings.Contains(text[0], "Name") {
			t.Errorf("%s", strings.Join(text, "\n"))
		}
	}
}

// The error of a missing home directory is right for commands without --state, too.
func TestNoHome(t *testing.T) {
	env := testEnv("", nil, nil)
	env.Getenv = func(string) string { return "" }
	if dir, err := env.bootstrapDir(); err == nil || !strings.Contains(err.Error(), "set HOME") {
		t.Errorf("%q, %v", dir, err)
	}
}

func TestOwnSocket(t *testing.T) {
	env := func(all map[string]string) *Env {
		return &Env{Env: program.Env{Getenv: func(k string) string { return all[k] }}}
	}
	for _, tt := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"RUNTIME_DIRECTORY": "/run/braid", "XDG_RUNTIME_DIR": "/run/user/1"}, "/run/braid/api.sock"},
		{map[string]string{"XDG_RUNTIME_DIR": "/run/user/1"}, "/run/user/1/braid/api.sock"},
		{map[string]string{"XDG_RUNTIME_DIR": "relative"}, filepath.Join(os.TempDir(), fmt.Sprintf("braid-%d", os.Getuid()), "api.sock")},
	} {
		if got, err := env(tt.env).ownSocket(); got != tt.want || err != nil {
			t.Errorf("%v: %s, %v", tt.env, got, err)
		}
	}
}
