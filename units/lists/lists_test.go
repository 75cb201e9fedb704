package lists

import (
	"slices"
	"strconv"
	"testing"
)

func TestMap(t *testing.T) {
	if got := Map([]int{3, 1, 2}, strconv.Itoa); !slices.Equal(got, []string{"3", "1", "2"}) {
		t.Errorf("%q", got)
	}
	if got := Map(nil, strconv.Itoa); got == nil || len(got) != 0 {
		t.Errorf("of nothing: %#v", got)
	}
}

func TestSplit(t *testing.T) {
	for text, want := range map[string][]string{
		"": {}, " , ,": {}, "a": {"a"}, " a b ,, c,": {"a b", "c"},
	} {
		if got := Split(text, ","); got == nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q", text, got)
		}
	}
}
