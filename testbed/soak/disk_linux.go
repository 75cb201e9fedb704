package soak

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// mountDisk mounts a small file system in a user and a mount namespace, which needs no root. A
// process in these namespaces gives the others access to it (/proc/PID/root), until the run kills
// it.
func (r *run) mountDisk() (string, error) {
	dir := filepath.Join(r.Dir, "disk")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	const script = `mount -t tmpfs -o size=24m braid-soak "$0" && echo mounted && exec sleep infinity`
	cmd := exec.Command("sh", "-c", script, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = r.launcher.Start(cmd)
	}
	if err != nil {
		return "", err
	}
	r.work.Go(func() { _ = cmd.Wait() }) // it is killed
	r.holder = cmd.Process
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return "", fmt.Errorf("mount says %q: %w", line, err)
	}
	return fmt.Sprintf("/proc/%d/root%s", cmd.Process.Pid, dir), nil
}
