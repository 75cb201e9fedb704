//go:build !linux

package scionnet

// NoOffload changes nothing, since there is no offloading on this system.
var NoOffload ListenConfig

// HasBundles says that no packet connection of this system sends bundles.
const HasBundles = false
