//go:build !linux

package doctor

import "errors"

// offload says that braid uses offloading on Linux only.
func offload() error { return errors.New("braid uses that on Linux only") }
