package program

import (
	"os"
	"regexp"
	"runtime/debug"
	"testing"
	"time"
)

func TestVCSCommit(t *testing.T) {
	for _, tt := range []struct{ revision, modified, want string }{
		{"", "", ""},
		{"", "true", ""},
		{"0123456789abcdef", "false", "0123456789ab"},
		{"0123456789abcdef", "true", "0123456789ab+"},
	} {
		got := vcsCommit([]debug.BuildSetting{{Key: "vcs.revision", Value: tt.revision}, {Key: "vcs.modified", Value: tt.modified}})
		if got != tt.want {
			t.Errorf("%q, %q: %q, want %q", tt.revision, tt.modified, got, tt.want)
		}
	}
}

// braid --version names the release that CHANGELOG.md begins with, a commit and the Go version.
func TestVersion(t *testing.T) {
	out := Version("braid")
	m := regexp.MustCompile(`^braid (\d+\.\d+\.\d+), commit \S+, go1\.\d+(\.\d+)?$`).FindStringSubmatch(out)
	if m == nil {
		t.Fatal(out)
	}
	changes, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+) \((.*)\)`).FindStringSubmatch(string(changes))
	if newest == nil || newest[1] != m[1] {
		t.Fatalf("--version says %s, the newest release in CHANGELOG.md is %v", m[1], newest)
	}
	if day, err := time.Parse("2 January 2006", newest[2]); err != nil || day.Format(time.DateOnly) != released {
		t.Errorf("the man pages are of %s, the release in CHANGELOG.md is of %s (%v)", released, newest[2], err)
	}
}
