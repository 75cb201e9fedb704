package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// IsFull tells whether an error says that the disk, or the user's share of it, is full.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// roomWanted is the free space that a download needs before it continues after a full disk: for
// waiting blocks and the record.
const roomWanted = 2 * maxBuffered

// HasRoom returns nil if there is free space again on the disk of a store from Open. It writes a
// file and deletes it: free space that the system reports may be reserved for others.
func HasRoom(st Store) error {
	s := writable(st)
	if s == nil {
		return nil
	}
	f, err := os.CreateTemp(filepath.Join(s.dir, recordDir), "room-")
	if err != nil {
		return fmt.Errorf("look for room: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil { // at once: a killed process would leave it
		defer os.Remove(f.Name()) // where an open file cannot be deleted
	}
	defer f.Close()
	b := make([]byte, 1<<20)
	for off := int64(0); off < roomWanted; off += int64(len(b)) {
		if _, err := s.options.system.Write(f, b, off); err != nil {
			return fmt.Errorf("look for room: %w", err)
		}
	}
	return nil
}
