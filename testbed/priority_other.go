//go:build !linux

package testbed

// RaisePriority does nothing here. On other systems a priority belongs to the process, and its
// children inherit it.
func RaisePriority() error { return nil }

func lowerThread() error { return nil }
