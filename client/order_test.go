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
	stall.go
	core.go options.go metadata.go inbox.go peerset.go offers.go blame.go
	row.go inbound.go link.go reveal.go pipeline.go places.go onefile.go
	progress.go cause.go pexrules.go pexmessage.go ourselves.go scion.go tcp.go tcp_linux.go tcp_other.go quic.go webrtc.go webrtcwire.go sdp.go ip.go webpeer.go transport.go
	create.go selection.go strategy.go engine.go fetch.go source.go webseed.go hybrid.go peer.go bounded.go
`)

// checkTypes reads the files of this package except its tests.
func checkTypes(t *testing.T) (set *token.FileSet, pkg *types.Package, info types.Info) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	export := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		path, file, _ := strings.Cut(lines.Text(), " ")
		export[path] = file
	}
	set = token.NewFileSet()
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
	info = types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	open := func(path string) (io.ReadCloser, error) { return os.Open(export[path]) }
	conf := types.Config{Importer: importer.ForCompiler(set, "gc", open)}
	if pkg, err = conf.Check("braid/client", set, files, &info); err != nil {
		t.Fatal(err)
	}
	return set, pkg, info
}

// A dependency between two files counts once: file A uses a name, a method or a field that file B
// declares. It points upward if B stands before A in fileOrder. Test files do not count.
func TestFilesDependDownward(t *testing.T) {
	t.Parallel()
	set, pkg, info := checkTypes(t)
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
	t.Logf("%d dependencies between %d files, %d of them upward", len(deps), len(fileOrder), len(upward))
	for _, example := range upward {
		t.Errorf("points upward: %s", example)
	}
}

// The fields and methods of exported types, even unexported ones, must not lead to the engine's
// large types. The compiler reads all of them. It compiles the generic types behind them again in
// each package that uses the exported type.
func TestEngineStaysInside(t *testing.T) {
	t.Parallel()
	_, pkg, _ := checkTypes(t)
	large := []string{"Client", "Torrent", "Peer", "PeerConn"}
	seen := map[types.Type]bool{}
	var walk func(at types.Type, way string)
	walk = func(at types.Type, way string) {
		if at = types.Unalias(at); seen[at] {
			return
		}
		seen[at] = true
		switch at := at.(type) {
		case *types.Named:
			name := at.Obj()
			if name.Pkg() != nil && name.Pkg().Path() == "github.com/anacrolix/torrent" && slices.Contains(large, name.Name()) {
				t.Errorf("%s leads to the engine's %s", way, name.Name())
			}
			if name.Pkg() != pkg {
				return
			}
			for m := range at.Methods() {
				walk(m.Signature(), way+"."+m.Name())
			}
			walk(at.Underlying(), way)
		case *types.Struct:
			for f := range at.Fields() {
				walk(f.Type(), way+"."+f.Name())
			}
		case *types.Interface:
			for m := range at.Methods() {
				walk(m.Signature(), way+"."+m.Name())
			}
		case *types.Signature:
			for _, vars := range []*types.Tuple{at.Params(), at.Results()} {
				for v := range vars.Variables() {
					walk(v.Type(), way)
				}
			}
		case *types.Map:
			walk(at.Key(), way)
			walk(at.Elem(), way)
		case interface{ Elem() types.Type }: // pointers, slices, arrays, channels
			walk(at.Elem(), way)
		}
	}
	for _, name := range pkg.Scope().Names() {
		if o := pkg.Scope().Lookup(name); o.Exported() {
			walk(o.Type(), name)
		}
	}
	if len(seen) < 100 {
		t.Fatalf("only %d types were looked at", len(seen))
	}
}
