package scionnet

import (
	"errors"
	"io/fs"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
)

const environmentJSON = `{"general":{"default_isd_as":"1-ff00:0:110"},
	"ases":{"1-ff00:0:110":{"daemon_address":"127.0.0.1:110"},"1-ff00:0:111":{"daemon_address":"127.0.0.1:111"}}}`

// environment calls Environment with variables and the content of the environment file; "" stands
// for a missing file.
func environment(f Flags, vars map[string]string, file string) (Config, error) {
	return Environment(f,
		func(k string) string { return vars[k] },
		func(name string) ([]byte, error) {
			if file == "" || name != "/etc/scion/environment.json" {
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			return []byte(file), nil
		})
}

func TestEnvironment(t *testing.T) {
	ip := netip.MustParseAddr
	vars := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	for _, tt := range []struct {
		name  string
		flags Flags
		vars  map[string]string
		file  string
		want  Config
	}{
		{"nothing", Flags{}, nil, "", Config{ConfigDir: "/etc/scion"}},
		{"config dir", Flags{ConfigDir: "d"}, nil, "", Config{ConfigDir: "d"}},
		{"default daemon", Flags{Daemon: "default"}, nil, "", Config{ConfigDir: "/etc/scion", Daemon: "127.0.0.1:30255"}},
		{"flag over variable over file", Flags{Daemon: "a:1"}, vars("SCION_DAEMON", "b:2"), environmentJSON, Config{ConfigDir: "/etc/scion", Daemon: "a:1"}},
		{"variable over file", Flags{}, vars("SCION_DAEMON", "b:2"), environmentJSON, Config{ConfigDir: "/etc/scion", Daemon: "b:2"}},
		{"file, default AS", Flags{}, nil, environmentJSON, Config{ConfigDir: "/etc/scion", Daemon: "127.0.0.1:110"}},
		{"file, chosen AS", Flags{IA: "1-ff00:0:111"}, nil, environmentJSON, Config{ConfigDir: "/etc/scion", Daemon: "127.0.0.1:111", IA: 0x1ff0000000111}},
		{"file, other AS", Flags{IA: "1-ff00:0:112"}, nil, environmentJSON, Config{ConfigDir: "/etc/scion", IA: 0x1ff0000000112}},
		{"local variable", Flags{}, vars("SCION_LOCAL_ADDR", "10.0.0.1"), "", Config{ConfigDir: "/etc/scion", LocalIP: ip("10.0.0.1")}},
		{"local flag over variable", Flags{Local: "10.0.0.2"}, vars("SCION_LOCAL_ADDR", "10.0.0.1"), "", Config{ConfigDir: "/etc/scion", LocalIP: ip("10.0.0.2")}},
		{"local IPv6", Flags{Local: "fd00::2"}, nil, "", Config{ConfigDir: "/etc/scion", LocalIP: ip("fd00::2")}},
	} {
		got, err := environment(tt.flags, tt.vars, tt.file)
		if err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
}

func TestEnvironmentErrors(t *testing.T) {
	for _, tt := range []struct {
		flags Flags
		vars  map[string]string
		file  string
		part  string
	}{
		{Flags{IA: "x"}, nil, "", "local ISD-AS"},
		{Flags{Local: "x"}, nil, "", "local address"},
		{Flags{Local: "0.0.0.0"}, nil, "", "local address"},
		{Flags{}, map[string]string{"SCION_LOCAL_ADDR": "x"}, "", "SCION_LOCAL_ADDR"},
		{Flags{}, nil, "{", "environment.json"},
		{Flags{}, nil, `{"ases":{"x":{}}}`, "environment.json"},
	} {
		_, err := environment(tt.flags, tt.vars, tt.file)
		if err == nil || !strings.Contains(err.Error(), tt.part) {
			t.Errorf("%+v %q: error %v, want one about %s", tt.flags, tt.file, err, tt.part)
		}
	}
	unreadable := errors.New("unreadable")
	_, err := Environment(Flags{}, func(string) string { return "" }, func(string) ([]byte, error) { return nil, unreadable })
	if !errors.Is(err, unreadable) {
		t.Errorf("error %v, want %v", err, unreadable)
	}
}

// An error names the missing file, once and without the words of the library.
func TestNoConfiguration(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(t.Context(), Config{ConfigDir: dir})
	want := "open " + filepath.Join(dir, "topology.json") + ": no such file or directory"
	if err == nil || !strings.HasSuffix(err.Error(), want) || strings.Count(err.Error(), "topology.json") != 2 {
		t.Errorf("error %v, want one that ends in %q", err, want)
	}
}
