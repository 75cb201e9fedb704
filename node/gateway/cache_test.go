package gateway

import (
	"slices"
	"testing"
	"time"

	"braid/tracker/wire"
)

func TestMakeRoom(t *testing.T) {
	hash := func(n byte) wire.InfoHash { return wire.InfoHash{n} }
	// Each holding: its number, size, state and network. The first was used the longest time ago.
	h := func(n byte, size int64, s state, network string) holding {
		return holding{hash: hash(n), size: size, state: s, used: time.Unix(int64(n), 0), network: network}
	}
	for _, tt := range []struct {
		name string
		want holding
		all  []holding
		out  []wire.InfoHash
		ok   bool
	}{
		{"an empty cache", h(9, 100, away, ""), nil, nil, true},
		{"too large", h(9, 101, away, ""), nil, nil, false},
		{"room is left", h(9, 40, away, ""), []holding{h(1, 60, away, "")}, nil, true},
		{"the least recently used goes", h(9, 50, away, ""), []holding{h(1, 30, away, ""), h(2, 30, away, "")}, []wire.InfoHash{hash(1)}, true},
		{"as many as are needed", h(9, 80, away, ""), []holding{h(1, 30, away, ""), h(2, 30, away, "")}, []wire.InfoHash{hash(1), hash(2)}, true},
		{"its own data stays", h(1, 30, away, ""), []holding{h(1, 30, away, ""), h(2, 70, away, "")}, nil, true},
		{"unused ones go before older ones in use", h(9, 50, away, ""), []holding{h(1, 40, here, "b"), h(2, 40, away, "")}, []wire.InfoHash{hash(2)}, true},
		{"the same network takes nothing from itself", h(9, 50, away, ""), []holding{h(1, 60, here, "a")}, nil, false},
		{"a network with more makes room", h(9, 30, away, ""), []holding{h(1, 40, here, "b"), h(2, 40, here, "b")}, []wire.InfoHash{hash(1)}, true},
		{"a network with less does not", h(9, 60, away, ""), []holding{h(1, 50, here, "b")}, nil, false},
		{"who holds much asks in vain", h(9, 30, away, ""), []holding{h(1, 50, here, "a"), h(2, 40, here, "b")}, nil, false},
		{"joins and leaves are left alone", h(9, 30, away, ""), []holding{h(1, 50, joining, "b"), h(2, 50, leaving, "b")}, nil, false},
	} {
		out, ok := makeRoom(tt.want, tt.all, 100, "a")
		if ok != tt.ok || !slices.Equal(out, tt.out) {
			t.Errorf("%s: %v, %v; want %v, %v", tt.name, out, ok, tt.out, tt.ok)
		}
	}
}
