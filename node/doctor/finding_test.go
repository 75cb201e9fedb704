package doctor

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"braid/pathsel"
	"braid/scionnet"
)

// TestExamine has the cases that a network on one machine cannot show.
func TestExamine(t *testing.T) {
	at := func(s string) scionnet.Addr {
		a, err := scionnet.ParseAddr(s)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	router := netip.MustParseAddrPort("10.0.0.1:30042")
	local := at("1-ff00:0:110,[192.168.1.2]:31000")
	now := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	trc := func(isd uint16, days int) []Validity {
		return []Validity{{Name: "TRC", ISD: isd, From: now.AddDate(-1, 0, 0), To: now.AddDate(0, 0, days)}}
	}
	cert := []Validity{{Name: "as.pem", From: now.AddDate(-1, 0, 0), To: now.AddDate(0, 0, -1)}}
	const daemon, dir = "127.0.0.1:30255", "/etc/scion"
	for name, c := range map[string]struct {
		facts Facts
		want  Finding // parts of its texts
	}{
		"behind a NAT": {
			Facts{From: 1024, To: 65535, Routers: []scionnet.RouterView{{Router: router, Local: local, Seen: at("1-ff00:0:110,[192.0.2.1]:40000")}}},
			Finding{"border router", OK, "a NAT shows this host as 192.0.2.1:40000", "", ""},
		},
		"a NAT with a port outside of the range": {
			Facts{From: 31000, To: 32767, Routers: []scionnet.RouterView{{Router: router, Local: local, Seen: at("1-ff00:0:110,[192.0.2.1]:40000")}}},
			Finding{"border router", Fail, "at port 40000", "get lost", "masquerade to :31000-32767"},
		},
		"a router that is off, and no path": {
			Facts{Routers: []scionnet.RouterView{{Router: router, Local: local}}},
			Finding{"border router", Fail, "10.0.0.1:30042 does not answer", "carry nothing", "firewall"},
		},
		"no range of ports": {Facts{}, Finding{"port", Warn, "names no range", "30041", "dispatched_ports"}},
		"a braid that answers echo requests": {
			Facts{Dispatcher: true}, Finding{"port 30041", Warn, "or a braid", "older than scionproto 0.12", "unless it is a braid"},
		},
		"a port at which nobody listens": {
			Facts{Target: &Reach{To: local.String(), Port: local.Port, Paths: []pathsel.Path{{}}, Dial: fmt.Errorf("connect: %w", context.DeadlineExceeded)}},
			Finding{"target port", Fail, "31000 (no answer in time)", "peers connect", "firewall"},
		},
		"a full disk": {
			Facts{Dir: "/data", Free: 1 << 20}, Finding{"disk", Fail, "/data has 1 MiB left", "stops", "free some space"},
		},
		"a disk of unknown size": {
			Facts{Dir: "/data", FreeErr: errors.New("not supported")}, Finding{"disk", OK, "/data can be written to; it is not known how much space is left: not supported", "", ""},
		},
		"small buffers": {Facts{Buffer: 212992}, Finding{"socket buffers", Warn, "212992", "lost", "net.core.rmem_max"}},
		"a daemon alone": {
			Facts{IA: local.IA, Daemon: daemon, ConfigDir: dir},
			Finding{"trust roots", Warn, "TRCs and certificates were not checked: the daemon at " + daemon, "valid TRC", "--config-dir"},
		},
		"a daemon, and files of another ISD": {
			Facts{IA: local.IA, Daemon: daemon, ConfigDir: dir, TRCs: trc(2, 1), Now: now},
			Finding{"trust roots", Warn, "/etc/scion has no TRC of ISD 1", "valid TRC", "where the daemon runs"},
		},
		"a daemon without any directory": {
			Facts{IA: local.IA, Daemon: daemon}, Finding{"trust roots", Warn, "this host has no TRC of ISD 1", "valid TRC", "--config-dir"},
		},
		"a daemon and a TRC": {
			Facts{IA: local.IA, Daemon: daemon, ConfigDir: dir, TRCs: trc(1, 1), Now: now},
			Finding{"trust roots", OK, "TRC in /etc/scion, valid until 2026-11-24", "", ""},
		},
		"a daemon, which may know a newer TRC": {
			Facts{IA: local.IA, Daemon: daemon, ConfigDir: dir, TRCs: trc(1, -1), Now: now, Target: &Reach{Paths: []pathsel.Path{{Dst: 1, Expiry: now.Add(time.Hour)}}}},
			Finding{"trust roots", Warn, "TRC in /etc/scion expired on 2026-11-22", "valid TRC", "fetch the present TRC"},
		},
		"and says nothing about the clock": {
			Facts{IA: local.IA, Daemon: daemon, ConfigDir: dir, TRCs: trc(1, -1), Now: now, Target: &Reach{Paths: []pathsel.Path{{Dst: 1, Expiry: now.Add(time.Hour)}}}},
			Finding{"clock", OK, "", "", ""},
		},
		"a daemon, and an old certificate": {
			Facts{IA: local.IA, Daemon: daemon, ConfigDir: dir, Certs: cert, Now: now},
			Finding{"certificates", Warn, "as.pem in /etc/scion expired on 2026-11-22", "refuse", "renew"},
		},
		"a TRC of another network": {
			Facts{IA: local.IA, ConfigDir: dir, TRCs: []Validity{{Name: "a.trc", ISD: 1, Foreign: true}}, Now: now},
			Finding{"trust roots", Fail, "a.trc is not the TRC of ISD 1", "another network", "remove the file"},
		},
		"which does not count": {
			Facts{IA: local.IA, ConfigDir: dir, TRCs: []Validity{{Name: "a.trc", ISD: 1, Foreign: true}}, Now: now},
			Finding{"trust roots", Fail, "there is no TRC of ISD 1", "valid TRC", "fetch the TRCs"},
		},
		"nor for the clock": {
			Facts{IA: local.IA, ConfigDir: dir, TRCs: append(trc(1, -1), Validity{Name: "a.trc", ISD: 1, Foreign: true, To: now.AddDate(1, 0, 0)}),
				Now: now, Target: &Reach{Paths: []pathsel.Path{{Dst: 1, Expiry: now.Add(time.Hour)}}}},
			Finding{"clock", Fail, "too late", "expired", "timedatectl"},
		},
		"no offloading": {Facts{Offload: errors.New("not supported")}, Finding{"offloading", Warn, "not supported", "system call", "Linux"}},
	} {
		all := Examine(c.facts)
		hit := false
		for _, f := range all {
			hit = hit || f.Check == c.want.Check && f.Status == c.want.Status && strings.Contains(f.Found, c.want.Found) &&
				strings.Contains(f.Why, c.want.Why) && strings.Contains(f.Do, c.want.Do)
		}
		if !hit {
			t.Errorf("%s: %+v, want %+v", name, all, c.want)
		}
	}
}

// Beside a daemon, TRCs are read from braid's own configuration if the system's directory has none.
func TestOwnTRCs(t *testing.T) {
	own := t.TempDir()
	file := filepath.Join(own, "certs", "ISD1-B1-S1.trc")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		scion scionnet.Config
		want  int
	}{
		"daemon":           {scionnet.Config{Daemon: "127.0.0.1:1", ConfigDir: t.TempDir()}, 1},
		"daemon, no files": {scionnet.Config{Daemon: "127.0.0.1:1"}, 1},
		"no daemon":        {scionnet.Config{ConfigDir: t.TempDir()}, 0},
	} {
		f, err := Gather(t.Context(), Options{SCION: c.scion, OwnDir: own})
		if err != nil || len(f.TRCs) != c.want {
			t.Errorf("%s: %+v, %v", name, f.TRCs, err)
		}
		var found findings
		checkTRCs(f, &found)
		for _, x := range found {
			if c.want > 0 && (x.Status != Warn || !strings.Contains(x.Found, "in "+own+" cannot be read")) {
				t.Errorf("%s: %+v", name, x)
			}
		}
	}
}

