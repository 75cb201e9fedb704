package announce

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"braid/tracker"
	"braid/tracker/wire"
)

// What is logged of trackers has no key of the user in it, even if they quote it, and a warning
// only once.
func TestLog(t *testing.T) {
	u, err := tracker.ParseURL("http://t.example/s3cret/announce?passkey=s3cret")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	a := &Announcer{log: slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	s := &source{url: u}
	for _, w := range []string{"s3cret is old", "s3cret is old", "", "s3cret is old"} {
		a.found(s, wire.Answer{Warning: w})
	}
	x := &tier{announcer: a}
	x.failed(s, &wire.Failure{Reason: "s3cret is unknown"})
	x.failed(s, errors.New(`Get "`+u.String()+`": EOF`))
	x.failed(s, &wire.Failure{Reason: "s3cret is banned", RetryIn: wire.Never})
	if got := b.String(); strings.Contains(got, "s3cret") || strings.Count(got, "is old") != 2 || strings.Count(got, "t.example") != 10 {
		t.Error(got)
	}
}
