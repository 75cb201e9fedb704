package foreign

import (
	"slices"
	"strings"
	"testing"
)

func TestSteps(t *testing.T) {
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
		{"", "", Bottom, "", 0},
	} {
		queue, chosen := strings.Split(c.queue, ""), map[string]bool{}
		for _, x := range c.chosen {
			chosen[string(x)] = true
		}
		all := steps(queue, chosen, c.how)
		now := slices.Clone(queue)
		for _, s := range all {
			from := slices.Index(now, s.member)
			now = slices.Insert(slices.Delete(now, from, from+1), s.to, s.member)
		}
		if strings.Join(now, "") != c.want || len(all) > c.steps {
			t.Errorf("%s, %s: %d steps lead to %v, want %d to %s", c.queue, c.chosen, len(all), now, c.steps, c.want)
		}
	}
}
