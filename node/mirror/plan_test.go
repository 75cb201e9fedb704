package mirror

import (
	"fmt"
	"strings"
	"testing"
)

func TestPlan(t *testing.T) {
	of := func(text string) (all []Torrent) { // name:size[:left]; the name is the hash, too, up to a slash
		for _, f := range strings.Fields(text) {
			var x Torrent
			name, sizes, _ := strings.Cut(f, ":")
			size, left, _ := strings.Cut(sizes, ":")
			_, _ = fmt.Sscan(size, &x.Size)
			_, _ = fmt.Sscan(left, &x.Missing)
			x.Hash = name
			_, x.Name, _ = strings.Cut("/"+name, "/")
			if _, after, ok := strings.Cut(name, "/"); ok {
				x.Name = after
			}
			all = append(all, x)
		}
		return all
	}
	for name, c := range map[string]struct {
		offered, held string
		unknown       bool
		free          int64
		limits        Limits
		want          string
	}{
		"nothing":                     {"", "", false, 100, Limits{}, ""},
		"new ones":                    {"a:10 b:20", "", false, 100, Limits{}, "added a, added b"},
		"held ones stay":              {"a:10 b:20", "a:10", false, 100, Limits{}, "added b"},
		"offered twice":               {"a:10 a:10", "", false, 100, Limits{}, "added a"},
		"gone":                        {"a:10", "a:10 b:10", false, 100, Limits{}, "kept b"},
		"gone, delete":                {"a:10", "a:10 b:10", false, 100, Limits{Delete: true}, "removed b"},
		"an empty list":               {"", "a:10", false, 100, Limits{Delete: true}, "kept a"},
		"an unknown offer":            {"a:10", "a:10 b:10", true, 100, Limits{Delete: true}, "kept b"},
		"too large":                   {"a:11 b:10", "", false, 100, Limits{MaxTorrent: 10}, "left-out a, added b"},
		"as many as allowed":          {"a:1 b:1 c:1", "c:1", false, 100, Limits{MaxTorrents: 2}, "added a, left-out b"},
		"all together too large":      {"a:6 b:6 c:2", "", false, 100, Limits{MaxTotal: 8}, "added a, left-out b, added c"},
		"held counts":                 {"a:6 b:1", "x:7", false, 100, Limits{MaxTotal: 8}, "kept x, left-out a, added b"},
		"removed makes room":          {"a:6", "x:7", false, 100, Limits{MaxTotal: 8, Delete: true}, "removed x, added a"},
		"the disk is full":            {"a:60 b:40", "", false, 100, Limits{KeepFree: 50}, "left-out a, added b"},
		"held ones still need room":   {"a:60 b:10", "b:10 x:90:50", false, 100, Limits{}, "kept x, left-out a"},
		"removed frees what is there": {"a:60", "x:90:40", false, 10, Limits{Delete: true}, "removed x, added a"},
		"free space is not known":     {"a:60", "", false, -1, Limits{KeepFree: 50}, "added a"},
		"one name":                    {"1/n:1 2/N:1", "", false, 100, Limits{}, "added 1/n, added 2/N apart"},
		"name of a kept one":          {"2/n:1", "1/n:1", false, 100, Limits{}, "kept 1/n, added 2/n apart"},
		"name of a removed one":       {"2/n:1", "1/n:1", false, 100, Limits{Delete: true}, "removed 1/n, added 2/n"},
		"sizes of a hostile torrent":  {"a:9223372036854775807 b:9223372036854775807", "x:9", false, 100, Limits{MaxTotal: 100}, "kept x, left-out a, left-out b"},
	} {
		var got []string
		for _, s := range Plan(of(c.offered), of(c.held), c.unknown, c.free, c.limits) {
			text := string(s.Action) + " " + s.Torrent.Hash
			if s.Apart {
				text += " apart"
			}
			if (s.Reason == "") != (s.Action == Add) {
				t.Errorf("%s: %s has the reason %q", name, text, s.Reason)
			}
			got = append(got, text)
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

func TestFilter(t *testing.T) {
	for _, c := range []struct {
		include, exclude, name string
		want                   bool
	}{
		{"", "", "any", true},
		{"*.iso", "", "A.ISO", true},
		{"*.iso", "", "a.img", false},
		{"*.iso", "*beta*", "a-beta.iso", false},
		{"a* b*", "", "bc", true},
		{"", "*", "any", false},
		{"*netinst*", "", "Debian amd64/i386 netinst", true},
		{"amd64/*", "*beta*", "amd64/x", true},
		{"", "*beta*", "a/beta", false},
	} {
		f := Filter{strings.Fields(c.include), strings.Fields(c.exclude)}
		if got := f.Wants(c.name); got != c.want || f.Check() != nil {
			t.Errorf("%+v: %s: %v", f, c.name, got)
		}
	}
	if err := (Filter{Exclude: []string{"["}}).Check(); err == nil {
		t.Error("a wrong pattern is accepted")
	}
}
