package v1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"braid/client"
	"braid/node"
	"braid/pathsel"
)

// The ring keeps a bounded number of messages and bytes. A reader that is too far behind is told
// so; one within it gets each message once, in order.
func TestRing(t *testing.T) {
	for _, size := range []int{10, maxRingBytes / 100} {
		h := &hub{next: 1, wake: make(chan struct{})}
		for i := range 3 * maxRing {
			h.append(message{"log", bytes.Repeat([]byte("x"), size)})
			if size > 10 && i > 300 {
				break
			}
		}
		if len(h.ring) > maxRing || h.bytes > maxRingBytes {
			t.Errorf("%d messages of %d bytes are kept", len(h.ring), h.bytes)
		}
		last := h.next - 1
		for _, tt := range []struct {
			after int64
			want  int
			ok    bool
		}{
			{-1, 0, false}, {0, 0, false}, {last - int64(len(h.ring)) - 1, 0, false}, {last - int64(len(h.ring)), len(h.ring), true},
			{last - 1, 1, true}, {last, 0, true}, {last + 1, 0, false},
		} {
			all, wake, ok := h.after(tt.after)
			if ok != tt.ok || len(all) != tt.want || wake == nil {
				t.Errorf("after %d of %d: %d messages, %v; want %d, %v", tt.after, last, len(all), ok, tt.want, tt.ok)
			}
		}
	}
}

func TestReadersAreBounded(t *testing.T) {
	h := &hub{readers: make(chan struct{}, maxReaders)}
	n := 0
	for ; n < 2*maxReaders && h.enter(); n++ {
	}
	if h.leave(); n != maxReaders || !h.enter() || h.enter() {
		t.Errorf("%d readers", n)
	}
}

// A reader on a slow line gets a large snapshot. One that reads nothing is given up.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		data := bytes.Repeat([]byte("x"), 1<<20)
		sent := make(chan error, 2)
		go func() {
			defer ours.Close()
			w := pipeWriter{Conn: ours}
			out := stream{w, http.NewResponseController(w), "epoch"}
			sent <- out.send(1, message{"snapshot", data})
			sent <- out.send(2, message{"snapshot", data})
		}()
		for got := 0; got < len(data); { // 52 kbit/s
			time.Sleep(10 * time.Second)
			n, err := io.CopyN(io.Discard, theirs, 64<<10)
			if got += int(n); err != nil {
				t.Fatalf("after %d bytes: %v", got, err)
			}
		}
		go func() { _, _ = io.CopyN(io.Discard, theirs, 1000) }()
		if first, second := <-sent, <-sent; first != nil || !errors.Is(second, os.ErrDeadlineExceeded) {
			t.Errorf("the slow reader: %v; the silent one: %v", first, second)
		}
	})
}

// pipeWriter writes an answer to a connection.
type pipeWriter struct {
	net.Conn
	http.ResponseWriter
}

func (w pipeWriter) Write(b []byte) (int, error) { return w.Conn.Write(b) }

