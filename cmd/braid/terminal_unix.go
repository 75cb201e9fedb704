//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// followTerminal keeps what is drawn in place when the terminal's size changes, and takes it away
// before the shell has the terminal (Ctrl-Z). It returns at once.
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
				_ = syscall.Kill(0, syscall.SIGSTOP) // as the signal would have done: the whole job
				continue
			}
			p.resized()
		}
	}()
}

// foreground tells whether this process's job has the terminal. Another one's prompt must not be
// drawn over.
func foreground(terminal *os.File) bool {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}
