//go:build !linux

package scionnet

// openFast is for Linux. Elsewhere packets go through snet.
var openFast packetIO = openPlain
