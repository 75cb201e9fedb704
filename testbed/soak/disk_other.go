//go:build !linux

package soak

import "errors"

func (r *run) mountDisk() (string, error) { return "", errors.ErrUnsupported }
