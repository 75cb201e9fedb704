//go:build !linux

// Package fastrouter is for Linux.
package fastrouter

import (
	"context"
	"errors"
)

// Run says that there is no fast router here.
func Run(context.Context, string) error {
	return errors.New("the fast router needs Linux: use --router stock")
}
