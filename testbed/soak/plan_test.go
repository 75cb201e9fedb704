package soak

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestPlan(t *testing.T) {
	const length = 2 * time.Minute
	for seed := range uint64(200) {
		p := NewPlan(seed, length)
		if !reflect.DeepEqual(p, NewPlan(seed, length)) {
			t.Fatalf("seed %d gives two plans", seed)
		}
		if reflect.DeepEqual(p, NewPlan(seed+1, length)) {
			t.Errorf("seeds %d and %d give the same plan", seed, seed+1)
		}
		seen, until := map[Kind]bool{}, map[string]time.Duration{}
		last := time.Duration(0)
		for _, f := range p.Faults {
			if f.At < last || f.At < until[f.scope()] || f.For <= 0 || f.At+f.For > length || f.Strength < 0 || f.Strength >= 1 {
				t.Errorf("seed %d: %v, after %v", seed, f, last)
			}
			if f.At < p.WarmUp && (f.Kind == KillTracker || f.Kind == KillSeeder) {
				t.Errorf("seed %d: %v, but the processes that live long must live through the warm-up of %v", seed, f, p.WarmUp)
			}
			seen[f.Kind], until[f.scope()], last = true, f.At+f.For, f.At
		}
		if len(seen) != len(Kinds) {
			t.Errorf("seed %d: only %d of %d kinds in %v", seed, len(seen), len(Kinds), length)
		}
		for i, d := range p.Downloads {
			if i > 0 && d.At <= p.Downloads[i-1].At || d.At >= length {
				t.Errorf("seed %d: %v", seed, d)
			}
		}
	}
}

// The two parts of a plan hold all of it, on the right side of the warm-up's end.
func TestPlanParts(t *testing.T) {
	for _, length := range []time.Duration{LeastLength, 2 * time.Minute, time.Hour} {
		p := NewPlan(3, length)
		if want := min(length/3, time.Minute); p.WarmUp != want {
			t.Errorf("%v: warm-up of %v, want %v", length, p.WarmUp, want)
		}
		first, second := p.split()
		if !reflect.DeepEqual(slices.Concat(first.Faults, second.Faults), p.Faults) ||
			!reflect.DeepEqual(slices.Concat(first.Downloads, second.Downloads), p.Downloads) {
			t.Errorf("%v: %v and %v are not the parts of %v", length, first, second, p)
		}
		for _, f := range first.Faults {
			if f.At >= p.WarmUp {
				t.Errorf("%v: %v is in the first part", length, f)
			}
		}
		for _, f := range second.Faults {
			if f.At < p.WarmUp {
				t.Errorf("%v: %v is in the second part", length, f)
			}
		}
	}
}

// A link of the plan is one of the topology.
func TestTopology(t *testing.T) {
	topo, err := topology()
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]bool{}
	for _, l := range topo.Links {
		ends[l.A.Interface.IA.String()+l.A.Router], ends[l.B.Interface.IA.String()+l.B.Router] = true, true
	}
	if len(topo.Links) != links || len(ends) != routers || len(routersOf(topo)) != routers {
		t.Errorf("%d links and %d routers, the plan has %d and %d", len(topo.Links), len(ends), links, routers)
	}
}
