package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"braid/client"
	"braid/node"
	"braid/node/event"
	"braid/node/web/webtest"
	"braid/scionnet"
	"braid/units/await"
)

// site is a web site with a feed and the torrents in it.
type site struct {
	*httptest.Server
	mu        sync.Mutex
	torrents  map[string][]byte // by name
	feed      string
	asked     map[string]int
	unchanged int
}

func openSite(t *testing.T) *site {
	s := &site{torrents: map[string][]byte{}, asked: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		name := strings.TrimPrefix(r.URL.Path, "/")
		s.asked[name]++
		tag := fmt.Sprintf("%q", fmt.Sprint(len(s.feed), s.feed[:min(8, len(s.feed))]))
		switch b, ok := s.torrents[name]; {
		case name == "feed" && r.Header.Get("If-None-Match") == tag:
			s.unchanged++
			w.WriteHeader(http.StatusNotModified)
		case name == "feed":
			w.Header().Set("ETag", tag)
			_, _ = w.Write([]byte(s.feed))
		case ok:
			_, _ = w.Write(b)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *site) offer(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feed = "<rss><channel>"
	for _, n := range names {
		s.feed += "<item><title>" + n + `</title><enclosure type="application/x-bittorrent" url="/` + n + `.torrent"/></item>`
	}
	s.feed += "</channel></rss>"
}

// copyOf is a mirror for a test, and what it has told.
type copyOf struct {
	*Mirror
	mu   sync.Mutex
	told []string
}

func (c *copyOf) look(t *testing.T) (told string) {
	t.Helper()
	c.told = nil
	if err := c.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(c.told)
	return strings.Join(c.told, ", ")
}

// openMirror opens a mirror on a node of its own.
func openMirror(t *testing.T, cfg Config, state string, peers []client.Peer) *copyOf {
	t.Helper()
	c := &copyOf{}
	cfg.Node = webtest.Open(t, node.Config{Service: true, State: state, Settings: node.Settings{Dir: cfg.Dir}})
	if err := cfg.Node.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg.State, cfg.Logger = filepath.Join(state, "mirror.json"), slog.New(slog.DiscardHandler)
	cfg.Options = func(src client.Source) (node.Options, error) { return node.Options{Source: src, Peers: peers}, nil }
	cfg.Tell = func(e event.Mirror) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e.Torrent != "" {
			c.told = append(c.told, e.Action+" "+e.Torrent)
		}
	}
	var err error
	if c.Mirror, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	return c
}

// arrives waits for a file that is the same as another one.
func arrives(t *testing.T, name, like string) {
	t.Helper()
	want, err := os.ReadFile(like)
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "the data of "+name, func() bool { got, err := os.ReadFile(name); return err == nil && bytes.Equal(got, want) })
}

// A mirror follows a feed, from which torrents come and go, over a restart.
func TestMirror(t *testing.T) {
	t.Parallel()
	s, data, out, state := openSite(t), t.TempDir(), t.TempDir(), t.TempDir()
	var peers []client.Peer
	for _, name := range []string{"a", "b", "big", "beta"} {
		size := 100_000
		if name == "big" {
			size = 300_000
		}
		c := webtest.Torrent(t, data, name, webtest.File{Size: size})
		s.torrents[name+".torrent"] = c.Torrent
		peers = append(peers, webtest.Seed(t, c.Source, data)...)
	}
	cfg := Config{
		Source: s.URL + "/feed", Dir: out, Filter: Filter{Exclude: []string{"bet?"}},
		Limits: Limits{MaxTorrent: 200_000, Delete: true},
	}
	m := openMirror(t, cfg, state, peers)
	s.offer("a", "big", "beta", "missing")
	if got := m.look(t); got != "added a, failed missing, left-out big" {
		t.Error(got)
	}
	if got := m.look(t); got != "" || s.unchanged != 1 {
		t.Errorf("nothing has changed: %q, %d", got, s.unchanged)
	}
	arrives(t, filepath.Join(out, "a"), filepath.Join(data, "a"))
	s.offer("b", "missing")
	if got := m.look(t); got != "added b, kept a" { // missing may be a
		t.Error(got)
	}
	arrives(t, filepath.Join(out, "b"), filepath.Join(data, "b"))
	asked := s.asked["b.torrent"]
	if err := m.Node.Close(); err != nil {
		t.Fatal(err)
	}

	m = openMirror(t, cfg, state, peers)
	if got := m.look(t); got != "failed missing, kept a" || s.unchanged != 2 || s.asked["b.torrent"] != asked {
		t.Errorf("after a restart: %q, %d unchanged, b was fetched %d times", got, s.unchanged, s.asked["b.torrent"])
	}
	s.offer()
	if got := m.look(t); got != "kept b" {
		t.Errorf("an empty list: %q", got)
	}
	s.offer("b")
	if got := m.look(t); got != "removed a" {
		t.Error(got)
	}
	if _, err := os.Stat(filepath.Join(out, "a")); !os.IsNotExist(err) {
		t.Errorf("the data is there: %v", err)
	}
	s.Close()
	if err := m.Look(t.Context()); err == nil || len(m.held()) != 1 {
		t.Errorf("the site is gone: %v, %v", err, m.held())
	}
}

