package program

import (
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v3"
)

// FileFlag names a file or a directory. Its value is a name under which the process finds the file:
// Env.Run makes it relative to Env.Dir.
type FileFlag = cli.FlagBase[string, FileConfig, fileValue]

// FileConfig is set by Env.Run.
type FileConfig struct{ dir string }

type fileValue struct {
	to  *string
	dir string
}

func (fileValue) Create(v string, to *string, c FileConfig) cli.Value {
	*to = within(c.dir, v)
	return fileValue{to, c.dir}
}

// ToString writes the default in the help.
func (fileValue) ToString(v string) string {
	if v == "" {
		return ""
	}
	return fmt.Sprintf("%q", v)
}

func (v fileValue) Set(s string) error {
	*v.to = within(v.dir, s)
	return nil
}

func (v fileValue) Get() any { return *v.to }

func (v fileValue) String() string {
	if v.to == nil {
		return ""
	}
	return *v.to
}

// Path returns the name under which the process finds a file that an argument names. "" stays "".
func (e Env) Path(name string) string { return within(e.Dir, name) }

func within(dir, name string) string {
	if dir == "" || name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}
