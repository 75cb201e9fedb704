package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
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
		{[]string{"--router", "fast"}, []string{"testbed", "router"}, ""},
		{[]string{"--router", "slow"}, nil, "want stock or fast"},
		{[]string{"--router-cmd", "/bin/sh my-router -v"}, []string{sh, "my-router", "-v"}, ""},
		{[]string{"--router-cmd", " "}, nil, "want a program"},
		{[]string{"--router-cmd", "/no/such/router"}, nil, "no such file"},
		{[]string{"--router", "fast", "--router-cmd", "/bin/sh"}, nil, "exclude each other"},
	} {
		var got []string
		cmd := &cli.Command{Flags: routerFlags(), Action: func(_ context.Context, c *cli.Command) (err error) {
			got, err = routerCommand(c)
			return err
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
