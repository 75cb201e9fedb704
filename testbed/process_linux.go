package testbed

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// above is the number of nice levels by which RaisePriority raises this process above its children.
const above = 10

// raised says that this process has raised its priority.
var raised atomic.Bool

// RaisePriority raises this process above others if it may (as root), because its emulated links
// must send each packet in time. Only the first call does anything. Processes inherit their parent's
// priority, so launchers lower that of theirs again.
var RaisePriority = sync.OnceValue(func() error {
	threads, err := procfs.AllThreads(os.Getpid()) // each has its priority, and new threads inherit it
	for i := 0; i < len(threads) && err == nil; i++ {
		err = reniceThread(threads[i].PID, -above)
	}
	if err != nil {
		return fmt.Errorf("raise priority: %w", err)
	}
	raised.Store(true)
	return nil
})

// lowerThread gives the calling thread, which must be locked, the priority from before
// RaisePriority.
func lowerThread() error {
	if !raised.Load() {
		return nil
	}
	return reniceThread(0, above)
}

// reniceThread changes the nice level of a thread; 0 is the calling one, which must be locked.
func reniceThread(tid, by int) error {
	p, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	if err != nil {
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, tid, 20-p+by) // the system call's result is 20 less the nice level
}

// dieWithParent also puts the process into a group of its own: a Ctrl-C on the terminal is for
// braid, which then stops its processes in order.
func dieWithParent(a *syscall.SysProcAttr) *syscall.SysProcAttr {
	if a == nil {
		a = &syscall.SysProcAttr{}
	}
	a.Setpgid, a.Pdeathsig = true, syscall.SIGKILL
	return a
}

// UsageOf reads what a process has used from /proc (proc(5)).
func UsageOf(pid int) (u Usage) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return u
	}
	if s, err := p.Stat(); err == nil {
		u.CPU = s.CPUTime()
	}
	if m, err := p.ProcSMapsRollup(); err == nil {
		u.RSS, u.PSS = int64(m.Rss), int64(m.Pss)
	}
	return u
}

// pauseProcess stops a process, and waits until it has stopped.
func pauseProcess(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStop(p.Pid)
}

func resumeProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// awaitStop returns when no thread of a process runs any more. A signal only asks for that: a
// thread goes on until it has been scheduled once more, and a router answered a question after its
// pause.
func awaitStop(pid int) error {
	for range 500 { // of 10 ms
		threads, err := procfs.AllThreads(pid)
		if err != nil {
			return err
		}
		running := slices.ContainsFunc(threads, func(t procfs.Proc) bool {
			s, err := t.Stat() // a thread that has ended has none
			return err == nil && s.State != "T"
		})
		if len(threads) > 0 && !running {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("process %d still runs", pid)
}
