package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers lists braid's folders from the top down. A package may import its own folder and those of
// lower layers, but none beside it or above it.
var layers = [][]string{
	{"cmd"},
	{"testbed"},
	{"node"},
	{"client", "tracker"},
	{"scionnet", "storage"},
	{"pathsel", "units"},
}

func layerOf(folder string) int {
	return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, folder) })
}

func folderOf(pkg string) (string, bool) {
	rest, ok := strings.CutPrefix(pkg, "braid/")
	folder, _, _ := strings.Cut(rest, "/")
	return folder, ok
}

// mayImport tells whether the dependency points down.
func mayImport(from, to string) bool {
	return from == to || layerOf(from) < layerOf(to)
}

func TestDependenciesPointOneWay(t *testing.T) {
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
		if !ok || layerOf(from) < 0 {
			t.Errorf("package %s belongs to no layer", p.ImportPath)
			continue
		}
		seen[from] = true
		for _, i := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			to, ours := folderOf(i)
			if ours && !mayImport(from, to) {
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
	for _, l := range layers {
		for _, folder := range l {
			if !seen[folder] {
				t.Errorf("no package in %s: was the folder renamed and this test forgotten?", folder)
			}
		}
	}
}

func TestMayImport(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		want     bool
	}{
		{"cmd", "pathsel", true}, {"testbed", "node", true}, {"node", "client", true}, {"client", "client", true}, {"client", "storage", true},
		{"client", "tracker", false}, {"client", "node", false}, {"storage", "scionnet", false}, {"pathsel", "scionnet", false}, {"client", "testbed", false},
	} {
		if got := mayImport(tt.from, tt.to); got != tt.want {
			t.Errorf("%s imports %s: %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
}
