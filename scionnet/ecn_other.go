//go:build !(darwin || freebsd || linux)

package scionnet

// withoutECN changes nothing: QUIC uses no control data here.
func withoutECN(oob []byte) []byte { return oob }
