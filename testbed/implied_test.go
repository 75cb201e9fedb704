package testbed

import (
	"fmt"
	"testing"

	"braid/pathsel"
)

// topo builds a topology from links such as {"1-ff00:0:110#1", "1-ff00:0:111#1", Child}; an AS is
// core if it has a core link or is named in core.
func impliedTopo(t *testing.T, core []string, links [][3]string) Topology {
	t.Helper()
	var topo Topology
	isCore := map[pathsel.IA]bool{}
	for _, s := range core {
		ia, err := pathsel.ParseIA(s)
		if err != nil {
			t.Fatal(err)
		}
		isCore[ia] = true
	}
	seen := map[pathsel.IA]bool{}
	for _, l := range links {
		a, errA := pathsel.ParseInterface(l[0])
		b, errB := pathsel.ParseInterface(l[1])
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		topo.Links = append(topo.Links, Link{A: LinkEnd{Interface: a}, B: LinkEnd{Interface: b}, Type: LinkType(l[2]), MTU: 1400})
		for _, i := range []pathsel.Interface{a, b} {
			if !seen[i.IA] {
				seen[i.IA] = true
				topo.ASes = append(topo.ASes, AS{IA: i.IA, Core: isCore[i.IA]})
			}
		}
	}
	return topo
}

func TestImpliedPaths(t *testing.T) {
	tests := []struct {
		name     string
		core     []string
		links    [][3]string
		src, dst string
		want     int
	}{
		{"two parallel core links", []string{"1-1", "1-2"},
			[][3]string{{"1-1#1", "1-2#1", "CORE"}, {"1-1#2", "1-2#2", "CORE"}}, "1-1", "1-2", 2},
		{"core triangle: direct and around", []string{"1-1", "1-2", "1-3"},
			[][3]string{{"1-1#1", "1-2#1", "CORE"}, {"1-2#2", "1-3#1", "CORE"}, {"1-3#2", "1-1#2", "CORE"}}, "1-1", "1-2", 2},
		{"siblings under one core", []string{"1-1"},
			[][3]string{{"1-1#1", "1-11#1", "CHILD"}, {"1-1#2", "1-12#1", "CHILD"}}, "1-11", "1-12", 1},
		{"peering beside the core", []string{"1-1"},
			[][3]string{{"1-1#1", "1-11#1", "CHILD"}, {"1-1#2", "1-12#1", "CHILD"}, {"1-11#2", "1-12#2", "PEER"}}, "1-11", "1-12", 2},
		{"peering is not for third parties", []string{"1-1"},
			[][3]string{{"1-1#1", "1-11#1", "CHILD"}, {"1-1#2", "1-12#1", "CHILD"}, {"1-11#2", "1-12#2", "PEER"}}, "1-1", "1-12", 1},
		{"shortcut through the common parent", []string{"1-1"},
			[][3]string{{"1-1#1", "1-11#1", "CHILD"}, {"1-11#2", "1-21#1", "CHILD"}, {"1-11#3", "1-22#1", "CHILD"}}, "1-21", "1-22", 1},
		{"down to a grandchild", []string{"1-1"},
			[][3]string{{"1-1#1", "1-11#1", "CHILD"}, {"1-11#2", "1-21#1", "CHILD"}}, "1-1", "1-21", 1},
		{"two ISDs, every combination", []string{"1-1", "1-2", "2-1", "2-2"},
			[][3]string{{"1-1#1", "2-1#1", "CORE"}, {"1-2#1", "2-2#1", "CORE"},
				{"1-1#2", "1-11#1", "CHILD"}, {"1-2#2", "1-11#2", "CHILD"},
				{"2-1#2", "2-11#1", "CHILD"}, {"2-2#2", "2-11#2", "CHILD"}}, "1-11", "2-11", 2},
		{"leaves do not carry transit", []string{"1-1", "1-2"},
			[][3]string{{"1-1#1", "1-11#1", "CHILD"}, {"1-2#1", "1-11#2", "CHILD"}, {"1-1#2", "1-2#2", "CORE"}}, "1-1", "1-2", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			src, _ := pathsel.ParseIA(tt.src)
			dst, _ := pathsel.ParseIA(tt.dst)
			implied := mustImply(t, impliedTopo(t, tt.core, tt.links), 100)
			if got := implied[Pair{src, dst}]; got != tt.want {
				t.Errorf("%s to %s: %d paths, want %d", tt.src, tt.dst, got, tt.want)
			}
			if ab, ba := implied[Pair{src, dst}], implied[Pair{dst, src}]; ab != ba {
				t.Errorf("%d paths one way and %d back: links work both ways", ab, ba)
			}
		})
	}
}

func TestImpliedPathsIsBoundedByTheBestSet(t *testing.T) {
	var links [][3]string
	for i := range 30 {
		id := string(rune('0'+i/10)) + string(rune('0'+i%10))
		links = append(links, [3]string{"1-1#1" + id, "1-2#1" + id, "CORE"})
	}
	topo := impliedTopo(t, []string{"1-1", "1-2"}, links)
	p := Pair{topo.ASes[0].IA, topo.ASes[1].IA}
	if got := mustImply(t, topo, 20)[p]; got != 20 {
		t.Errorf("30 links and a best set of 20: %d paths", got)
	}
	if got := mustImply(t, topo, 60)[p]; got != 30 {
		t.Errorf("30 links and a best set of 60: %d paths", got)
	}
}

func mustImply(t *testing.T, topo Topology, bestSetSize int) map[Pair]int {
	t.Helper()
	found, err := discover(topo, bestSetSize)
	if err != nil {
		t.Fatal(err)
	}
	return found.paths(topo, bestSetSize)
}

// mesh links every two of n core ASes.
func mesh(t *testing.T, n int) Topology {
	t.Helper()
	var links [][3]string
	var core []string
	for i := 1; i <= n; i++ {
		core = append(core, fmt.Sprintf("1-%d", i))
		for j := i + 1; j <= n; j++ {
			links = append(links, [3]string{fmt.Sprintf("1-%d#%d", i, j), fmt.Sprintf("1-%d#%d", j, i), "CORE"})
		}
	}
	return impliedTopo(t, core, links)
}

// Of a mesh there are more ways than fit into memory, of which only the shortest count.
func TestImpliedPathsOfAMesh(t *testing.T) {
	if got := mustImply(t, mesh(t, 4), 64); got[Pair{0x1000000000001, 0x1000000000002}] != 5 { // direct, over one (2), over two (2)
		t.Errorf("of four: %v", got)
	}
	for p, n := range mustImply(t, mesh(t, 16), 64) {
		if n != 64 {
			t.Fatalf("%v: %d paths", p, n)
		}
	}
}

// Where one AS hangs on a mesh by a chain, the ways to it are long, and too many to count.
func TestImpliedPathsGivesUp(t *testing.T) {
	t.Parallel()
	topo := mesh(t, 16)
	for i := range 8 {
		more := impliedTopo(t, []string{fmt.Sprintf("1-%d", 16+i), fmt.Sprintf("1-%d", 17+i)},
			[][3]string{{fmt.Sprintf("1-%d#100", 16+i), fmt.Sprintf("1-%d#101", 17+i), "CORE"}})
		topo.ASes, topo.Links = append(topo.ASes, more.ASes[1]), append(topo.Links, more.Links...)
	}
	if _, err := discover(topo, 64); err == nil {
		t.Error("it was counted")
	}
}