// A name is looked up even if SCION does not work on this host: the finding says what was found.
func TestNameWithoutSCION(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hosts"), []byte("1-ff00:0:111,[192.0.2.1] known\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]Finding{
		"known:31000":   {Check: "name", Status: OK, Found: "known is 1-ff00:0:111,[192.0.2.1]:31000"},
		"unknown:31000": {Check: "name", Status: Fail, Found: "unknown: "},
	} {
		f, err := Gather(t.Context(), Options{SCION: scionnet.Config{ConfigDir: dir, DNS: "127.0.0.1:1"}, Target: target})
		var found findings
		checkName(f, &found)
		if err != nil || f.OpenErr == nil || len(found) != 1 || found[0].Status != want.Status || !strings.HasPrefix(found[0].Found, want.Found) {
			t.Errorf("%s: %+v, %v; want %+v", target, found, err, want)
		}
	}
}

// A tracker over WebSocket is asked as one over HTTP: every answer shows that it works.
func TestWebSocketTracker(t *testing.T) {
	plain, secure := httptest.NewServer(http.NotFoundHandler()), httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer plain.Close()
	defer secure.Close()
	for at, want := range map[string]string{plain.URL: "", secure.URL: "certificate"} {
		u := strings.Replace(at, "http", "ws", 1)
		f, err := Gather(t.Context(), Options{SCION: scionnet.Config{ConfigDir: t.TempDir()}, Tracker: u})
		if err != nil || (f.Tracker.Err == nil) != (want == "") || want != "" && !strings.Contains(f.Tracker.Err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", u, f.Tracker.Err, err, want)
		}
	}
}

