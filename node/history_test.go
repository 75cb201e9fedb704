package node

import (
	"testing"
	"time"

	"braid/client"
	"braid/pathsel"
)

// A path that ended a day ago is forgotten. One that is still there is not, although nothing was
// decided about it since.
func TestHistoryForgets(t *testing.T) {
	var h history
	began := time.Unix(1_700_000_000, 0)
	for _, peer := range []pathsel.PeerID{"gone", "there"} {
		h.note(client.PathEvent{Name: "path-opened", Key: pathsel.Key{Peer: peer}}, began)
	}
	there := []client.PathProgress{{Peer: "there"}}
	h.record(there, began.Add(forgetAfter/2))
	if len(h.paths) != 2 {
		t.Errorf("%d paths after half a day", len(h.paths))
	}
	h.record(there, began.Add(forgetAfter+sweepEvery))
	if _, ok := h.last(pathsel.Key{Peer: "there"}); !ok || len(h.paths) != 1 {
		t.Errorf("after a day: %d paths", len(h.paths))
	}
}