// A filter that wants fewer torrents removes none that is still offered, even under a new link.
func TestMirrorWithNarrowedFilter(t *testing.T) {
	t.Parallel()
	s, data, out, state := openSite(t), t.TempDir(), t.TempDir(), t.TempDir()
	for _, name := range []string{"a", "b", "c", "d"} {
		s.torrents[name+".torrent"] = webtest.Torrent(t, data, name, webtest.File{Size: 10}).Torrent
	}
	cfg := Config{Source: s.URL + "/feed", Dir: out, Limits: Limits{Delete: true}}
	m := openMirror(t, cfg, state, nil)
	s.offer("a", "b", "c")
	if got := m.look(t); got != "added a, added b, added c" {
		t.Error(got)
	}
	if err := m.Node.Close(); err != nil {
		t.Fatal(err)
	}
	s.torrents["new-b.torrent"] = s.torrents["b.torrent"]
	s.offer("a", "new-b", "d", "missing")
	cfg.Filter.Include = []string{"a"}
	m = openMirror(t, cfg, state, nil)
	if got := m.look(t); got != "failed missing, kept c" {
		t.Error(got)
	}
	s.offer("a", "new-b", "d")
	if got := m.look(t); got != "removed c" {
		t.Error(got)
	}
	if asked := s.asked["d.torrent"]; asked != 1 {
		t.Errorf("d was fetched %d times", asked)
	}
}

// One look reads only a part of a long list. The next process reads the other offers first, and not
// once more those that have failed: with --once each look is in a process of its own.
func TestMirrorRemembersFailures(t *testing.T) {
	t.Parallel()
	s, state := openSite(t), t.TempDir()
	s.torrents["last.torrent"] = webtest.Torrent(t, t.TempDir(), "last", webtest.File{Size: 10}).Torrent
	var names []string
	for i := range newTorrents {
		names = append(names, fmt.Sprint("missing", i))
	}
	s.offer(append(names, "last")...)
	cfg := Config{Source: s.URL + "/feed", Dir: t.TempDir()}
	m := openMirror(t, cfg, state, nil)
	if got := m.look(t); strings.Count(got, "failed") != newTorrents || strings.Contains(got, "added") {
		t.Error(got)
	}
	if err := m.Node.Close(); err != nil {
		t.Fatal(err)
	}
	m = openMirror(t, cfg, state, nil)
	if got := m.look(t); !strings.Contains(got, "added last") {
		t.Error(got)
	}
}

