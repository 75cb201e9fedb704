package pathsel

import (
	"fmt"
	"testing"
)

// Several views are decided every second. This is the most expensive one: all paths share links
// with each other, and all are due for their first examination.
func BenchmarkAdaptive(b *testing.B) {
	for _, peers := range []int{1, 10, 50} {
		v := View{Now: t0, MaxPaths: 8}
		for n := range peers {
			for i := range 8 {
				p := path(fmt.Sprint(n, "-", i), fmt.Sprintf("1-1#1 1-2#1, 1-2#%d 1-%d#%d", 10+i, 10+n, 1+i))
				c := rated(p, float64(5+i))
				c.Key.Peer = PeerID(fmt.Sprint("peer", n))
				v.Candidates = append(v.Candidates, c)
			}
		}
		v.Memory = adaptive{}.Decide(v).Memory
		v.Now = v.Now.Add(SlotLength)
		b.Run(fmt.Sprintf("peers=%d", peers), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				adaptive{}.Decide(v)
			}
		})
	}
}
