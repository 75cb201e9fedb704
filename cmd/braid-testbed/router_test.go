package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/pathsel"
	"braid/testbed"
)

func TestRouterCommand(t *testing.T) {
	sh, err := filepath.Abs("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want []string // the end of the command
		err  string
	}{
		{nil, nil, ""},
		{[]string{"--router", "stock"}, nil, ""},
		{[]string{"--router", "fast"}, []string{"router"}, ""},
		{[]string{"--router", "slow"}, nil, "want stock or fast"},
		{[]string{"--router-cmd", "/bin/sh my-router -v"}, []string{sh, "my-router", "-v"}, ""},
		{[]string{"--router-cmd", " "}, nil, "want a program"},
		{[]string{"--router-cmd", "/no/such/router"}, nil, "no such file"},
		{[]string{"--router", "fast", "--router-cmd", "/bin/sh"}, nil, "exclude each other"},
	} {
		var got []string
		cmd := &cli.Command{Flags: routerFlags(), Action: func(_ context.Context, c *cli.Command) error {
			f := &flags.Reader{Command: c}
			if command := readRouter(f); f.Err == nil {
				got = command
			}
			return f.Err
		}}
		err := cmd.Run(t.Context(), append([]string{"test"}, tt.args...))
		if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: error %v, want one with %q", tt.args, err, tt.err)
		}
		if len(got) < len(tt.want) || !slices.Equal(got[len(got)-len(tt.want):], tt.want) || len(tt.want) == 0 && len(got) > 0 {
			t.Errorf("%q: %q, want %q", tt.args, got, tt.want)
		}
	}
}

func TestRoutersOf(t *testing.T) {
	parse := func(args ...string) (all []testbed.RouterOf, err error) {
		cmd := &cli.Command{Flags: []cli.Flag{routerOfFlag()}, Action: func(_ context.Context, c *cli.Command) error {
			f := &flags.Reader{Command: c}
			all, err = readRoutersOf(f), f.Err
			return nil
		}}
		if e := cmd.Run(t.Context(), append([]string{"test"}, args...)); e != nil {
			t.Fatal(e)
		}
		return all, err
	}
	got, err := parse("--router-of", "1-ff00:0:110=fast", "--router-of", "1-ff00:0:110#2=stock")
	ia := pathsel.IA(1<<48 | 0xff00_0000_0110)
	if err != nil || len(got) != 2 || got[0].Interface != (pathsel.Interface{IA: ia}) || len(got[0].Command) == 0 ||
		got[1].Interface != (pathsel.Interface{IA: ia, ID: 2}) || len(got[1].Command) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	for s, want := range map[string]string{
		"1-ff00:0:110": "want a place and a router", "110=fast": "110", "1-ff00:0:110#x=fast": "x", "1-ff00:0:110=slow": "want stock or fast",
	} {
		if _, err := parse("--router-of", s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", s, err, want)
		}
	}
}
