package testbed

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A program that is being started has a copy of each open file until it runs.
func TestUnlockDir(t *testing.T) {
	dir := t.TempDir()
	f, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockDir(dir); err == nil {
		t.Error("two testbeds have the directory")
	}
	starting, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(starting)
	unlockDir(f)
	if f, err = lockDir(dir); err != nil {
		t.Fatal(err)
	}
	unlockDir(f)
}
