package commands

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"braid/commands/terminal"
)

// A stranger who makes braid log something each second gets 20 lines an hour, and nothing else is
// lost by it.
func TestCalm(t *testing.T) {
	var b bytes.Buffer
	h := newCalm((&terminal.Printer{W: &b}).Handler(slog.LevelWarn)).WithAttrs([]slog.Attr{slog.String("torrent", "x")})
	start := time.Unix(1e9, 0)
	say := func(message string, second int) {
		if err := h.Handle(context.Background(), slog.NewRecord(start.Add(time.Duration(second)*time.Second), slog.LevelWarn, message, 0)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2*3600 + 1 {
		say("peer banned", i)
		if i%1800 == 0 {
			say("tracker failed", i)
		}
	}
	got := b.String()
	for what, want := range map[string]int{"peer banned": 41, "tracker failed": 5, "torrent=x": 46, "left_out=3580": 2, "more=": 2} {
		if n := strings.Count(got, what); n != want {
			t.Errorf("%d times %q, want %d:\n%s", n, what, want, got)
		}
	}
	for i := range 2 * maxKinds {
		say(fmt.Sprint("message ", i), 0)
	}
	if n := len(h.(calm).kinds.byMessage); n > maxKinds+1 {
		t.Errorf("%d messages are remembered", n)
	}
}
