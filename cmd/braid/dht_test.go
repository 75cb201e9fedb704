package main

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"braid/node/event"
)

// Two nodes find each other, and a third one through what the second has kept.
func TestDHTNodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := ready(t, dir, "dht", "--listen", "127.0.0.1:0", "--json")
	kept := filepath.Join(dir, "nodes.json")
	knowsOne(t, "dht", "--listen", "127.0.0.1:0", "--json", "--dht-node", first[0], "--data", kept, "--sample", "100ms")
	b, err := os.ReadFile(kept)
	if err != nil || !strings.Contains(string(b), first[0]) {
		t.Fatalf("kept: %s %v", b, err)
	}
	knowsOne(t, "dht", "--listen", "127.0.0.1:0", "--json", "--data", kept, "--sample", "100ms")
}

// knowsOne runs a node until it knows another one, and interrupts it.
func knowsOne(t *testing.T, args ...string) {
	t.Helper()
	cmd := braid(t, t.TempDir(), args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		e, err := event.Parse(lines.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := e.(*event.DHT); ok && d.Networks[0].Nodes > 0 {
			if d.Networks[0].SentBytes == 0 || d.Networks[0].ReceivedBytes == 0 {
				t.Errorf("no bytes are counted: %+v", d.Networks[0])
			}
			break
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// At its end a node says what it has done, with a line for each network. It ends so, too, if its
// terminal is closed.
func TestDHTSummary(t *testing.T) {
	t.Parallel()
	for _, end := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		t.Run(end.String(), func(t *testing.T) { endsWithSummary(t, end) })
	}
}

func endsWithSummary(t *testing.T, end os.Signal) {
	cmd := braid(t, t.TempDir(), "dht", "--listen", "127.0.0.1:0", "--listen", "[::1]:0")
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() { // it is ready
		t.Fatal("no line")
	}
	defer time.AfterFunc(swarmPatience, func() { _ = cmd.Process.Kill() }).Stop()
	if err := cmd.Process.Signal(end); err != nil {
		t.Fatal(err)
	}
	var networks []string
	for lines.Scan() {
		network, _, _ := strings.Cut(lines.Text(), ": 0 queries")
		networks = append(networks, network)
	}
	if err := cmd.Wait(); err != nil || !slices.Equal(networks, []string{"ip4", "ip6"}) {
		t.Errorf("%q, %v", networks, err)
	}
}
