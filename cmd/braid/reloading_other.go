//go:build !linux

package main

import "github.com/coreos/go-systemd/v22/daemon"

// reloading is the message to systemd, which is not here.
func reloading() string { return daemon.SdNotifyReloading }
