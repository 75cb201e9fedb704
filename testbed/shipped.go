package testbed

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

//go:embed topologies/*.topo
var shipped embed.FS

// Shipped lists the names of the topologies that come with braid.
func Shipped() []string { return NamesIn(shipped, "topologies/*.topo") }

// NamesIn lists the files that match a pattern, without their folder and ending.
func NamesIn(files fs.FS, pattern string) []string {
	names, err := fs.Glob(files, pattern)
	if err != nil {
		panic(err) // the pattern is ours
	}
	for i, f := range names {
		names[i] = strings.TrimSuffix(path.Base(f), path.Ext(f))
	}
	return names
}

// ShippedText is the file of a shipped topology. The error is fs.ErrNotExist if there is none of
// that name.
func ShippedText(name string) ([]byte, error) {
	return shipped.ReadFile("topologies/" + strings.TrimSuffix(name, ".topo") + ".topo")
}

// LoadTopology reads a topology file, or a shipped topology by its name. A file of that name comes
// first.
func LoadTopology(name string) (Topology, error) {
	f, err := OpenFile(name)
	if err == nil {
		defer f.Close()
		return ParseTopology(name, f)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return Topology{}, fmt.Errorf("topology: %w", err)
	}
	return ShippedTopology(name)
}

// OpenFile opens a file. A folder of that name does not count: the error is fs.ErrNotExist.
func OpenFile(name string) (*os.File, error) {
	if st, err := os.Stat(name); err == nil && st.IsDir() {
		return nil, fs.ErrNotExist
	}
	return os.Open(name)
}

// ShippedTopology reads a shipped topology by its name.
func ShippedTopology(name string) (Topology, error) {
	text, err := ShippedText(name)
	if err != nil {
		return Topology{}, fmt.Errorf("topology %s: no such file, and none of the shipped ones: %s",
			name, strings.Join(Shipped(), ", "))
	}
	return ParseTopology(name+".topo", bytes.NewReader(text))
}