// TRCs are read in PEM and in DER. Without an answer of a control service, the newest of the ISD
// names its core ASes.
func TestCoresOf(t *testing.T) {
	source, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/scionproto/scion").Output()
	if err != nil {
		t.Skipf("no source of scionproto: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "[a-b]") // no pattern
	if err := os.MkdirAll(filepath.Join(dir, "certs"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ISD1-B1-S1.trc", "ISD1-B1-S2.trc"} {
		b, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(source)), "pkg/scrypto/cppki/testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		b = pem.EncodeToMemory(&pem.Block{Type: "TRC", Bytes: b})
		if err := os.WriteFile(filepath.Join(dir, "certs", name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots := readTRCs(dir)
	if v := roots.validities(); len(v) != 1 || v[0].Err != nil || v[0].Name != "TRC ISD1-B1-S2" {
		t.Fatalf("%+v", v)
	}
	newest := &roots[0].signed.TRC
	cores := coresOf(newest, 0)
	if len(cores) == 0 || cores[0].ISD() != 1 || len(cores) != min(len(newest.CoreASes), maxCores) {
		t.Errorf("core ASes: %v, want those of %v", cores, newest.CoreASes)
	}
	if others := coresOf(newest, cores[0]); slices.Contains(others, cores[0]) {
		t.Errorf("the local AS is among %v", others)
	}
}

func TestTarget(t *testing.T) {
	for s, want := range map[string]string{
		"1-ff00:0:111": "", "1-ff00:0:111,[127.0.0.1]:31000": "", "mirror.example.org": "mirror.example.org", "mirror.example.org:31000": "mirror.example.org",
	} {
		if r, name, err := parseTarget(s); err != nil || r == nil || name != want {
			t.Errorf("%s: %+v, %q, %v", s, r, name, err)
		}
	}
	for _, s := range []string{"127.0.0.1:80", "1-ff00:0:111,[::", "a b", "name:99999"} {
		if r, _, err := parseTarget(s); err == nil {
			t.Errorf("%s: %+v", s, r)
		}
	}
}

// The error of a directory that cannot be written to names the directory.
func TestUnwritableDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	f, err := Gather(t.Context(), Options{SCION: scionnet.Config{ConfigDir: t.TempDir()}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if want := "write to " + dir + ": no such file or directory"; f.DirErr == nil || f.DirErr.Error() != want {
		t.Errorf("%v, want %s", f.DirErr, want)
	}
}
