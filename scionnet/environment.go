package scionnet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"runtime"

	"braid/pathsel"
)

// Config tells how to reach the SCION control plane of the local AS.
type Config struct {
	// ConfigDir holds topology.json and certs/; the SCION daemon then runs inside this process.
	// Daemon is the host:port of a running daemon's API and wins over ConfigDir.
	ConfigDir, Daemon string
	// LocalIP is the address to send from. If it is zero, the system's choice towards the local
	// AS's routers or control service is used.
	LocalIP netip.Addr
	// IA, if not zero, is the AS in which the host must be.
	IA pathsel.IA
	// AnyPort allows endpoints at ports to which the AS's routers do not deliver; see PortError.
	AnyPort bool
	// NAT says whether routers are asked at which address they see the host.
	NAT NAT
	// EPIC sends with EPIC along paths that offer it; see epic.go.
	EPIC bool
	// DNS is the host:port of the server to ask for names; empty stands for the system's.
	DNS string
	// Logger may be nil.
	Logger *slog.Logger
}

// Flags are settings from the command line; empty ones are not given. Daemon may be "default", for
// the daemon's default address.
type Flags struct{ ConfigDir, Daemon, Local, IA string }

const (
	defaultDaemon     = "127.0.0.1:30255"
	environmentFile   = "/etc/scion/environment.json"
	defaultConfigDir  = "/etc/scion"
	envDaemon         = "SCION_DAEMON"
	envLocal          = "SCION_LOCAL_ADDR"
	defaultDaemonName = "default"
)

// Environment finds the configuration in the order of the scion tool. The daemon is that of the
// flags, else $SCION_DAEMON, else the one that /etc/scion/environment.json names for the AS of the
// flags or for its default AS. Without any of these, the configuration directory is that of the
// flags, else /etc/scion. The local address is that of the flags, else $SCION_LOCAL_ADDR. getenv is
// os.Getenv and readFile is os.ReadFile, except in tests.
func Environment(f Flags, getenv func(string) string, readFile func(string) ([]byte, error)) (Config, error) {
	var c Config
	var err error
	if f.IA != "" {
		if c.IA, err = pathsel.ParseIA(f.IA); err != nil {
			return Config{}, fmt.Errorf("local ISD-AS: %w", err)
		}
	}
	if c.Daemon, err = findDaemon(f, c.IA, getenv, readFile); err != nil {
		return Config{}, err
	}
	if c.LocalIP, err = findLocal(f, getenv); err != nil {
		return Config{}, err
	}
	c.ConfigDir = f.ConfigDir
	if c.ConfigDir == "" && runtime.GOOS == "linux" {
		c.ConfigDir = defaultConfigDir
	}
	if c.ConfigDir == "" && c.Daemon == "" {
		return Config{}, errors.New("neither a SCION daemon nor a configuration directory is given")
	}
	return c, nil
}

func findDaemon(
	f Flags, ia pathsel.IA, getenv func(string) string, readFile func(string) ([]byte, error),
) (string, error) {
	if f.Daemon == defaultDaemonName {
		return defaultDaemon, nil
	}
	if named := cmp.Or(f.Daemon, getenv(envDaemon)); named != "" {
		return named, nil
	}
	raw, err := readFile(environmentFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read SCION environment: %w", err)
	}
	var env struct {
		General struct {
			DefaultIA pathsel.IA `json:"default_isd_as"`
		} `json:"general"`
		ASes map[pathsel.IA]struct {
			DaemonAddress string `json:"daemon_address"`
		} `json:"ases"`
	}
	if err := json.Unmarshal(raw, &env); err != nil {
		return "", fmt.Errorf("read SCION environment %s: %w", environmentFile, err)
	}
	return env.ASes[cmp.Or(ia, env.General.DefaultIA)].DaemonAddress, nil
}

func findLocal(f Flags, getenv func(string) string) (netip.Addr, error) {
	source, s := "local address", f.Local
	if s == "" {
		source, s = envLocal, getenv(envLocal)
	}
	if s == "" {
		return netip.Addr{}, nil
	}
	ip, err := ParseLocal(s)
	if err != nil {
		err = fmt.Errorf("%s %q: %w", source, s, err)
	}
	return ip, err
}

// ParseLocal reads the address that a host sends from.
func ParseLocal(s string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(s)
	if err != nil || ip.IsUnspecified() {
		return netip.Addr{}, errors.New("want one IP address of this host")
	}
	return ip.Unmap(), nil
}
