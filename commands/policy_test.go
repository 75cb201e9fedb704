package commands

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"braid/commands/program"
	"braid/commands/terminal"
)

func TestParseChoice(t *testing.T) {
	for _, tt := range []struct {
		in   string
		n    int
		want []int
	}{
		{"all", 3, []int{0, 1, 2}}, {" all ", 1, []int{0}}, {"0", 1, []int{0}}, {"1,3-4", 5, []int{1, 3, 4}},
		{"4 , 1 - 2,2,1", 5, []int{1, 2, 4}}, {"2-2", 3, []int{2}},
		{"", 3, nil}, {"3", 3, nil}, {"-1", 3, nil}, {"2-1", 3, nil}, {"0-9", 3, nil}, {"0,", 3, nil}, {"all,0", 3, nil}, {"x", 3, nil}, {"1.5", 3, nil},
		{"99999999999999999999", 3, nil}, {"0-1-2", 3, nil},
	} {
		got, err := parseChoice(tt.in, tt.n)
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.want != nil) {
			t.Errorf("%q of %d: %v, %v; want %v", tt.in, tt.n, got, err, tt.want)
		}
	}
}

func FuzzParseChoice(f *testing.F) {
	for _, s := range []string{"all", "0", "1,3-4", "0-9,0-9", "-", "1-", "\x1b[2J"} {
		f.Add(s, 5)
	}
	f.Fuzz(func(t *testing.T, s string, n int) {
		n = n & 0xff
		got, err := parseChoice(s, n)
		if err != nil {
			if strings.ContainsRune(err.Error(), '\x1b') {
				t.Errorf("%q gets to the terminal: %v", s, err)
			}
			return
		}
		if len(got) == 0 || got[0] < 0 || got[len(got)-1] >= n || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("%q of %d: %v", s, n, got)
		}
	})
}

func TestQuestions(t *testing.T) {
	var out bytes.Buffer
	q := newQuestions(strings.NewReader("nonsense\n7\n1-2\n0"), &terminal.Printer{W: &out})
	got, err := q.numbers(t.Context(), 3)
	if err != nil || !slices.Equal(got, []int{1, 2}) || !strings.Contains(out.String(), "not a number from 0 to 2") {
		t.Errorf("%v, %v: %s", got, err, out.String())
	}
	if got, err = q.numbers(t.Context(), 3); err != nil || !slices.Equal(got, []int{0}) {
		t.Errorf("the next question: %v, %v", got, err)
	}
	if _, err = q.numbers(t.Context(), 3); err == nil || !strings.Contains(err.Error(), "ended") {
		t.Errorf("after the end of the input: %v", err)
	}
	silent, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newQuestions(silent, &terminal.Printer{W: &out}).numbers(ctx, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// What is wrong with a flag is said with the flag's name, and nothing is done.
func TestPolicyFlags(t *testing.T) {
	for flag, values := range map[string][]string{
		"--sequence":    {"(", "x"},
		"--acl":         {"1-ff00:0:110", "- 1-ff00:0:110#2", "+,-"},
		"--preference":  {"speed", "hops,hops"},
		"--max-latency": {"-1s", "fast"},
		"--min-mtu":     {"-1", "big"},
		"--interactive": {""},
	} {
		for _, v := range values {
			args := []string{"paths", "1-ff00:0:111", "--config-dir", t.TempDir(), flag}
			if v != "" {
				args = append(args, v)
			}
			if code, _, said := ends(t, t.TempDir(), args...); code != program.Usage || !strings.Contains(said, strings.TrimPrefix(flag, "--")) {
				t.Errorf("%v: exit code %d, %s", args, code, said)
			}
		}
	}
}
