package node

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"braid/client"
	"braid/tracker"
	"braid/tracker/announce"
	"braid/tracker/wire"
	"braid/units/await"
)

// Only who has the whole torrent is a seed to trackers; who has all that he wants, and it is not
// all, is a partial one.
func TestAnnounceProgress(t *testing.T) {
	for name, tt := range map[string]struct {
		p    client.Progress
		want announce.Progress
	}{
		"magnet link":          {client.Progress{Phase: client.Metadata}, announce.Progress{Left: wire.NoCount}},
		"begun":                {client.Progress{Phase: client.Downloading, Total: 10, Missing: 7, Fetched: 3, Sent: 2}, announce.Progress{Left: 7, Downloaded: 3, Uploaded: 2}},
		"not verified":         {client.Progress{Phase: client.Downloading, Total: 10}, announce.Progress{Left: 1}},
		"complete":             {client.Progress{Phase: client.Complete, Total: 10}, announce.Progress{}},
		"some files, begun":    {client.Progress{Phase: client.Downloading, Total: 5, Have: 5, Missing: 95}, announce.Progress{Left: 95}},
		"some files, complete": {client.Progress{Phase: client.Complete, Total: 5, Have: 5, Missing: 95}, announce.Progress{Left: 95, Partial: true}},
	} {
		if got := announceProgress(tt.p); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// The cause of a stall names the torrent's present trackers, and none that it had before.
func TestCauseAfterChangeOfTrackers(t *testing.T) {
	t.Parallel()
	n := open(t, Config{})
	trackers := func(url string) [][]tracker.URL {
		tiers, err := parseTiers([]string{url})
		if err != nil {
			t.Fatal(err)
		}
		return tiers
	}
	src := create(t, t.TempDir(), "file", 1)
	x := add(t, n, Options{Source: src, Storage: fileIn(t.TempDir()), Trackers: trackers("http://127.0.0.1:2/announce")})
	cause := func() string {
		if c := x.Progress().Cause; c != nil {
			return c.Text
		}
		return ""
	}
	await.True(t, "the first tracker as the cause", func() bool { return strings.Contains(cause(), "127.0.0.1:2") })
	if err := set(x, func(o *Options) { o.Trackers = trackers("http://127.0.0.1:1/announce") }); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the second tracker as the cause", func() bool { return strings.Contains(cause(), "127.0.0.1:1") })
	if c := cause(); strings.Contains(c, "127.0.0.1:2") || strings.Contains(c, "more") {
		t.Errorf("the cause is %q", c)
	}
}

// The key of a private tracker is neither in its state, though the tracker quotes it, nor in the
// cause of a stall. Both are shown to everybody.
func TestTrackerKeyIsHidden(t *testing.T) {
	t.Parallel()
	const key = "s3cret-key"
	x := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "d14:failure reason18:unknown "+key+"e")
	}))
	defer x.Close()
	tiers, err := parseTiers([]string{x.URL + "/" + key + "/announce"})
	if err != nil {
		t.Fatal(err)
	}
	src := create(t, t.TempDir(), "file", 1)
	o := Options{Source: src, Storage: fileIn(t.TempDir()), Trackers: tiers}
	to := add(t, open(t, Config{}), o)
	var cause *client.Cause
	await.True(t, "a cause", func() bool {
		cause = to.Progress().Cause
		return cause != nil && strings.Contains(cause.Text, "unknown")
	})
	if state := to.Trackers()[0].Err; state == nil || strings.Contains(state.Error(), key) ||
		strings.Contains(cause.Text+cause.Peer, key) {
		t.Errorf("the state is %q, and the cause %+v", state, cause)
	}
}
