package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"braid/commands/program"
	"braid/commands/terminal"
	"braid/testbed"
	"braid/testbed/linkemu"
)

// Flags for the page have no effect on a document, so they are errors.
func TestEvaluationMakesNoPage(t *testing.T) {
	for _, flag := range []string{"--output=page", "--every-run"} {
		err := reportCommand().Run(t.Context(), []string{"report", "--evaluation", "x.md", flag, "runs"})
		if program.Code(err) != program.Usage || !strings.Contains(err.Error(), "which --evaluation does not make") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

func TestLinkChange(t *testing.T) {
	parse := func(args ...string) (change testbed.LinkChange, err error) {
		link := linkCommand()
		link.Action = func(_ context.Context, c *cli.Command) error {
			change, err = linkChange(c)
			return nil
		}
		if e := link.Run(t.Context(), append([]string{"link", "-d", "x"}, args...)); e != nil {
			t.Fatalf("%q: %v", args, e)
		}
		return change, err
	}
	const at = `{"interface":{"isd_as":"1-ff00:0:110","interface":1},"direction":`
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--rate", "20mbit"}, at + `"both","rate":20000000}`},
		{[]string{"--rate", "0"}, at + `"both","rate":0}`},
		{[]string{"--delay", "30ms", "--jitter", "1ms", "--direction", "out"}, at + `"out","delay":30000000,"jitter":1000000}`},
		{[]string{"--loss", "1%"}, at + `"both","loss":0.01}`},
		{[]string{"--queue", "64KiB"}, at + `"both","queue_bytes":65536,"queue_time":0}`},
		{[]string{"--queue", "50ms"}, at + `"both","queue_bytes":0,"queue_time":50000000}`},
		{[]string{"--mtu", "1300"}, at + `"both","mtu":1300}`},
		{[]string{"--mtu", "0", "--direction", "in"}, at + `"in","mtu":0}`},
		{[]string{"--mtu", "1300", "--too-big"}, at + `"both","mtu":1300,"too_big":true}`},
		{[]string{"--too-big=false"}, at + `"both","too_big":false}`},
		{[]string{"--down"}, at + `"both","down":true}`},
		{[]string{"--up"}, at + `"both","down":false}`},
	} {
		got, err := parse(append(tt.args, "1-ff00:0:110#1")...)
		b, _ := json.Marshal(got)
		if err != nil || string(b) != tt.want {
			t.Errorf("%q: %s, %v\nwant %s", tt.args, b, err, tt.want)
		}
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "name one interface"},
		{[]string{"1-1#1"}, "nothing to change"},
		{[]string{"--up", "1-1#1", "1-1#2"}, "name one interface"},
		{[]string{"--up", "here"}, `interface "here"`},
		{[]string{"--up", "--down", "1-1#1"}, "exclude each other"},
		{[]string{"--rate", "fast", "1-1#1"}, `--rate: rate "fast"`},
		{[]string{"--mtu", "huge", "1-1#1"}, `--mtu: mtu "huge"`},
		{[]string{"--jitter", "1h", "1-1#1"}, `--jitter: delay "1h"`},
	} {
		if _, err := parse(tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: error %v, want %q", tt.args, err, tt.want)
		}
	}
}

func TestPrintStatus(t *testing.T) {
	s := testbed.Status{
		Topology:  "two-paths",
		Processes: []testbed.ProcessStatus{{Name: "br-1", PID: 7, Reason: "signal: killed; last lines of x:\nlong"}},
		Pairs:     []testbed.PairStatus{{Implied: 4, Paths: 3, Up: 1}},
		Links: []testbed.LinkStatus{{
			A: testbed.LinkEndStatus{State: "down", Properties: "rate 20mbit", Counters: linkemu.Counters{Packets: 5, DroppedLoss: 2}},
			B: testbed.LinkEndStatus{State: "up", Properties: "unlimited"},
		}},
	}
	var out bytes.Buffer
	printStatus(&terminal.Printer{W: &out}, s)
	for _, want := range []string{"ended: signal: killed ", "3 of 4, 1 missing, 2 over a link that is down", "0/2/0", "rate 20mbit"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "long") {
		t.Errorf("the log is not for the table:\n%s", out.String())
	}
}

// An interrupted soak has broken no promise, so it leaves no logs.
func TestInterruptedSoak(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var said strings.Builder
	env := program.Env{Out: io.Discard, Err: &said, Getenv: os.Getenv}
	code := env.Run(ctx, tree(), []string{"soak"}, nil)
	if code != program.Interrupted || strings.Contains(said.String(), "repeat") {
		t.Errorf("exit code %d: %s", code, said.String())
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
