package testbed

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"braid/pathsel"
)

// controlService is the name of an AS's control service.
const controlService = "cs-1"

// process is a SCION program that the testbed runs.
type process struct {
	ia   pathsel.IA
	name string // cs-1, br-1 ...
	log  string // file with what it prints
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and been waited for
	err  error         // how it ended; read it after done
}

func (p *process) String() string { return p.ia.String() + " " + p.name }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// reason says how a process that has ended did so, with the last words of its log.
func (p *process) reason() string {
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	if last := LastWords(p.log, 0); last != "" {
		how += "; the end of " + p.log + ":\n" + last
	}
	return how
}

// Launcher starts processes from one operating system thread. Linux kills a child when the thread
// that forked it ends. This thread ends with the launcher or the program, however that ends, so no
// process outlives the testbed.
type Launcher struct {
	starts chan func()
	env    []string
}

// NewLauncher starts the thread. Launched processes have the priority that this process had before
// RaisePriority.
func NewLauncher() *Launcher {
	l := &Launcher{starts: make(chan func()), env: append(os.Environ(), childEnvironment...)}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		_ = lowerThread()      // needs no privilege
		for start := range l.starts {
			start()
		}
	}()
	return l
}

// Start starts the command on the launcher's thread.
func (l *Launcher) Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = dieWithParent(cmd.SysProcAttr)
	result := make(chan error)
	l.starts <- func() { result <- cmd.Start() }
	return <-result
}

// MaxLine bounds a line of a program's events: one of a download with hundreds of paths has some
// hundred kilobytes.
const MaxLine = 4 << 20

// Follow starts a program whose standard error is appended to a log. It calls line with each line
// of its standard output, whose bytes belong to the callee, and ended with how it ended.
func (l *Launcher) Follow(cmd *exec.Cmd, log string, line func([]byte), ended func(error)) error {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd.Stderr = f
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = l.Start(cmd)
	}
	if err != nil {
		return err
	}
	go func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, MaxLine)
		for lines.Scan() {
			line(bytes.Clone(lines.Bytes()))
		}
		_, _ = io.Copy(io.Discard, out) // after a line that is too long
		ended(cmd.Wait())
	}()
	return nil
}

// Close ends the thread, and kills all processes that still run.
func (l *Launcher) Close() { close(l.starts) }

// childEnvironment trades a little CPU time of the control plane for memory: the collector runs at
// 50 % growth instead of 100 %.
var childEnvironment = []string{"GOGC=50"}

// start runs the command with a configuration file, in that folder, and notes when it ends.
func (l *Launcher) start(p *process, command []string, config string, ended func(*process)) error {
	out, err := os.Create(p.log)
	if err != nil {
		return fmt.Errorf("start %s: %w", p, err)
	}
	defer out.Close()
	p.done = make(chan struct{})
	p.cmd = exec.Command(command[0], append(slices.Clone(command[1:]), "--config", config)...)
	p.cmd.Dir, p.cmd.Env = filepath.Dir(config), l.env
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := l.Start(p.cmd); err != nil {
		return fmt.Errorf("start %s: %w", p, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
		ended(p)
	}()
	return nil
}

// stopAll kills the processes and waits until they are gone. An interrupted control service would
// take two seconds to end, and saves nothing that the next start uses.
func stopAll(ps []*process) {
	for _, p := range ps {
		p.cmd.Process.Kill()
	}
	for _, p := range ps {
		<-p.done
	}
}

// Usage is what a process has used. All is 0 where there is no /proc, memory is 0 once it has
// ended.
type Usage struct {
	CPU float64 // seconds of user and system
	// RSS counts every resident page. PSS divides pages that several processes share, such as the
	// program's text, by their number. Both are in bytes.
	RSS, PSS int64
}

func (p *process) usage() Usage {
	if p.ended() {
		s := p.cmd.ProcessState
		return Usage{CPU: (s.UserTime() + s.SystemTime()).Seconds()}
	}
	return UsageOf(p.cmd.Process.Pid)
}

// LastWords returns the end of a log, or the beginning of a panic in it. It does not look at the
// first bytes, which an earlier process has written.
func LastWords(log string, earlier int64) string {
	const most = 2000
	b, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	b = b[min(len(b), int(earlier)):]
	for _, crash := range []string{"panic: ", "fatal error: "} {
		if i := bytes.Index(b, []byte(crash)); i >= 0 {
			return string(b[i:min(len(b), i+most)])
		}
	}
	return string(bytes.TrimSpace(b[max(0, len(b)-most):]))
}

// programs are the SCION programs.
type programs struct{ router, control, pki string }

func findPrograms(dir string) (programs, error) {
	dir = cmp.Or(dir, os.Getenv("BRAID_SCION_BIN"))
	if exe, err := os.Executable(); dir == "" && err == nil {
		dir = filepath.Join(filepath.Dir(exe), "scion")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return programs{}, err
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	p := programs{at("router"), at("control"), at("scion-pki")}
	missing := slices.ContainsFunc([]string{p.router, p.control, p.pki}, func(name string) bool {
		st, err := os.Stat(name)
		return err != nil || st.IsDir() || st.Mode()&0o111 == 0
	})
	if !missing {
		return p, nil
	}
	return programs{}, fmt.Errorf("SCION programs not found: router, control and scion-pki are not in %s; "+
		"run ./scripts/build, or say where they are with --scion-bin or BRAID_SCION_BIN", dir)
}