// Another torrent with the same name lies apart. A magnet link is asked for its size first.
func TestMirrorOfDirectory(t *testing.T) {
	t.Parallel()
	old, data, dir, out := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	a := webtest.Torrent(t, old, "set", webtest.File{Path: "x", Size: 100_000})
	b := webtest.Torrent(t, data, "set", webtest.File{Path: "x", Size: 50_000}, webtest.File{Path: "y", Size: 1})
	peers := append(webtest.Seed(t, a.Source, old), webtest.Seed(t, b.Source, data)...)
	write := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one.torrent", a.Torrent)
	m := openMirror(t, Config{Source: dir, Dir: out}, t.TempDir(), peers)
	if got := m.look(t); got != "added set" {
		t.Error(got)
	}
	arrives(t, filepath.Join(out, "set/x"), filepath.Join(old, "set/x"))
	write("one.torrent", b.Torrent)
	write("half.torrent", b.Torrent[:40])
	if got := m.look(t); got != "added set, failed half, kept set" {
		t.Error(got)
	}
	arrives(t, filepath.Join(out, b.Source.InfoHash.HexString()[:12], "set/x"), filepath.Join(data, "set/x"))

	feed := filepath.Join(t.TempDir(), "feed.xml")
	if err := os.WriteFile(feed, []byte(`<feed xmlns="http://www.w3.org/2005/Atom"><entry><title>set</title><link href="magnet:?xt=urn:btih:`+
		a.Source.InfoHash.HexString()+`"/></entry></feed>`), 0o600); err != nil {
		t.Fatal(err)
	}
	m = openMirror(t, Config{Source: feed, Dir: t.TempDir(), Limits: Limits{MaxTorrent: 1000}}, t.TempDir(), peers)
	if got := m.look(t); got != "left-out set" {
		t.Error(got)
	}
}

// Several magnet links may lead to one torrent.
func TestMirrorOfSameMagnets(t *testing.T) {
	t.Parallel()
	data, feed := t.TempDir(), filepath.Join(t.TempDir(), "feed.htm")
	c := webtest.Torrent(t, data, "set", webtest.File{Size: 10})
	link := `<a href="magnet:?xt=urn:btih:` + c.Source.InfoHash.HexString()
	if err := os.WriteFile(feed, []byte(link+`&dn=one">`+link+`&dn=two">`+link+`&dn=three">`), 0o600); err != nil {
		t.Fatal(err)
	}
	m := openMirror(t, Config{Source: feed, Dir: t.TempDir()}, t.TempDir(), webtest.Seed(t, c.Source, data))
	if got := m.look(t); got != "added set" {
		t.Error(got)
	}
}