func TestReadEvents(t *testing.T) {
	in := ":\n\nid: a-1\nevent: totals\ndata: {}\n\n:\n\nid: a-2\nevent: new\ndata: 1: 2\n\nid: a-3\nevent: log\ndata: cut of"
	var got []string
	if err := readEvents(strings.NewReader(in), func(e Event) error {
		got = append(got, fmt.Sprintf("%s %s %s", e.ID, e.Name, e.Data))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := "a-1 totals {};a-2 new 1: 2"; strings.Join(got, ";") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func interfaces(t *testing.T, text string) (out []pathsel.Interface) {
	for f := range strings.FieldsSeq(text) {
		ia, id, _ := strings.Cut(f, "#")
		x, err := pathsel.ParseIA(ia)
		if err != nil {
			t.Fatal(err)
		}
		i := pathsel.Interface{IA: x}
		if _, err := fmt.Sscan(id, &i.ID); err != nil {
			t.Fatal(err)
		}
		out = append(out, i)
	}
	return out
}

func pathOf(t *testing.T, text string) pathsel.Path {
	i := interfaces(t, text)
	return pathsel.Path{Src: i[0].IA, Dst: i[len(i)-1].IA, Interfaces: i, Fingerprint: pathsel.FingerprintOf(i)}
}

func TestHops(t *testing.T) {
	got := fmt.Sprint(hopsOf(pathOf(t, "1-1#5 1-2#6 1-2#7 1-3#8")))
	if want := "[{1-1 0 5} {1-2 6 7} {1-3 8 0}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := hopsOf(pathsel.Path{}); got == nil || len(got) != 0 {
		t.Errorf("no interfaces: %v", got)
	}
}

// The map sums rates over paths, and counts a link once whichever way it is used.
func TestMap(t *testing.T) {
	m := newMapper()
	p := func(peer, path string, mbit float64, state pathsel.State) client.PathProgress {
		return client.PathProgress{Peer: peer, Path: pathOf(t, path), ReadRate: mbit * mega, State: state}
	}
	m.add("a", p("x", "1-1#1 1-2#1 1-2#2 1-3#1", 1, pathsel.Active))
	m.add("a", p("x", "1-1#2 1-3#2", 2, pathsel.Active))
	m.add("b", p("y", "1-1#1 1-2#1", 4, pathsel.Parked))
	m.add("b", p("z", "1-2#1 1-1#1", 8, pathsel.Active)) // as the peer sees it
	m.add("b", client.PathProgress{Peer: "ip"})
	got := m.result()
	want := Map{
		Local: "1-1",
		ASes: []MapAS{
			{ISDAS: "1-1", Peers: 1, Paths: 4, DownMbitS: 15}, {ISDAS: "1-2", Peers: 1, Paths: 3, DownMbitS: 13}, {ISDAS: "1-3", Peers: 1, Paths: 2, DownMbitS: 3},
		},
		Links: []MapLink{
			{A: "1-1#1", B: "1-2#1", Paths: 3, ActivePaths: 2, DownMbitS: 13, Torrents: []string{"a", "b"}},
			{A: "1-1#2", B: "1-3#2", Paths: 1, ActivePaths: 1, DownMbitS: 2, Torrents: []string{"a"}},
			{A: "1-2#2", B: "1-3#1", Paths: 1, ActivePaths: 1, DownMbitS: 1, Torrents: []string{"a"}},
		},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("\n got %v\nwant %v", got, want)
	}
}

// The journal is bounded, and hides keys.
func TestJournal(t *testing.T) {
	j := &Journal{}
	for i := range 2 * maxJournal {
		slog.New(j.Handler()).With("torrent", "x").Info("line", "n", i, "url", "http://t.example/0123456789abcdef0123456789abcdef/announce")
	}
	slog.New(j.Handler()).Debug("not this")
	j.add(LogEntry{Text: strings.Repeat("é", maxEntry)})
	all := j.Entries()
	if len(all) != maxJournal {
		t.Errorf("%d entries", len(all))
	}
	if e := all[len(all)-1]; len(e.Text) > maxEntry+10 || strings.ContainsRune(e.Text, '\uFFFD') {
		t.Errorf("the longest entry has %d bytes", len(e.Text))
	}
	if e := all[0]; !strings.Contains(e.Text, "torrent: x") || strings.Contains(e.Text, "abcdef") || e.Level != "info" {
		t.Errorf("%+v", e)
	}
}

// Once the schedule has ended a switch by hand, the settings no longer show it. Whoever saves them
// would switch again.
func TestSwitchThatHasEnded(t *testing.T) {
	a := node.Alternative{Hand: new(true), Since: time.Now().AddDate(0, 0, -30)}
	if !newSettings(node.Settings{Alternative: a}).Schedule.Always {
		t.Error("without a schedule, a switch holds for ever")
	}
	a.Schedule = node.Schedule{On: true, To: 1, Days: [7]bool{1: true}}
	if newSettings(node.Settings{Alternative: a}).Schedule.Always {
		t.Error("the schedule has begun and ended since the switch")
	}
}

// The path inside one AS has no hop fields, so it has no expiry.
func TestExpiryOfPaths(t *testing.T) {
	between := pathOf(t, "1-1#5 1-2#6")
	between.Expiry = time.Now()
	inside := pathsel.Path{Expiry: time.Now()}
	for _, p := range []pathsel.Path{between, inside} {
		if got := newPath(client.PathProgress{Path: p}, 0).Expiry; got.IsZero() == (p.Hops() > 0) {
			t.Errorf("path of %d hops: expiry %v", p.Hops(), got)
		}
	}
}

// The cost of a second's look at many seeds of which none changes.
func BenchmarkSample(b *testing.B) {
	dir := b.TempDir()
	n, err := node.Open(b.Context(), node.Config{Service: true, State: b.TempDir(), Client: client.Config{}, Settings: node.Settings{Dir: dir}})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	for i := range 200 {
		name := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(name, []byte(name), 0o600); err != nil {
			b.Fatal(err)
		}
		c, err := client.Create(b.Context(), name, client.CreateOptions{})
		if err == nil {
			_, err = n.Add(b.Context(), node.Options{Source: c.Source})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	a := New(Config{Node: n, Journal: &Journal{}})
	defer a.Close()
	for a.sum(a.rows()).States["seeding"] < 200 {
		time.Sleep(10 * time.Millisecond)
	}
	b.ReportAllocs()
	for b.Loop() {
		a.hub.sample()
	}
}
