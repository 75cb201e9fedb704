package main

import (
	"bytes"
	"testing"

	"braid/node/event"
)

// The event done is the last event of a download. No progress event follows it, unless the command
// goes on as a seed.
func TestNoProgressAfterDone(t *testing.T) {
	var out bytes.Buffer
	d := &display{json: true, results: &printer{w: &out}, over: map[string]bool{}}
	look := event.Progress{Event: "progress", InfoHash: "aa"}
	shows := func(want bool) {
		t.Helper()
		before := out.Len()
		if d.emitProgress(look); out.Len() > before != want {
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
