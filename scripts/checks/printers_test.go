package checks

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Nothing in the whole program prints past the printer.
func TestOnlyThePrinterPrints(t *testing.T) {
	allowed := map[string]int{"run.go os.Stdout": 1, "run.go os.Stderr": 1}
	files := 0
	err := filepath.WalkDir(filepath.Join("../.."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		files++
		name := filepath.Base(path)
		ast.Inspect(file, func(n ast.Node) bool {
			found := ""
			switch x := n.(type) {
			case *ast.SelectorExpr:
				if id, ok := x.X.(*ast.Ident); ok {
					found = id.Name + "." + x.Sel.Name
				}
				if x.Sel.Name == "Writer" || x.Sel.Name == "ErrWriter" {
					if _, ok := x.X.(*ast.CallExpr); ok && name != "printer.go" {
						t.Errorf("%s uses a command's %s: want stdout(cmd) or stderr(cmd)", name, x.Sel.Name)
					}
				}
			case *ast.CallExpr:
				if id, ok := x.Fun.(*ast.Ident); ok && (id.Name == "print" || id.Name == "println") {
					t.Errorf("%s calls %s", name, id.Name)
				}
			}
			switch found {
			case "os.Stdout", "os.Stderr":
				if allowed[name+" "+found]--; allowed[name+" "+found] < 0 {
					t.Errorf("%s uses %s: want stdout(cmd) or stderr(cmd)", name, found)
				}
			case "fmt.Print", "fmt.Printf", "fmt.Println", "slog.Default", "slog.Info", "slog.Warn", "slog.Error", "slog.Debug":
				t.Errorf("%s calls %s, which goes past the printer", name, found)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Errorf("%d files: did the folder move and this test stay behind?", files)
	}
}
