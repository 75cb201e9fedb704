package commands

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"braid/commands/terminal"
	"braid/node"
	"braid/node/event"

	"github.com/urfave/cli/v3"
)

// The event done is the last event of a download. No progress event follows it, unless the command
// goes on as a seed.
func TestNoProgressAfterDone(t *testing.T) {
	var out bytes.Buffer
	d := &display{JSON: true, results: &terminal.Printer{W: &out}, over: map[string]bool{}}
	look := event.Progress{Event: "progress", InfoHash: "aa"}
	shows := func(want bool) {
		t.Helper()
		before := out.Len()
		if d.emit(look); out.Len() > before != want {
			t.Errorf("after %s: shown is %v", out.Bytes()[:before], !want)
		}
	}
	shows(true)
	d.event(event.Done{Event: "done", InfoHash: "bb"})
	shows(true)
	d.event(event.Done{Event: "done", InfoHash: "aa"})
	shows(false)
	d.uploads = true
	shows(true)
}

// A display forgets the torrents that it has shown: braid send --watch makes one of each change.
func TestDisplayForgetsTorrents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nobody := &terminal.Printer{W: io.Discard}
		d := newDisplay(&cli.Command{Writer: nobody, ErrWriter: nobody}, true)
		show := func() weak.Pointer[node.Torrent] {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			x := new(node.Torrent)
			d.watch(ctx, []*node.Torrent{x})
			return weak.Make(x)
		}
		shown := show()
		if runtime.GC(); shown.Value() != nil {
			t.Error("the display keeps the torrent in memory")
		}
		runtime.KeepAlive(d)
	})
}
