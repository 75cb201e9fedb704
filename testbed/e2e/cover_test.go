package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"braid/testbed/scenario"
)

// candidate is a variant of a smoke run.
type candidate struct {
	scenario, variant string
	features          []string
	cost              float64 // in seconds, about
}

// cover chooses candidates that together have all features: again and again the one that adds most
// for its cost, the first of several. A candidate that later ones make superfluous is left out.
func cover(all []candidate) (chosen []candidate) {
	open := map[string]bool{}
	for _, c := range all {
		for _, f := range c.features {
			open[f] = true
		}
	}
	for len(open) > 0 {
		best, worth := 0, 0.0
		for i, c := range all {
			adds := 0
			for _, f := range c.features {
				if open[f] {
					adds++
				}
			}
			if w := float64(adds) / c.cost; w > worth {
				best, worth = i, w
			}
		}
		chosen = append(chosen, all[best])
		for _, f := range all[best].features {
			delete(open, f)
		}
	}
	for i := 0; i < len(chosen); {
		others := map[string]bool{}
		for j, c := range chosen {
			for _, f := range c.features {
				others[f] = others[f] || i != j
			}
		}
		if slices.ContainsFunc(chosen[i].features, func(f string) bool { return !others[f] }) {
			i++
		} else {
			chosen = slices.Delete(chosen, i, i+1)
		}
	}
	return chosen
}

func TestCover(t *testing.T) {
	of := func(names string) (out []candidate) {
		for _, n := range strings.Fields(names) {
			name, features, _ := strings.Cut(n, "=")
			out = append(out, candidate{name, "", strings.Split(features, ""), float64(len(name))})
		}
		return out
	}
	for _, tt := range []struct{ all, want string }{
		{"a=x", "a"},
		{"a=x b=xy", "b"},
		{"a=xy b=xy", "a"},             // the first of equal ones
		{"aaaa=wxyz b=wxy c=z", "b c"}, // the cheaper ones
		{"a=xy b=wx c=yz", "b c"},      // what others make superfluous is left out
	} {
		var got []string
		for _, c := range cover(of(tt.all)) {
			got = append(got, c.scenario)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, want %s", tt.all, got, tt.want)
		}
	}
}

// words are the keys whose values select different code of package scenario.
var words = []string{"role", "transport", "client", "kind", "router"}

// features are what a run does: the keys that its scenario uses, values that select different code,
// and kinds of links. Flags, figures and variants have tests that need no network.
func features(t *testing.T, s scenario.Scenario, v scenario.Variant) []string {
	t.Helper()
	s, err := s.In(v.Name)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	var walk func(key string, n *yaml.Node)
	walk = func(key string, n *yaml.Node) {
		switch {
		case n.Kind == yaml.MappingNode:
			for i := 0; i < len(n.Content); i += 2 {
				walk(n.Content[i].Value, n.Content[i+1])
			}
		case n.Kind == yaml.SequenceNode:
			for _, x := range n.Content {
				walk(key, x)
			}
		case slices.Contains([]string{"", "0", "0s", "false", "null"}, n.Value):
		case slices.Contains(words, key):
			found[key+" "+n.Value] = true
		default:
			found[key] = true
		}
	}
	for _, part := range []any{s.Settings, s.Peers, s.Traffic, s.Events,
		map[string]any{"tracker": s.Tracker, "dht": s.DHT, "bfd": s.BFD, "path_lifetime": s.PathLifetime, "lasts": s.Lasts}} {
		var n yaml.Node
		if err := n.Encode(part); err != nil {
			t.Fatal(err)
		}
		walk("", &n)
	}
	for _, l := range s.Network().Links {
		found["link "+string(l.Type)] = true
	}
	delete(found, "name")
	return slices.Sorted(maps.Keys(found))
}

// candidates are all variants of the smoke runs of the shipped scenarios.
func candidates(t *testing.T) (all []candidate) {
	t.Helper()
	for _, s := range smokeRuns(t) {
		for _, v := range s.Variants {
			// A network takes about two seconds to start, and half a second for each AS.
			cost := 2 + float64(len(s.Network().ASes))/2 + s.Takes.D().Seconds()
			all = append(all, candidate{s.Name, v.Name, features(t, s, v), cost})
		}
	}
	return all
}
