package commands

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/commands/program"
	"braid/scionnet"
)

// Env is what a command takes from its process.
type Env struct {
	program.Env
	// Network opens hosts and sockets. The zero value opens those of the operating system.
	Network Network
}

// Network opens hosts and sockets. A nil function stands for the operating system's.
type Network struct {
	// SCION opens a host on SCION.
	SCION func(context.Context, scionnet.Config) (*scionnet.Host, error)
	// Listen opens a socket of the package net that accepts connections.
	Listen func(ctx context.Context, network, address string) (net.Listener, error)
}

func (n Network) openSCION(ctx context.Context, c scionnet.Config) (*scionnet.Host, error) {
	if n.SCION != nil {
		return n.SCION(ctx, c)
	}
	return scionnet.Open(ctx, c)
}

func (n Network) listen(ctx context.Context, network, address string) (net.Listener, error) {
	if n.Listen != nil {
		return n.Listen(ctx, network, address)
	}
	var lc net.ListenConfig
	return lc.Listen(ctx, network, address)
}

const envKey = "commands"

// envOf returns the environment in which a command runs.
func envOf(c *cli.Command) *Env { return c.Root().Metadata[envKey].(*Env) }

// abs returns the absolute name of a file that an argument or a default names.
func (e *Env) abs(name string) (string, error) { return filepath.Abs(e.Path(name)) }

// source returns the name under which the process finds a torrent: a file, or a URL or magnet link,
// which stays as it is.
func (e *Env) source(name string) string {
	if strings.HasPrefix(strings.ToLower(name), "magnet:") || strings.Contains(name, "://") {
		return name
	}
	return e.Path(name)
}

// configDir is os.UserConfigDir with the variables of the environment.
func (e *Env) configDir() (string, error) {
	variable, below := "HOME", ".config"
	switch runtime.GOOS {
	case "windows":
		variable, below = "AppData", ""
	case "darwin":
		below = "Library/Application Support"
	default:
		if d := e.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(d) {
			return d, nil
		}
	}
	dir := e.Getenv(variable)
	if dir == "" {
		return "", fmt.Errorf("no place for settings: set %s", variable)
	}
	return filepath.Join(dir, below), nil
}

func (e *Env) tempDir() string { return cmp.Or(e.Getenv("TMPDIR"), os.TempDir()) }

// home is os.UserHomeDir with the variables of the environment.
func (e *Env) home() string {
	if runtime.GOOS == "windows" {
		return e.Getenv("USERPROFILE")
	}
	return e.Getenv("HOME")
}
