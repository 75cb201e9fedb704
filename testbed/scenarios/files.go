// Package scenarios holds the scenario files that come with braid; README.md describes their
// format.
package scenarios

import "embed"

// Files are the scenarios, and topologies that only they use.
//
//go:embed *.yaml *.topo
var Files embed.FS
