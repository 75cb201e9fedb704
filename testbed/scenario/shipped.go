package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"braid/testbed"
	"braid/testbed/scenarios"
)

// Shipped lists the names of the scenarios that come with braid.
func Shipped() []string { return testbed.NamesIn(scenarios.Files, "*.yaml") }

// Load reads a scenario file, or a shipped scenario by its name. A file of that name comes first.
func Load(name string) (Scenario, error) {
	f, err := testbed.OpenFile(name)
	if err == nil {
		defer f.Close()
		return Parse(name, f, topologyFor(filepath.Dir(name)))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return Scenario{}, fmt.Errorf("scenario: %w", err)
	}
	text, err := scenarios.Files.ReadFile(strings.TrimSuffix(name, ".yaml") + ".yaml")
	if err != nil {
		return Scenario{}, fmt.Errorf("scenario %s: no such file, and none of the shipped ones: %s",
			name, strings.Join(Shipped(), ", "))
	}
	return Parse(name, bytes.NewReader(text), shippedTopology)
}

// ShippedText returns the file of a shipped scenario or topology. If both have the name, it needs
// the ending .yaml or .topo.
func ShippedText(name string) ([]byte, error) {
	var found [][]byte
	add := func(b []byte, err error) {
		if err == nil {
			found = append(found, b)
		}
	}
	stem, isTopology := strings.CutSuffix(name, ".topo")
	stem, isScenario := strings.CutSuffix(stem, ".yaml")
	if !isTopology {
		add(scenarios.Files.ReadFile(stem + ".yaml"))
	}
	if !isScenario {
		add(scenarios.Files.ReadFile(stem + ".topo"))
		add(testbed.ShippedText(stem))
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, fmt.Errorf("%s: no such scenario (%s) or topology (%s)",
			name, strings.Join(Shipped(), ", "), strings.Join(testbed.Shipped(), ", "))
	}
	return nil, fmt.Errorf("%s is both a scenario and a topology; give %s.yaml or %s.topo", name, stem, stem)
}

// topologyFor finds the topologies of scenario files in a folder: a file there or in the current
// directory, or else a shipped topology, so that a copy of a shipped scenario works anywhere.
func topologyFor(folder string) func(string) (testbed.Topology, error) {
	return func(name string) (testbed.Topology, error) {
		if name == "" {
			return shippedTopology(name)
		}
		for _, file := range []string{filepath.Join(folder, name), filepath.Join(folder, name+".topo"), name} {
			if st, err := os.Stat(file); err == nil && !st.IsDir() {
				return testbed.LoadTopology(file)
			}
		}
		return shippedTopology(name)
	}
}

// shippedTopology finds the topologies of shipped scenarios, which do not depend on the current
// directory.
func shippedTopology(name string) (testbed.Topology, error) {
	own, err := scenarios.Files.ReadFile(name + ".topo")
	if err != nil {
		return testbed.ShippedTopology(name)
	}
	return testbed.ParseTopology(name+".topo", bytes.NewReader(own))
}
