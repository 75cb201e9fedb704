package main

import (
	"cmp"
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
)

// The newest release in CHANGELOG.md, and its day.
const (
	release  = "0.2.0"
	released = "2026-11-22"
)

// commit is set by scripts/build, since a clone without version control metadata builds too.
var commit string

// version names the release, the commit and the Go version that this program was built from.
func version() string {
	from := cmp.Or(builtFrom(), "unknown")
	return "braid " + release + ", commit " + from + ", " + strings.Fields(runtime.Version())[0]
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

// sayMissing tells users, before a command transfers data, what braid lacks on this system.
func sayMissing(ctx context.Context, c *cli.Command) (context.Context, error) {
	transfers := []string{
		"download", "seed", "send", "get", "mirror", "serve", "daemon", "gateway", "tracker", "dht",
	}
	if slices.Contains(transfers, c.Args().First()) {
		for _, text := range missing(runtime.GOOS, hasSQLite()) {
			stderr(c).printf("braid: %s\n", text)
		}
	}
	return ctx, nil
}

// hasSQLite tells whether this program can keep trust roots itself. scionproto keeps them in
// SQLite, which is a C library.
func hasSQLite() bool {
	info, ok := debug.ReadBuildInfo()
	noC := debug.BuildSetting{Key: "CGO_ENABLED", Value: "0"}
	return !ok || !slices.Contains(info.Settings, noC)
}

// missing says what braid lacks on an operating system (by its name in Go), one line for each
// consequence. A program with SQLite on Linux lacks nothing.
func missing(goos string, sqlite bool) (lines []string) {
	if !sqlite {
		lines = append(lines,
			"built without cgo: SCION works only with a SCION daemon (--sciond HOST:PORT)")
	}
	if goos == "linux" {
		return lines
	}
	lines = append(lines, "on "+goos+" packets are sent one by one, which takes several times as "+
		"much processor time as on Linux, and the paths of TCP connections are not measured")
	if !slices.Contains([]string{"darwin", "freebsd", "netbsd", "openbsd", "dragonfly"}, goos) {
		lines = append(lines, "on "+goos+" files are not locked, so give each braid a state "+
			"directory of its own; keys and sockets have no owner, so keep others out of your "+
			"directories")
	}
	return lines
}
