//go:build !linux

package scionnet

import "sync/atomic"

var roughIO = map[string]func(every int, silent *atomic.Bool) packetIO{"plain": roughPlainIO}

var packetConns = map[string]ListenConfig{"plain": {PlainPackets: true}}
