package testbed

import (
	"testing"

	"braid/pathsel"
)

// topo builds a topology from links such as {"1-ff00:0:110#1", "1-ff00:0:111#1", Child}; an AS is core if
// it has a core link or is named in core.
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
			implied := ImpliedPaths(impliedTopo(t, tt.core, tt.links), 100)
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
	if got := ImpliedPaths(topo, 20)[p]; got != 20 {
		t.Errorf("30 links and a best set of 20: %d paths", got)
	}
	if got := ImpliedPaths(topo, 60)[p]; got != 30 {
		t.Errorf("30 links and a best set of 60: %d paths", got)
	}
}
