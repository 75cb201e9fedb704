package program

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"
)

// The newest release in CHANGELOG.md, and its day.
const (
	release  = "0.2.0"
	released = "2026-11-22"
)

// commit is set by scripts/build, since a clone without version control metadata builds too.
var commit string

// Version names the program, its release, and the commit and the Go version it was built from.
func Version(program string) string {
	from := cmp.Or(builtFrom(), "unknown")
	compiler := strings.Fields(runtime.Version())[0]
	return program + " " + release + ", commit " + from + ", " + compiler
}

// builtFrom returns the commit that this program was built from, with + if there were changes; ""
// if unknown.
func builtFrom() string {
	if info, ok := debug.ReadBuildInfo(); ok && commit == "" {
		return vcsCommit(info.Settings)
	}
	return commit
}

// vcsCommit returns the commit that the go command recorded, or "" if it recorded none.
func vcsCommit(settings []debug.BuildSetting) string {
	recorded := map[string]string{}
	for _, s := range settings {
		recorded[s.Key] = s.Value
	}
	from := recorded["vcs.revision"]
	from = from[:min(len(from), 12)]
	if from != "" && recorded["vcs.modified"] == "true" {
		from += "+"
	}
	return from
}
