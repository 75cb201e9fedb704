package foreign

import (
	"strings"
	"testing"
)

func TestMoved(t *testing.T) {
	for _, c := range []struct {
		queue, chosen string
		how           Direction
		want          string
		steps         int
	}{
		{"abcde", "d", Top, "dabce", 1},
		{"abcde", "bd", Top, "bdace", 2},
		{"abcde", "b", Bottom, "acdeb", 1},
		{"abcde", "bd", Bottom, "acebd", 2},
		{"abcde", "bd", Up, "badce", 2},
		{"abcde", "ab", Up, "abcde", 0},
		{"abcde", "bc", Up, "bcade", 2},
		{"abcde", "bd", Down, "acbed", 2},
		{"abcde", "de", Down, "abcde", 0},
		{"abcde", "cd", Down, "abecd", 2},
		{"abc", "", Top, "abc", 0},
		{"aSTb", "b", Up, "baST", 1}, // capital letters do not count
		{"STb", "b", Up, "STb", 0},
		{"aSbc", "bc", Up, "bcaS", 2},
		{"bSac", "b", Down, "Sabc", 1},
		{"", "", Bottom, "", 0},
	} {
		chosen := func(x string) bool { return strings.Contains(c.chosen, x) }
		counts := func(x string) bool { return x == strings.ToLower(x) }
		queue, members := moved(strings.Split(c.queue, ""), chosen, counts, c.how)
		if now := strings.Join(queue, ""); now != c.want || len(members) > c.steps {
			t.Errorf("%s, %s: %q have moved to %s, want %d to %s", c.queue, c.chosen, members, now, c.steps, c.want)
		}
	}
}