// Magnet links that nobody describes do not delay the others.
func TestMirrorOfMagnets(t *testing.T) {
	t.Parallel()
	feed := filepath.Join(t.TempDir(), "feed.htm")
	var links strings.Builder
	for i := range waiting {
		fmt.Fprintf(&links, `<a href="magnet:?xt=urn:btih:%040x">`, i+1)
	}
	if err := os.WriteFile(feed, []byte(links.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	m := openMirror(t, Config{Source: feed, Dir: t.TempDir()}, t.TempDir(), nil)
	var asked sync.WaitGroup
	asked.Add(waiting)
	m.Options = func(client.Source) (node.Options, error) {
		asked.Done()
		asked.Wait() // until all are asked for
		return node.Options{}, errors.New("nobody describes it")
	}
	m.look(t)
}

// The mirror reads only a part of a very large directory. It removes nothing then, since the rest may
// still offer its torrents.
func TestMirrorOfLargeDirectory(t *testing.T) {
	t.Parallel()
	offers := t.TempDir()
	put := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(offers, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		put(name+".torrent", webtest.Torrent(t, t.TempDir(), name, webtest.File{Size: 10}).Torrent)
	}
	cfg := Config{Source: offers, Dir: t.TempDir(), Limits: Limits{Delete: true}}
	m := openMirror(t, cfg, t.TempDir(), nil)
	if got := m.look(t); got != "added a, added b" {
		t.Error(got)
	}
	if err := os.Remove(filepath.Join(offers, "a.torrent")); err != nil {
		t.Fatal(err)
	}
	for i := range maxOffers {
		if err := os.Symlink("nowhere", filepath.Join(offers, fmt.Sprint(i, ".torrent"))); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.look(t); strings.Contains(got, "removed") {
		t.Error(got)
	}
	for i := range maxOffers {
		if err := os.Remove(filepath.Join(offers, fmt.Sprint(i, ".torrent"))); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.look(t); got != "removed a" {
		t.Error(got)
	}
}

// A torrent that cannot be started is tried again, but not at each look.
func TestMirrorRetries(t *testing.T) {
	t.Parallel()
	offers, dir := t.TempDir(), t.TempDir()
	c := webtest.Torrent(t, t.TempDir(), "set", webtest.File{Size: 10})
	if err := errors.Join(
		os.WriteFile(filepath.Join(offers, "set.torrent"), c.Torrent, 0o600), os.WriteFile(filepath.Join(dir, "set"), []byte("foreign"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	m := openMirror(t, Config{Source: offers, Dir: dir}, t.TempDir(), nil)
	m.retried = time.Now() // not in the look that adds it
	m.look(t)
	set := m.Node.Torrents()[0]
	fails := func(times int) {
		t.Helper()
		await.True(t, fmt.Sprint(times, " failures"), func() bool {
			failed := slices.DeleteFunc(set.Log(), func(e node.LogEntry) bool { return e.Level != slog.LevelError })
			return set.State() == node.Failed && len(failed) == times
		})
	}
	fails(1)
	m.retried = time.Time{}
	m.look(t)
	fails(2)
	first := m.retried
	if m.look(t); m.retried != first {
		t.Error("it is restarted at each look")
	}
	m.retried = first.Add(-retryAfter)
	m.look(t)
	fails(3)
}

// The source is the URL of a torrent, which is replaced by another one.
func TestMirrorOfTorrent(t *testing.T) {
	t.Parallel()
	s, data := openSite(t), t.TempDir()
	old := webtest.Torrent(t, data, "old", webtest.File{Size: 10})
	newer := webtest.Torrent(t, data, "newer", webtest.File{Size: 10})
	m := openMirror(t, Config{Source: s.URL + "/latest", Dir: t.TempDir()}, t.TempDir(), nil)
	s.torrents["latest"] = old.Torrent
	if got := m.look(t); got != "added old" {
		t.Error(got)
	}
	s.torrents["latest"] = newer.Torrent
	if got := m.look(t); got != "added newer, kept old" {
		t.Error(got)
	}
}

// Nobody sees the error of Look while a mirror runs, so it is an event, too.
func TestMirrorTellsErrors(t *testing.T) {
	t.Parallel()
	m := openMirror(t, Config{Source: t.TempDir(), Dir: t.TempDir()}, t.TempDir(), nil)
	var told []string
	m.Tell = func(e event.Mirror) {
		if e.Action == "failed" {
			told = append(told, e.Reason)
		}
	}
	m.State = filepath.Join(m.Dir, "missing", "mirror.json")
	if err := m.Look(t.Context()); err == nil || len(told) != 1 || told[0] != err.Error() {
		t.Errorf("the state cannot be saved: %v; told %q", err, told)
	}
	m.Source, m.source.name = "missing", "missing"
	told = nil
	if err := m.Look(t.Context()); err == nil || len(told) != 1 || told[0] != err.Error() {
		t.Errorf("the source is missing: %v; told %q", err, told)
	}
}

// A feed of the Internet cannot make us ask hosts of our own network.
func TestFarFeedNamesNearHost(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	src := source{name: "http://far.example/feed", asked: answer{Scope: scionnet.ScopePublic}}
	if _, err := src.torrent(t.Context(), Offer{Link: s.URL + "/a.torrent"}); err == nil || !strings.Contains(err.Error(), "loopback") || len(s.asked) > 0 {
		t.Errorf("%v, %v", err, s.asked)
	}
	got, err := src.torrent(t.Context(), Offer{Link: "magnet:?xt=urn:btih:" + hash + "&x.pe=127.0.0.1:1&x.pe=192.0.2.1:1"})
	if err != nil || len(got.Peers) != 1 {
		t.Errorf("%v, %v", got.Peers, err)
	}
}

// After a failed look, the next one comes sooner, and after each further failure later, but never
// later than the interval.
func TestRetriesFailedLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var looks []time.Duration
		m := &Mirror{Config: Config{Tell: func(event.Mirror) { looks = append(looks, time.Since(began)) }}}
		m.source.name = filepath.Join(t.TempDir(), "missing")
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
		defer cancel()
		m.Run(ctx, 15*time.Minute)
		want := []time.Duration{0, 1, 3, 7, 15, 30}
		for i := range want {
			want[i] *= time.Minute
		}
		if !slices.Equal(looks, want) {
			t.Errorf("looks at %v, want %v", looks, want)
		}
	})
}
