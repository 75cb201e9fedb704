//go:build !race

package swarm_test

import (
	"context"
	"runtime"
	"testing"

	"braid/tracker/swarm"
	"braid/tracker/wire"
)

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Memory of a member, in swarms of ten and in one large swarm.
func TestAllocsOfMember(t *testing.T) {
	const members = 50_000
	for name, swarms := range map[string]func(*swarm.Memory){
		"ten each": func(m *swarm.Memory) { fill(m, members) },
		"alone": func(m *swarm.Memory) {
			for n := range members {
				v := visit(2*n + 1)
				v.InfoHash = wire.InfoHash{byte(n), byte(n >> 8), byte(n >> 16)}
				_, _ = m.Announce(context.Background(), v)
			}
		},
		"all in one": func(m *swarm.Memory) {
			for n := range members {
				v := visit(n)
				v.InfoHash = wire.InfoHash{}
				_, _ = m.Announce(context.Background(), v)
			}
		},
	} {
		before := heap()
		m := swarm.NewMemory(swarm.Limits{PerAS: members, Members: 2 * members})
		swarms(m)
		after := heap()
		n, _ := m.Totals(t.Context())
		most := int64(200)
		if name == "alone" {
			most = 300 // with its swarm
		}
		if size := (after - before) / int64(n.Members); size > most {
			t.Errorf("%s: a member takes %d bytes, more than %d", name, size, most)
		} else {
			t.Logf("%s: a member takes %d bytes", name, size)
		}
		runtime.KeepAlive(m)
	}
}
