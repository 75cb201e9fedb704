package checks

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The manuals are what the help of the commands says.
func TestManuals(t *testing.T) {
	for program, name := range map[string]string{"braid": "manual.md", "braid-testbed": "manual-testbed.md"} {
		want, err := os.ReadFile(filepath.Join("../../docs", name))
		if err != nil {
			t.Fatal(err)
		}
		// go run keeps the program in its cache.
		got, err := exec.CommandContext(t.Context(), "go", "run", "braid/cmd/"+program, "manual").Output()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("docs/%s differs from the help: run go generate ./cmd/%s", name, program)
		}
		if bytes.Contains(got, []byte(program+" manual\n")) {
			t.Errorf("docs/%s has hidden commands", name)
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
