package client

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fileOrder lists the files of this package from the top down. Files of one line are on one level.
var fileOrder = strings.Fields(`
	session.go callbacks.go engineconfig.go details.go read.go transfer.go loop.go
	trial.go
	judge.go checkup.go magnet.go pex.go connect.go choose.go serve.go superseed.go confirm.go room.go rarest.go nudge.go
	core.go options.go metadata.go inbox.go peerset.go offers.go blame.go
	row.go inbound.go link.go reveal.go pipeline.go places.go onefile.go
	progress.go cause.go pexrules.go pexmessage.go ourselves.go scion.go tcp.go tcp_linux.go tcp_other.go quic.go webrtc.go webrtcwire.go sdp.go ip.go webpeer.go transport.go
	create.go selection.go strategy.go engine.go fetch.go source.go webseed.go hybrid.go peer.go bounded.go
`)

// A dependency between two files counts once: file A uses a name, a method or a field that file B
// declares. It points upward if B stands before A in fileOrder. Test files do not count.
func TestFilesDependDownward(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	export := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		path, file, _ := strings.Cut(lines.Text(), " ")
		export[path] = file
	}
	set := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || name == "tcp_other.go" {
			continue
		}
		if !slices.Contains(fileOrder, name) {
			t.Errorf("%s has no place in fileOrder", name)
		}
		f, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	open := func(path string) (io.ReadCloser, error) { return os.Open(export[path]) }
	conf := types.Config{Importer: importer.ForCompiler(set, "gc", open)}
	pkg, err := conf.Check("braid/client", set, files, &info)
	if err != nil {
		t.Fatal(err)
	}
	deps, upward := map[string]bool{}, map[string]string{}
	for id, obj := range info.Uses {
		if obj.Pkg() != pkg || !obj.Pos().IsValid() {
			continue
		}
		from, to := set.Position(id.Pos()).Filename, set.Position(obj.Pos()).Filename
		if from == to {
			continue
		}
		pair := from + " -> " + to
		deps[pair] = true
		if slices.Index(fileOrder, to) < slices.Index(fileOrder, from) {
			upward[pair] = fmt.Sprintf("%s for example uses %s", pair, obj.Name())
		}
	}
	t.Logf("%d dependencies between %d files, %d of them upward", len(deps), len(files), len(upward))
	for _, example := range upward {
		t.Errorf("points upward: %s", example)
	}
}
