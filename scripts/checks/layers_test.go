package checks

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// drawnLayers reads the drawing in ARCHITECTURE.md: braid's folders from the top down. Folders
// whose names begin in the same column are one layer. A package may import its own folder and those
// of lower layers, but none beside it or above it.
func drawnLayers(t *testing.T) (layers [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n```\n")
	drawing, _, ok := strings.Cut(rest, "\n```\n")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no drawing")
	}
	columns := map[int][]string{}
	for line := range strings.Lines(drawing) {
		for _, at := range regexp.MustCompile(`[a-z]+`).FindAllStringIndex(line, -1) {
			column := utf8.RuneCountInString(line[:at[0]])
			columns[column] = append(columns[column], line[at[0]:at[1]])
		}
	}
	for _, column := range slices.Sorted(maps.Keys(columns)) {
		layers = append(layers, columns[column])
	}
	return layers
}

func layerOf(layers [][]string, folder string) int {
	return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, folder) })
}

func folderOf(pkg string) (string, bool) {
	rest, ok := strings.CutPrefix(pkg, "braid/")
	folder, _, _ := strings.Cut(rest, "/")
	return folder, ok
}

// mayImport tells whether the dependency points down.
func mayImport(layers [][]string, from, to string) bool {
	return from == to || layerOf(layers, from) < layerOf(layers, to)
}

func TestDependenciesPointOneWay(t *testing.T) {
	layers := drawnLayers(t)
	if !slices.Equal(layers[0], []string{"cmd"}) {
		t.Fatalf("the drawing in ARCHITECTURE.md begins with %v", layers[0])
	}
	arrows := map[int]bool{} // layers that a higher one imports
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,Standard", "braid/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := map[string]bool{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		from, ok := folderOf(p.ImportPath)
		if from == "scripts" {
			continue // these checks
		}
		if !ok || layerOf(layers, from) < 0 {
			t.Errorf("package %s belongs to no layer", p.ImportPath)
			continue
		}
		seen[from] = true
		for _, i := range p.Imports {
			if to, ours := folderOf(i); ours && to != from {
				arrows[layerOf(layers, to)] = true
			}
		}
		for _, i := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			to, ours := folderOf(i)
			if ours && !mayImport(layers, from, to) {
				t.Errorf("%s imports %s: dependencies point from cmd down to pathsel", p.ImportPath, i)
			}
			if p.ImportPath == "braid/node/event" && to != "node" && to != "pathsel" && ours {
				t.Errorf("%s imports %s: whoever reads events should get values only", p.ImportPath, i)
			}
			if from == "pathsel" && strings.Contains(strings.SplitN(i, "/", 2)[0], ".") {
				t.Errorf("%s imports %s: pathsel is standard library only", p.ImportPath, i)
			}
		}
	}
	for i, l := range layers {
		if i > 0 && !arrows[i] {
			t.Errorf("ARCHITECTURE.md draws an arrow to %v, but nothing above imports it", l)
		}
		for _, folder := range l {
			if !seen[folder] {
				t.Errorf("ARCHITECTURE.md draws %s, but no package is in it", folder)
			}
		}
	}
}

func TestMayImport(t *testing.T) {
	layers := drawnLayers(t)
	for _, tt := range []struct {
		from, to string
		want     bool
	}{
		{"cmd", "pathsel", true}, {"testbed", "commands", true}, {"commands", "node", true}, {"commands", "testbed", false}, {"node", "client", true}, {"client", "client", true}, {"client", "storage", true},
		{"node", "dht", true}, {"dht", "scionnet", true}, {"dht", "client", false}, {"dht", "tracker", false},
		{"client", "tracker", false}, {"client", "node", false}, {"storage", "scionnet", false}, {"pathsel", "scionnet", false}, {"client", "testbed", false},
	} {
		if got := mayImport(layers, tt.from, tt.to); got != tt.want {
			t.Errorf("%s imports %s: %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
}

// Commands leave to package node whatever it offers: sessions, transfers, stores that are written
// to, announcing, and the key.
func TestCommandsUseNode(t *testing.T) {
	past := map[string][]string{
		"client":   {"New", "Session", "Transfer"},
		"storage":  {"Open", "OpenVerified", "OpenVerifiedIn", "Claim", "Store"},
		"announce": {"Start", "Announcer"},
		"scionnet": {"LoadIdentity", "NewIdentity"},
	}
	files, err := filepath.Glob("../../commands/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(x ast.Node) bool {
			if s, ok := x.(*ast.SelectorExpr); ok {
				if p, ok := s.X.(*ast.Ident); ok && slices.Contains(past[p.Name], s.Sel.Name) {
					t.Errorf("%s uses %s.%s: node offers it", name, p.Name, s.Sel.Name)
				}
			}
			return true
		})
	}
}
