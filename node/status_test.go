package node

import (
	"testing"

	"braid/client"
	"braid/pathsel"
)

// A path counts if its connection carries data: not if it is parked or still being opened.
func TestCountPaths(t *testing.T) {
	var s Status
	var paths []client.PathProgress
	for state := pathsel.Idle; state <= pathsel.Probing; state++ {
		paths = append(paths, client.PathProgress{Peer: "peer", State: state})
	}
	if s.count(client.Progress{Paths: paths}); s.Paths != 2 || s.Peers != 1 {
		t.Errorf("%d paths to %d peers", s.Paths, s.Peers)
	}
}
