//go:build !linux

package testbed

// RaisePriority does nothing here: elsewhere a priority is the process's, and those that it starts would have it too.
func RaisePriority() (bool, error) { return false, nil }

func lowerThread() error { return nil }
