//go:build !linux

package bootstrap

import "context"

// informAll is for Linux only: other systems bind sockets to interfaces in other ways.
func informAll(context.Context) ([]Hint, error) { return nil, nil }
