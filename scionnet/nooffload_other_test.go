//go:build !linux

package scionnet

// NoOffload is how packets are sent here anyway.
var NoOffload ListenConfig
