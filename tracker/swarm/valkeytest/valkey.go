// Package valkeytest runs a Valkey or Redis server for tests.
package valkeytest

import (
	"bytes"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// Server speaks the Redis protocol on loopback. It is Valkey or Redis, whichever is installed.
type Server struct {
	Addr string // host and port
	t    *testing.T
	args []string
	cmd  *exec.Cmd
	out  *bytes.Buffer
}

// Start starts a server that keeps nothing on disk, with additional settings. It ends with the
// test.
func Start(t *testing.T, settings ...string) *Server {
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
	v := &Server{Addr: l.Addr().String(), t: t}
	l.Close()
	v.args = []string{program, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no"}
	v.args = append(append(v.args, "--dir", t.TempDir()), settings...)
	v.Restart()
	t.Cleanup(v.Stop)
	return v
}

// Restart starts an empty server at the same address, after Stop.
func (v *Server) Restart() {
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
			v.t.Fatalf("%s did not start: %s", v.args[0], v.out)
		}
	}
}

// Stop ends the server without warning.
func (v *Server) Stop() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
}
