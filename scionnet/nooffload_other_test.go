//go:build !linux

package scionnet

// NoOffload is how packets are sent here anyway.
var NoOffload ListenConfig

// HasBundles says that there are no packet connections here that put several QUIC packets into a
// large one.
const HasBundles = false
