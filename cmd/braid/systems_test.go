package main

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// braid and the modules that it uses have no type error on other systems. To compile them would
// take ten times as long; `scripts/build --systems` does that for the small build.
func TestOtherSystems(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a quarter of a minute of processor time for each system")
	}
	for _, system := range []string{"darwin/arm64", "freebsd/amd64", "linux/arm64", "windows/amd64"} {
		t.Run(system, func(t *testing.T) {
			goos, goarch, _ := strings.Cut(system, "/")
			roots, err := packages.Load(&packages.Config{
				Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
					packages.NeedDeps | packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax,
				Env: append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch),
			}, "braid/cmd/braid")
			if err != nil {
				t.Fatal(err)
			}
			read := 0
			packages.Visit(roots, nil, func(p *packages.Package) {
				read += len(p.Syntax)
				for _, e := range p.Errors {
					t.Error(e)
				}
			})
			if read < 1000 {
				t.Errorf("%d files were read", read)
			}
		})
	}
}
