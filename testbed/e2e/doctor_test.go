package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"braid/node/doctor"
	"braid/pathsel"
	"braid/scionnet"
	"braid/testbed"
	"braid/testbed/linkemu"
	"braid/units/await"
)

// TestDoctor injects faults into a real network, one after the other. The doctor must name each,
// with its cure, and find nothing wrong without a fault.
func TestDoctor(t *testing.T) {
	t.Parallel()
	n := startNetwork(t, "two-paths", testbed.Options{})
	here, there := ia(t, "1-ff00:0:110"), ia(t, "1-ff00:0:111")
	host := openHost(t, n, there)
	if err := host.AnswerEcho(); err != nil {
		t.Fatal(err)
	}
	peer := listen(t, host)
	one, two := pathsel.Interface{IA: here, ID: 1}, pathsel.Interface{IA: here, ID: 2}

	// edited is a copy of the AS's configuration with another topology or other files.
	edited := func(t *testing.T, old, text string) string {
		dir := t.TempDir()
		for _, sub := range []string{"certs", "crypto"} { // not the databases of a running service
			if err := os.CopyFS(filepath.Join(dir, sub), os.DirFS(filepath.Join(n.ConfigDir(here), sub))); err != nil {
				t.Fatal(err)
			}
		}
		file := filepath.Join(dir, "topology.json")
		b, err := os.ReadFile(filepath.Join(n.ConfigDir(here), "topology.json"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), old) {
			t.Fatalf("no %q in the topology", old)
		}
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(b), old, text)), 0o644); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	control := n.HostIP(here).String() + ":30252"
	setMTU := func(t *testing.T, mtu int) {
		if err := n.SetLink(one, func(c *linkemu.Config) { c.MTU = mtu }); err != nil {
			t.Fatal(err)
		}
		if err := n.SetLink(two, func(c *linkemu.Config) { c.MTU = mtu }); err != nil {
			t.Fatal(err)
		}
	}
	later := func(d time.Duration) func() time.Time { return func() time.Time { return time.Now().Add(d) } }
	const year = 365 * 24 * time.Hour

	for _, c := range []struct {
		name   string
		fault  func(t *testing.T, o *doctor.Options)
		check  string // of the finding
		found  string // part of its text
		cure   string // part of what to do
		status doctor.Status
	}{
		{name: "none"},
		{"no configuration", func(t *testing.T, o *doctor.Options) { o.SCION.ConfigDir = t.TempDir() }, "SCION setup", "there is no topology.json", "bootstrap", doctor.Fail},
		{"broken topology", func(t *testing.T, o *doctor.Options) { o.SCION.ConfigDir = edited(t, "{", "[") }, "SCION setup", "topology", "repair topology.json", doctor.Fail},
		{"dead daemon", func(t *testing.T, o *doctor.Options) { o.SCION.Daemon = "127.0.0.1:1" }, "SCION setup", "127.0.0.1:1", "start the daemon", doctor.Fail},
		{"another AS", func(t *testing.T, o *doctor.Options) { o.SCION.IA = there }, "SCION setup", "another AS", "leave out --isd-as", doctor.Fail},
		{"wrong IP", func(t *testing.T, o *doctor.Options) { o.SCION.LocalIP = netip.MustParseAddr("192.0.2.1") }, "local address", "192.0.2.1", "--local", doctor.Fail},
		{"no TRC", func(t *testing.T, o *doctor.Options) {
			o.SCION.ConfigDir = edited(t, "{", "{")
			if err := os.RemoveAll(filepath.Join(o.SCION.ConfigDir, "certs")); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(o.SCION.ConfigDir, "certs"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, "trust roots", "no TRC of ISD 1", "fetch the TRCs", doctor.Fail},
		{"damaged TRC", func(t *testing.T, o *doctor.Options) {
			o.SCION.ConfigDir = edited(t, "{", "{")
			if err := os.WriteFile(filepath.Join(o.SCION.ConfigDir, "certs", "ISD9-B1-S1.trc"), []byte("TRC"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, "trust roots", "cannot be read", "fetch it again", doctor.Fail},
		{"expired TRC", func(t *testing.T, o *doctor.Options) { o.Now = later(10 * year) }, "trust roots", "expired on", "fetch the present TRC", doctor.Fail},
		{"clock a day ahead", func(t *testing.T, o *doctor.Options) { o.Now = later(25 * time.Hour) }, "clock", "too late", "timedatectl", doctor.Fail},
		{"clock a year behind", func(t *testing.T, o *doctor.Options) { o.Now = later(-year) }, "clock", "too early", "timedatectl", doctor.Fail},
		{"expired certificate", func(t *testing.T, o *doctor.Options) {
			o.SCION.ConfigDir = edited(t, "{", "{")
			writeExpired(t, filepath.Join(o.SCION.ConfigDir, "crypto", "as", "old.pem"))
		}, "certificates", "old.pem expired", "renew", doctor.Fail},
		{"dead control service", func(t *testing.T, o *doctor.Options) {
			o.SCION.ConfigDir = edited(t, control, n.HostIP(here).String()+":9")
		}, "control service", "no answer", "firewall", doctor.Fail},
		{"port outside of the range", func(t *testing.T, o *doctor.Options) {
			o.SCION.ConfigDir, o.Port = edited(t, `"1024-65535"`, `"40000-65535"`), 31000
		}, "port", "not to port 31000", "choose a port of the range", doctor.Fail},
		{"taken port", func(t *testing.T, o *doctor.Options) { o.Port = occupy(t, n.HostIP(here), 0) }, "port", "in use", "choose another port", doctor.Fail},
		{"old dispatcher", func(t *testing.T, o *doctor.Options) { occupy(t, n.HostIP(here), 30041) }, "port 30041", "dispatcher", "stop the dispatcher", doctor.Warn},
		{"small MTU", func(t *testing.T, o *doctor.Options) {
			setMTU(t, 1350)
			t.Cleanup(func() { setMTU(t, 0) })
		}, "MTU", "and announces", "correct the MTU", doctor.Warn},
		{"closed port", func(t *testing.T, o *doctor.Options) {
			o.Target = scionnet.Addr{IA: there, Host: n.HostIP(there), Port: 31999}.String()
		}, "target port", "nothing accepts", "--listen", doctor.Fail},
		{"unknown AS", func(t *testing.T, o *doctor.Options) { o.Target = "1-ff00:0:999" }, "target", "no path", "check the ISD-AS", doctor.Fail},
		{"unknown name", func(t *testing.T, o *doctor.Options) {
			o.Target, o.SCION.DNS = "nowhere.invalid:31000", "127.0.0.1:1"
		}, "name", "nowhere.invalid", "/etc/scion/hosts", doctor.Fail},
		{"dead tracker", func(t *testing.T, o *doctor.Options) { o.Tracker = "http://127.0.0.1:1/announce" }, "tracker", "does not answer", "check its URL", doctor.Fail},
		{"dead tracker on SCION", func(t *testing.T, o *doctor.Options) {
			o.Tracker = fmt.Sprintf("scion://%s,[%s]:31998/announce", here, n.HostIP(here))
		}, "tracker", "does not answer", "check its URL", doctor.Fail},
		{"no directory", func(t *testing.T, o *doctor.Options) { o.Dir = filepath.Join(t.TempDir(), "none") }, "disk", "none", "make the directory", doctor.Fail},
		{"stopped router", func(t *testing.T, o *doctor.Options) {
			if _, err := n.Pause(one); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = n.Resume(one) })
		}, "border router", "does not answer", "whether the router runs", doctor.Warn},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := doctor.Options{
				SCION:  scionnet.Config{ConfigDir: n.ConfigDir(here), LocalIP: n.HostIP(here)},
				Target: peer.Addr().String(), Dir: t.TempDir(),
			}
			if c.fault != nil {
				c.fault(t, &o)
			}
			// A busy router or service may answer after the doctor's patience. The fault stays.
			await.True(t, fmt.Sprintf("%s %s: %s; %s, and no other failure", c.status, c.check, c.found, c.cure), func() bool {
				f, err := doctor.Gather(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				all := doctor.Examine(f)
				hit := c.check == ""
				for _, x := range all {
					t.Log(x)
					hit = hit || x.Check == c.check && x.Status == c.status && strings.Contains(x.Found, c.found) && strings.Contains(x.Do, c.cure)
				}
				return hit && (c.status == doctor.Fail || !doctor.Failed(all))
			})
		})
	}
}

// occupy listens at a port until the test ends.
func occupy(t *testing.T, ip netip.Addr, port uint16) uint16 {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
}

func writeExpired(t *testing.T, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
}
