package web

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const unixPrefix = "unix:"

// ErrNeedsPassword says that an address is open to others while no password is set.
var ErrNeedsPassword = errors.New("others could control this braid: " +
	"set a password first, or listen on 127.0.0.1")

// listen opens unix:PATH, or host:port on TCP.
func listen(address string, password bool) (l net.Listener, err error) {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		l, err = listenUnix(path)
	} else {
		l, err = listenTCP(address, password)
	}
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", address, err)
	}
	return l, nil
}

// listenTCP listens only on loopback if there is no password.
func listenTCP(address string, password bool) (net.Listener, error) {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	if !password && !a.IP.IsLoopback() {
		return nil, ErrNeedsPassword
	}
	return net.ListenTCP("tcp", a)
}

func addressOf(a net.Addr) string {
	if a.Network() == "unix" {
		return unixPrefix + a.String()
	}
	return a.String()
}

// unixListener is a socket that was renamed to its path.
type unixListener struct {
	*net.UnixListener
	path string
	made os.FileInfo
}

func (l *unixListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close removes the socket, unless another process has replaced it.
func (l *unixListener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.made) {
		_ = os.Remove(l.path)
	}
	return l.UnixListener.Close()
}

// listenUnix opens a socket that only its owner may use. It makes the socket in a directory of its
// own and then renames it, so that nobody else can connect before its mode is set. It replaces a
// socket that a killed process has left. If a process answers at the socket, it returns an error.
func listenUnix(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	switch c, err := net.Dial("unix", path); {
	case err == nil:
		c.Close()
		return nil, errors.New("another braid daemon answers there")
	case errors.Is(err, os.ErrNotExist):
	case !errors.Is(err, syscall.ECONNREFUSED):
		return nil, err
	}
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() != os.ModeSocket {
		return nil, errors.New("there is a file, and no socket, at this path")
	}
	private, err := os.MkdirTemp(dir, ".braid-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private)
	made := filepath.Join(private, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(made, 0o600)
	if err == nil {
		err = os.Rename(made, path)
	}
	st, statErr := os.Lstat(path)
	if err = errors.Join(err, statErr); err != nil {
		l.Close()
		return nil, err
	}
	return &unixListener{l, path, st}, nil
}
