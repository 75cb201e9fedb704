package testbed

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"braid/storage/durable"
)

// Files in the directory of a testbed, beside gen (configuration) and logs.
const (
	lockFile   = "lock" // locked while the testbed lives; holds the process ID
	stateFile  = "state.json"
	socketFile = "control.sock"
)

// errRunning is returned when the directory already has a running testbed.
var errRunning = errors.New("a testbed is already running here")

// errNotRunning is returned when the directory has no running testbed.
var errNotRunning = errors.New("no testbed is running here")

// lockDir creates the directory and takes it for this testbed.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create testbed directory: %w", err)
	}
	f, err := durable.OpenLocked(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o644, 0)
	if errors.Is(err, durable.ErrInUse) {
		return nil, fmt.Errorf("%s: %w (process %s): "+
			"take it down with 'braid-testbed down' or choose another directory", dir, errRunning, owner(dir))
	}
	if err != nil {
		return nil, fmt.Errorf("lock testbed directory: %w", err)
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock testbed directory: %w", err)
	}
	return f, nil
}

// unlockDir gives the directory back. To close the file alone would not do while another goroutine
// starts a program: until that runs, it has the file open, too.
func unlockDir(f *os.File) {
	_ = durable.Unlock(f)
	f.Close()
}

// owner returns the process ID in the lock file.
func owner(dir string) string {
	b, _ := os.ReadFile(filepath.Join(dir, lockFile))
	return strings.TrimSpace(string(b[:min(len(b), 32)]))
}

// locked tells whether a testbed has the directory, and the process ID that it wrote.
func locked(dir string) (pid string, yes bool, err error) {
	f, err := durable.OpenLocked(filepath.Join(dir, lockFile), os.O_RDONLY, 0, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", false, nil
	case errors.Is(err, durable.ErrInUse):
		return owner(dir), true, nil
	case err != nil:
		return "", false, fmt.Errorf("testbed directory: %w", err)
	}
	return owner(dir), false, f.Close()
}

// State is what a testbed writes to state.json while it lives, for programs that want to find its
// hosts and processes without asking.
type State struct {
	Topology  string       `json:"topology"`
	PID       int          `json:"pid"` // of the supervisor
	Started   time.Time    `json:"started"`
	Subnet    netip.Prefix `json:"subnet"`
	ASes      []ASStatus   `json:"ases"`
	Processes []ProcessRef `json:"processes"`
}

// ProcessRef names a process.
type ProcessRef struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
}

// State returns the state of the network.
func (n *Network) State() State {
	s := State{Topology: n.opts.Topology.Name, PID: os.Getpid(), Started: n.started, Subnet: n.plan.subnet}
	for _, a := range n.plan.ases {
		s.ASes = append(s.ASes, ASStatus{a.IA, a.Core, a.host, n.ConfigDir(a.IA)})
	}
	for _, p := range n.all() {
		s.Processes = append(s.Processes, ProcessRef{p.String(), p.cmd.Process.Pid})
	}
	return s
}

// StateOf reads the state of the testbed in dir, which may have died since.
func StateOf(dir string) (State, error) {
	var s State
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return State{}, fmt.Errorf("read testbed state: %w", err)
	}
	return s, nil
}

func (n *Network) writeState() error {
	if err := WriteJSON(filepath.Join(n.dir, stateFile), n.State()); err != nil {
		return fmt.Errorf("write testbed state: %w", err)
	}
	return nil
}

// WriteJSON writes a file as a whole or not at all: a reader never sees half of it.
func WriteJSON(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// notRunning says that no testbed runs in the directory, and whether one died there.
func notRunning(dir string) error {
	s, err := StateOf(dir)
	if err != nil {
		return fmt.Errorf("%s: %w: start one with 'braid-testbed up'", dir, errNotRunning)
	}
	return fmt.Errorf("%s: %w: the one with process %d, started %s, died without cleaning up "+
		"(its routers and services died with it); start it again with 'braid-testbed up'",
		dir, errNotRunning, s.PID, s.Started.Format(time.DateTime))
}
