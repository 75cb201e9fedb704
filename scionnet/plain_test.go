package scionnet_test

import (
	"testing"

	"braid/pathsel"
	"braid/scionnet"
	"braid/scionnet/conformance"
)

// pairOf is two endpoints of one host.
func pairOf(t *testing.T, cfg scionnet.ListenConfig) conformance.Pair {
	h := scionnet.OneAS(t)
	paths, err := h.Paths(t.Context(), h.IA())
	if err != nil {
		t.Fatal(err)
	}
	return conformance.Pair{
		Dialer:   scionnet.ListenOn(t, h, cfg),
		Acceptor: scionnet.ListenOn(t, h, cfg),
		Paths:    []pathsel.Path{paths[0]},
		Short:    raceDetector || testing.Short(),
	}
}

func TestPlain(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Pair { return pairOf(t, scionnet.ListenConfig{}) })
}
