package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"braid/node/event"
)

// A reader of --json may take the event done for the end: a look at the download that overlaps with
// it shows nothing. Progress as a seed may come later.
func TestNoProgressAfterDone(t *testing.T) {
	var out bytes.Buffer
	d := &display{json: true, events: json.NewEncoder(&out), over: map[string]bool{}}
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
