package commands

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/urfave/cli/v3"

	"braid/commands/terminal"
)

// sayMissing tells users, before a command transfers data, what braid lacks on this system.
func sayMissing(ctx context.Context, c *cli.Command) (context.Context, error) {
	transfers := []string{
		"download", "seed", "send", "get", "mirror", "serve", "daemon", "gateway", "tracker", "dht",
	}
	if slices.Contains(transfers, c.Args().First()) {
		for _, text := range missing(runtime.GOOS, hasSQLite()) {
			terminal.Stderr(c).Printf("braid: %s\n", text)
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
