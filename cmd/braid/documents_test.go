package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// docs/manual.md is what the commands' help says.
func TestManual(t *testing.T) {
	want, err := os.ReadFile("../../docs/manual.md")
	if err != nil {
		t.Fatal(err)
	}
	code, got, said := ends(t, t.TempDir(), "manual")
	if code != 0 || said != "" {
		t.Fatalf("exit code %d: %s", code, said)
	}
	lines, wanted := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(lines), len(wanted)) {
		if i >= len(lines) || i >= len(wanted) || lines[i] != wanted[i] {
			t.Fatalf("docs/manual.md differs from the help in line %d: run go generate ./cmd/braid", i+1)
		}
	}
	if strings.Contains(got, "## braid manual") || !strings.Contains(got, "\n## braid testbed link\n") {
		t.Errorf("the manual has other commands than braid shows")
	}
}

// braid --version names the release that CHANGELOG.md begins with, a commit and the Go version.
func TestVersion(t *testing.T) {
	code, out, said := ends(t, t.TempDir(), "--version")
	m := regexp.MustCompile(`^braid (\d+\.\d+\.\d+), commit \S+, go1\.\d+(\.\d+)?\n$`).FindStringSubmatch(out)
	if code != 0 || said != "" || m == nil {
		t.Fatalf("exit code %d: %s%s", code, out, said)
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

// Every relative link in a document leads to a file, and every #anchor to a heading.
func TestLinks(t *testing.T) {
	documents, err := exec.Command("git", "-C", "../..", "ls-files", "*.md").Output()
	if err != nil {
		t.Skipf("not a clone: %v", err)
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code := regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`")
	headings := func(name string) []string {
		text, _ := os.ReadFile(name)
		var out []string
		for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
			h := regexp.MustCompile(`[^\pL\pN_ -]`).ReplaceAllString(strings.ToLower(h[1]), "")
			out = append(out, strings.ReplaceAll(h, " ", "-"))
		}
		return out
	}
	for document := range strings.Lines(string(documents)) {
		document = filepath.Join("../..", strings.TrimSpace(document))
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			to := document
			if file != "" {
				to = filepath.Join(filepath.Dir(document), file)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: the link %s leads nowhere", document, m[1])
			} else if anchor != "" && !slices.Contains(headings(to), anchor) {
				t.Errorf("%s: the link %s leads to no heading", document, m[1])
			}
		}
	}
}

// Files that ARCHITECTURE.md and CONTRIBUTING.md name exist.
func TestNamedFiles(t *testing.T) {
	named := regexp.MustCompile("`([a-z]+/[a-z0-9/_-]+\\.[a-z]+)`")
	for _, document := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join("../..", document))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join("../..", m[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", document, m[1])
			}
		}
	}
}
