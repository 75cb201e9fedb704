//go:build !linux

// Package fastrouter is for Linux.
package fastrouter

import (
	"context"
	"errors"
)

// Run fails, since there is no fast router for this system.
func Run(context.Context, string) error {
	return errors.New("the fast router needs Linux: use --router stock")
}
