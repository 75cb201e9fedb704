//go:build !linux

package load

import (
	"errors"
	"os/exec"
)

func startPinned(cmd *exec.Cmd, core int) error {
	if core >= 0 {
		return errors.New("programs are pinned to cores on Linux only: give -1 for the cores")
	}
	return cmd.Start()
}
