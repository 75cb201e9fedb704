//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// followTerminal draws the frame again when the terminal's size changes, and erases it before the
// shell gets the terminal (Ctrl-Z). It returns at once.
func (p *printer) followTerminal() {
	if !p.live() {
		return
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGTSTP)
	go func() {
		for s := range signals {
			if s == syscall.SIGTSTP {
				p.clear()
				_ = syscall.Kill(0, syscall.SIGSTOP) // stop the job, as SIGTSTP would have done
				continue
			}
			p.resized()
		}
	}()
}

// foreground tells whether this process's job has the terminal. If not, drawing would overwrite a
// prompt.
func foreground(terminal *os.File) bool {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}
