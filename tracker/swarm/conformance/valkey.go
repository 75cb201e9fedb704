package conformance

import (
	"bytes"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// Valkey is a server of Redis' protocol on loopback: Valkey or Redis, whichever is installed.
type Valkey struct {
	Addr string // host and port
	t    *testing.T
	args []string
	cmd  *exec.Cmd
	out  *bytes.Buffer
}

// StartValkey starts a server that keeps nothing on disk, with those settings besides. It ends with the test.
func StartValkey(t *testing.T, settings ...string) *Valkey {
	t.Helper()
	program, err := exec.LookPath("valkey-server")
	if err != nil {
		if program, err = exec.LookPath("redis-server"); err != nil {
			t.Fatal("neither valkey-server nor redis-server is installed; run ./scripts/install-deps")
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	v := &Valkey{Addr: l.Addr().String(), t: t}
	l.Close()
	v.args = append([]string{program, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", t.TempDir()}, settings...)
	v.Start()
	t.Cleanup(v.Stop)
	return v
}

// Start starts the server again, empty, at the same address.
func (v *Valkey) Start() {
	v.t.Helper()
	v.out = &bytes.Buffer{}
	v.cmd = exec.Command(v.args[0], v.args[1:]...)
	v.cmd.Stdout, v.cmd.Stderr = v.out, v.out
	if err := v.cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	const patience = 30 * time.Second
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("tcp", v.Addr); err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			v.Stop()
			v.t.Fatalf("%s does not start: %s", v.args[0], v.out)
		}
	}
}

// Stop ends the server without warning.
func (v *Valkey) Stop() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
}
