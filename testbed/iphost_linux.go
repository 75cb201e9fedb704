package testbed

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownNetwork gives a process a network namespace, and a user namespace where only that allows it.
func ownNetwork() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		// Not root inside either, once the device is there; but root is what may make it.
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	return a
}

// socketPair makes sockets over which a child passes a file.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "host"), os.NewFile(uintptr(fds[1]), "network"), nil
}

// receiveFile waits until the other side sends a file or ends.
func receiveFile(from *os.File) (*os.File, error) {
	c, err := net.FileConn(from)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.(*net.UnixConn).ReadMsgUnix(make([]byte, 1), control)
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the process has ended before")
	}
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		return nil, errors.New("no file came")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.New("no file came")
	}
	if err := unix.SetNonblock(fds[0], true); err != nil { // for the poller: a read then ends with Close
		unix.Close(fds[0])
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fds[0]), "/dev/net/tun"), nil
}

// networkFile is the descriptor of the socket in the child: the first of exec.Cmd's ExtraFiles.
const networkFile = 3

// RunInNamespace implements "braid-testbed host" in its own network namespace. It makes the device,
// passes it to the network's process, and becomes the command. It returns only if something fails.
func RunInNamespace(address netip.Prefix, mtu int, command []string) error {
	if !address.IsValid() || !address.Addr().Is4() || len(command) == 0 {
		return errors.New("an IPv4 address and a command are needed; this is for the testbed's own use")
	}
	program, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	device, err := makeDevice(address, mtu)
	if err != nil {
		return fmt.Errorf("make a network device: %w", err)
	}
	if err := unix.Sendmsg(networkFile, []byte{0}, unix.UnixRights(device), nil, 0); err != nil {
		return fmt.Errorf("hand over the network device: %w", os.NewSyscallError("sendmsg", err))
	}
	unix.Close(device)
	unix.Close(networkFile)
	return os.NewSyscallError("exec", syscall.Exec(program, command, os.Environ()))
}

// makeDevice makes a TUN device with the address, brings it and the loopback device up, and returns
// its file.
func makeDevice(address netip.Prefix, mtu int) (fd int, err error) {
	const name = "braid0"
	if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return -1, os.NewSyscallError("open /dev/net/tun", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	set := func(what string, on int, device string, request uint, value func(*unix.Ifreq) error) {
		if err != nil {
			return
		}
		var r *unix.Ifreq
		if r, err = unix.NewIfreq(device); err == nil {
			err = value(r)
		}
		if err == nil {
			err = unix.IoctlIfreq(on, request, r)
		}
		if err != nil {
			err = fmt.Errorf("%s of %s: %w", what, device, err)
		}
	}
	flags := func(f uint16) func(*unix.Ifreq) error {
		return func(r *unix.Ifreq) error { r.SetUint16(f); return nil }
	}
	number := func(v uint32) func(*unix.Ifreq) error {
		return func(r *unix.Ifreq) error { r.SetUint32(v); return nil }
	}
	mask := [4]byte(net.CIDRMask(address.Bits(), 32))
	ip4 := func(b [4]byte) func(*unix.Ifreq) error {
		return func(r *unix.Ifreq) error { return r.SetInet4Addr(b[:]) }
	}
	set("creation", fd, name, unix.TUNSETIFF, flags(unix.IFF_TUN|unix.IFF_NO_PI))
	set("address", s, name, unix.SIOCSIFADDR, ip4(address.Addr().As4()))
	set("netmask", s, name, unix.SIOCSIFNETMASK, ip4(mask))
	set("MTU", s, name, unix.SIOCSIFMTU, number(uint32(mtu)))
	set("state", s, name, unix.SIOCSIFFLAGS, flags(unix.IFF_UP))
	set("state", s, "lo", unix.SIOCSIFFLAGS, flags(unix.IFF_UP))
	return fd, err
}
