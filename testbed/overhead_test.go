package testbed

import (
	"math"
	"testing"

	"braid/pathsel"
)

func interfacesOf(t *testing.T, s ...string) []pathsel.Interface {
	t.Helper()
	var out []pathsel.Interface
	for _, x := range s {
		i, err := pathsel.ParseInterface(x)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, i)
	}
	return out
}

func TestPathHeader(t *testing.T) {
	topo := impliedTopo(t, []string{"1-1", "1-2"}, [][3]string{
		{"1-1#1", "1-2#1", "CORE"},
		{"1-1#2", "1-11#1", "CHILD"}, {"1-2#2", "1-12#1", "CHILD"},
		{"1-11#2", "1-21#1", "CHILD"}, {"1-12#2", "1-22#1", "CHILD"},
		{"1-21#9", "1-22#9", "PEER"},
		{"1-11#3", "1-12#3", "PEER"},
	})
	for _, tt := range []struct {
		name           string
		path           []string
		segments, hops int
	}{
		{"one core link", []string{"1-1#1", "1-2#1"}, 1, 2},
		{"down", []string{"1-1#2", "1-11#1", "1-11#2", "1-21#1"}, 1, 3},
		{"up, core, down", []string{"1-21#1", "1-11#2", "1-11#1", "1-1#2", "1-1#1", "1-2#1", "1-2#2", "1-12#1", "1-12#2", "1-22#1"}, 3, 8},
		{"up and down", []string{"1-21#1", "1-11#2", "1-11#1", "1-1#2", "1-1#1", "1-2#1"}, 2, 5},
		{"peering between leaves", []string{"1-21#9", "1-22#9"}, 2, 2},
		{"peering in the middle", []string{"1-21#1", "1-11#2", "1-11#3", "1-12#3", "1-12#2", "1-22#1"}, 2, 4},
	} {
		got, err := PathHeader(topo, interfacesOf(t, tt.path...))
		if want := 48 + 8*tt.segments + 12*tt.hops; err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", tt.name, got, err, want)
		}
	}
	if _, err := PathHeader(topo, interfacesOf(t, "1-7#1", "1-8#1")); err == nil {
		t.Error("an unknown interface has a header")
	}
}

// The shares were measured on real packets: 3 ASes in one segment 0.909 and in two 0.894, 6 ASes in
// three segments 0.854 of a 1400-byte packet.
func TestPayloadShare(t *testing.T) {
	for _, tt := range []struct {
		segments, hops int
		want           float64
	}{{1, 3, 0.909}, {2, 4, 0.894}, {3, 8, 0.854}} {
		if got := QUICPacket(1400, 48+8*tt.segments+12*tt.hops).PayloadShare(); math.Abs(got-tt.want) > 0.005 {
			t.Errorf("%d segments, %d hop fields: %.4f, want about %.3f", tt.segments, tt.hops, got, tt.want)
		}
	}
}
