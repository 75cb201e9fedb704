//go:build unix

package terminal

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// FollowTerminal draws the frames again when the terminal's size changes. It erases them before the
// shell gets the terminal (Ctrl-Z), and draws them again when braid goes on. It returns at once.
func FollowTerminal(printers ...*Printer) {
	printers = slices.DeleteFunc(printers, func(p *Printer) bool { return !p.Live() })
	if len(printers) == 0 {
		return
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGTSTP)
	go func() {
		for s := range signals {
			if s == syscall.SIGTSTP {
				stopJob(printers)
				continue
			}
			for _, p := range printers {
				p.resized()
			}
		}
	}()
}

// stopJob stops the job, as SIGTSTP would have done. Nothing is printed before the job goes on.
// Kill may return a moment before the job stops.
func stopJob(printers []*Printer) {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	for _, p := range printers {
		p.mu.Lock()
		defer p.mu.Unlock()
		_ = p.send(p.erased())
		defer p.repaint()
	}
	_ = syscall.Kill(0, syscall.SIGSTOP)
	<-goesOn
}

// WatchReader calls lost when the program that reads the printer's output, such as head -1, has
// ended. Otherwise braid would notice that at its next line only, which may never come.
func (p *Printer) WatchReader() {
	f, ok := p.W.(*os.File)
	if !ok || p.Lost == nil {
		return
	}
	gone := []unix.PollFd{{Fd: int32(f.Fd())}} //nolint:gosec // descriptors are small
	go func() {
		_, err := unix.Poll(gone, -1)
		for errors.Is(err, unix.EINTR) {
			_, err = unix.Poll(gone, -1)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if err == nil && p.err == nil {
			p.err = &os.PathError{Op: "write", Path: f.Name(), Err: unix.EPIPE}
			p.Lost()
		}
	}()
}

// foreground tells whether this process's job has the terminal. If not, drawing would overwrite a
// prompt.
func foreground(terminal *os.File) bool {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}
