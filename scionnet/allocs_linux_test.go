//go:build !race

package scionnet

import (
	"bytes"
	"testing"
)

// The race detector makes pools drop entries, so this test does not run under it.
func TestAllocsOfPackets(t *testing.T) {
	a, b, to := fastPair(t)
	run := bytes.Repeat(quicLike(1400, 1), 14)
	oob := batch(1400)
	ms := messages(8)
	for _, limit := range []int{0, 8000} {
		to.large.limit.Store(int32(limit))
		allocs := testing.AllocsPerRun(200, func() {
			if _, _, err := a.WriteMsgUDP(run, oob, to.pseudo); err != nil {
				t.Fatal(err)
			}
			for got := 0; got < len(run); {
				n, err := b.ReadBatch(ms, 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range ms[:n] {
					got += m.N
				}
			}
		})
		// Fourteen packets were sent and received each time. Now and then the garbage collector
		// empties a pool.
		if allocs >= 1 {
			t.Errorf("limit %d: %v allocations for a batch of 14 packets", limit, allocs)
		}
	}
}
