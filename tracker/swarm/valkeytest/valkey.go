// Package valkeytest runs a Valkey or Redis server for tests.
package valkeytest

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// Server speaks the Redis protocol on loopback. It is Valkey or Redis, whichever is installed.
type Server struct {
	Addr string // host and port
	t    *testing.T
	args []string
	cmd  *exec.Cmd
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
	v := &Server{t: t, args: []string{program, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir()}}
	v.args = append(v.args, settings...)
	for range 100 {
		// Below those that the system gives to connections, so that it is free for a Restart.
		port := strconv.Itoa(10_000 + rand.IntN(20_000))
		v.Addr, v.args = "127.0.0.1:"+port, append(v.args, "--port", port)
		if err = v.start(); err == nil {
			t.Cleanup(v.Stop)
			return v
		}
	}
	t.Fatal(err)
	return nil
}

// Restart starts an empty server at the same address, after Stop.
func (v *Server) Restart() {
	v.t.Helper()
	if err := v.start(); err != nil {
		v.t.Fatal(err)
	}
}

// start returns once the server takes connections. The error is what it says if it ends instead.
func (v *Server) start() error {
	v.cmd = exec.Command(v.args[0], v.args[1:]...)
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	v.cmd.Stderr = v.cmd.Stdout
	if err := v.cmd.Start(); err != nil {
		return err
	}
	said := v.args[0]
	for lines := bufio.NewScanner(out); lines.Scan(); said += "\n" + lines.Text() {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return nil
		}
	}
	_ = v.cmd.Wait()
	return errors.New(said)
}

// Stop ends the server without warning.
func (v *Server) Stop() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
}
