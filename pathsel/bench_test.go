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

// As many peers and paths as a transfer can have. Each peer is in an AS with a single link, which all
// its paths share.
func BenchmarkAdaptiveOfManyPaths(b *testing.B) {
	v := View{Now: t0, MaxPaths: 8}
	for n := range 256 {
		for i := range 64 {
			p := path(fmt.Sprint(n, "-", i), fmt.Sprintf("1-1#%d 1-2#%[1]d, 1-2#%d 1-3#%[2]d, 1-3#%d 1-%d#1", 1+i, 100*n+i, 200+n, 10+n))
			c := Candidate{Key: Key{Peer: PeerID(fmt.Sprint("peer", n)), Path: p.Fingerprint}, Path: p}
			if i == 0 {
				c = rated(p, float64(5+i))
				c.Key.Peer = PeerID(fmt.Sprint("peer", n))
			}
			v.Candidates = append(v.Candidates, c)
		}
	}
	for b.Loop() {
		adaptive{}.Decide(v)
	}
}
