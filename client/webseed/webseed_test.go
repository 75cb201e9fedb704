package webseed

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	pp "github.com/anacrolix/torrent/peer_protocol"

	"braid/storage"
)

func FuzzContentRange(f *testing.F) {
	for _, s := range []string{"bytes 0-9/10", "bytes 0-9/*", "bytes */10", "bytes 9-0/1", "bytes 0--9/10", "items 0-9/10", "bytes 0-99999999999999999999/10", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		first, last, total, err := parseContentRange(s)
		if err == nil && (first < 0 || last < 0 || total < -1) {
			t.Errorf("%q: %d-%d/%d", s, first, last, total)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for s, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-7": 0, "999999999": maxPause, "x": 0,
		now.Add(30 * time.Second).Format(http.TimeFormat): 30 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):       0,
		now.Add(999 * time.Hour).Format(http.TimeFormat):  maxPause,
	} {
		if got := retryAfter(s, now); got != want {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}

func TestFileURL(t *testing.T) {
	one := storage.Layout{Name: "f x", Files: []storage.File{{Path: "f x"}}}
	plus := storage.Layout{Name: "g++", Files: []storage.File{{Path: "g++/a+%2B"}}}
	many := storage.Layout{Name: "d", Files: []storage.File{{Path: "d/a?b"}, {Path: "d/c"}}}
	for _, x := range []struct {
		base string
		l    storage.Layout
		want string
	}{
		{"http://h/get", one, "http://h/get"},
		{"http://h/get/", one, "http://h/get/f%20x"},
		{"http://h", one, "http://h/f%20x"},
		{"http://h/a%2Fb+c/", one, "http://h/a%2Fb+c/f%20x"},
		{"http://h/get", many, "http://h/get/d/a%3Fb"},
		{"http://h/get/?k=v", many, "http://h/get/d/a%3Fb?k=v"},
		{"http://h/get", plus, "http://h/get/g%2B%2B/a%2B%252B"},
	} {
		u, err := url.Parse(x.base)
		if err != nil {
			t.Fatal(err)
		}
		if got := fileURL(u, x.l, x.l.Files[0]); got != x.want {
			t.Errorf("%s: %s, want %s", x.base, got, x.want)
		}
	}
}

// A server that is busy again and again takes no memory.
func TestPausesLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(Config{})
		defer c.cancel()
		pauses := func(n int) uint64 {
			for range n {
				c.mu.Lock()
				c.pause(time.Second)
				c.out = nil // the engine has read it
				c.mu.Unlock()
				time.Sleep(2 * time.Second)
			}
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapObjects
		}
		const n = 10_000
		if before, after := pauses(1), pauses(n); after > before+n {
			t.Errorf("%d more objects after %d pauses", after-before, n)
		}
	})
}

// zeros are endless.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// wholeFile is a server without ranges that is slow to begin.
type wholeFile struct {
	length int64
	after  time.Duration
	asked  int
}

func (w *wholeFile) RoundTrip(*http.Request) (*http.Response, error) {
	w.asked++
	from, to := io.Pipe()
	go func() {
		time.Sleep(w.after)
		_, _ = io.CopyN(to, zeros{}, w.length)
	}()
	return &http.Response{StatusCode: http.StatusOK, ContentLength: w.length, Body: from, Header: http.Header{}}, nil
}

// oneFile begins a connection to a server of one file, and shakes hands on it. It counts the messages
// that come, by their types.
func oneFile(
	t *testing.T, length, pieceLength int64, ranged bool, server http.RoundTripper,
) (c *Conn, count map[pp.MessageType]int) {
	l := storage.Layout{
		Name: "f", PieceLength: pieceLength, Length: length,
		Files: []storage.File{{Path: "f", Length: length}},
	}
	at := &url.URL{Scheme: "http", Host: "h", Path: "/f"}
	c = newConn(Config{URL: at, Layout: l, Client: &http.Client{Transport: server}})
	c.ranged = ranged
	c.begin()
	t.Cleanup(func() { c.Close() })
	count = map[pp.MessageType]int{}
	go func() {
		_, _ = io.CopyN(io.Discard, c.Conn, 68)
		for in := (pp.Decoder{R: bufio.NewReader(c.Conn), MaxLength: maxMessage}); ; {
			var m pp.Message
			if in.Decode(&m) != nil {
				return
			}
			count[m.Type]++
		}
	}()
	_, _ = c.Conn.Write(append([]byte("\x13BitTorrent protocol"), make([]byte, 48)...))
	return c, count
}

// A server without ranges needs so long to reach a place in a file that requests are taken back.
// They are answered all the same when they are made again, without another file from the start.
func TestRequestsTakenBackFromWholeFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const length, blockSize = 1 << 20, 16 << 10
		server := &wholeFile{length: length, after: 10 * time.Second}
		c, count := oneFile(t, length, 64<<10, false, server)
		say := func(kind pp.MessageType) {
			for i := range 4 {
				m := pp.Message{Type: kind, Index: 8, Begin: pp.Integer(i * blockSize), Length: blockSize}
				_, _ = c.Conn.Write(m.MustMarshalBinary())
			}
		}
		say(pp.Request)
		time.Sleep(5 * time.Second)
		say(pp.Cancel)
		say(pp.Request)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := count[pp.Piece]; n != 4 || server.asked != 1 {
			t.Errorf("%d of 4 blocks, and the file was asked for %d times", n, server.asked)
		}
	})
}

// shortAnswers is a server that never sends more than some bytes of a range: it says so, or its
// connection breaks.
type shortAnswers struct {
	length, most int64
	breaks       bool
	asked        atomic.Int64
}

func (s *shortAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked.Add(1)
	var from, to int64
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err != nil {
		return nil, err
	}
	n := min(to-from+1, s.most)
	body := io.LimitReader(zeros{}, n)
	if s.breaks && n < to-from+1 {
		body = io.MultiReader(body, iotest.ErrReader(io.ErrUnexpectedEOF))
	} else {
		to = from + n - 1
	}
	header := http.Header{"Content-Range": {fmt.Sprintf("bytes %d-%d/%d", from, to, s.length)}}
	return &http.Response{StatusCode: http.StatusPartialContent, Header: header, Body: io.NopCloser(body)}, nil
}

// A server may send less than was requested. Its bytes are used and the rest is requested again,
// unless it sends hardly anything.
func TestShortAnswers(t *testing.T) {
	const length, blockSize = 4 << 20, 16 << 10
	for _, x := range []struct {
		name   string
		most   int64
		breaks bool
		useful bool
		asked  int64 // at most
	}{
		{"a limit", 40_000, false, true, 4<<20/40_000 + length/blockSize},
		{"a limit of less than a block", 10_000, false, true, 4<<20/10_000 + length/blockSize},
		{"breaks", 100_000, true, true, 4<<20/100_000 + length/blockSize},
		{"hardly anything", 1, false, false, 10 * maxShort},
		{"nothing", 0, true, false, 20},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &shortAnswers{length: length, most: x.most, breaks: x.breaks}
				c, count := oneFile(t, length, 1<<20, true, server)
				for i := range length / blockSize {
					m := pp.Message{Type: pp.Request, Index: pp.Integer(i / 64), Begin: pp.Integer(i % 64 * blockSize), Length: blockSize}
					_, _ = c.Conn.Write(m.MustMarshalBinary())
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := count[pp.Piece]; x.useful && n != length/blockSize || !x.useful && n > 0 {
					t.Errorf("%d of %d blocks", n, length/blockSize)
				}
				if n := count[pp.Choke]; x.useful != (n == 0) {
					t.Errorf("the server was left alone %d times", n)
				}
				if n := server.asked.Load(); n > x.asked {
					t.Errorf("%d requests, want at most %d", n, x.asked)
				}
			})
		})
	}
}

// While a server is slow, requests may be taken back and made again as often as the engine likes.
func TestManyRequestsTakenBack(t *testing.T) {
	c := newConn(Config{})
	defer c.cancel()
	for range 2 * maxQueue {
		b := block{RequestSpec: pp.RequestSpec{Length: 1}}
		if err := errors.Join(c.add(b), c.add(b)); err != nil {
			t.Fatal(err)
		}
		c.take(b)
	}
}

// lacking is a server that has one file only.
type lacking struct{ file string }

func (l lacking) RoundTrip(r *http.Request) (*http.Response, error) {
	res := &http.Response{StatusCode: http.StatusNotFound, ContentLength: 0, Body: io.NopCloser(zeros{})}
	if r.URL.Path == l.file {
		res.StatusCode, res.ContentLength = http.StatusOK, 1
	}
	return res, nil
}

// A server may get a file later: after a while, it is asked for it again.
func TestLackingFilesAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := storage.Layout{Name: "d", PieceLength: 1, Length: 2, Files: []storage.File{{Path: "d/a", Length: 1}, {Path: "d/b", Length: 1, Offset: 1}}}
		cfg := Config{URL: &url.URL{Scheme: "http", Host: "h"}, Layout: l, Client: &http.Client{Transport: lacking{"/d/b"}}, Lacks: &sync.Map{}}
		c, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(append(append(make([]byte, 28), cfg.InfoHash[:]...), make([]byte, 20)...)); err != nil {
			t.Fatal(err)
		}
		theirs := make([]byte, 68)
		if _, err := io.ReadFull(c, theirs); err != nil {
			t.Fatal(err)
		}
		m := make([]byte, 6)
		if _, err := io.ReadFull(c, m); err != nil || string(m) != "\x00\x00\x00\x02\x05\x40" {
			t.Errorf("the server has the pieces %q, %v", m, err)
		}
		go func() { _, _ = io.Copy(io.Discard, c) }()
		time.Sleep(time.Hour)
		if _, known := cfg.Lacks.Load(l.Files[0]); c.Err() == nil || known {
			t.Errorf("the connection goes on: %v, %v", c.Err(), known)
		}
	})
}

// mirror has every second of its files. It counts the requests for each.
type mirror struct {
	asked map[string]int
	trip  time.Duration
}

func (m *mirror) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(m.trip)
	m.asked[r.URL.Path]++
	res := &http.Response{StatusCode: http.StatusNotFound, ContentLength: 0, Body: io.NopCloser(zeros{})}
	if n := r.URL.Path; (n[len(n)-1]-'0')%2 != 0 {
		res.StatusCode, res.ContentLength = http.StatusOK, 1
	}
	return res, nil
}

// A server that lacks many files is asked for each once, not with a connection for each.
func TestServerLacksManyFiles(t *testing.T) {
	for trip, opened := range map[time.Duration]int{10 * time.Millisecond: 1, 500 * time.Millisecond: 20} {
		synctest.Test(t, func(t *testing.T) {
			server := &mirror{asked: map[string]int{}, trip: trip}
			l := storage.Layout{Name: "d", PieceLength: 1, Length: 100}
			for i := range 100 {
				l.Files = append(l.Files, storage.File{Path: fmt.Sprintf("d/%02d", i), Length: 1, Offset: int64(i)})
			}
			cfg := Config{URL: &url.URL{Scheme: "http", Host: "h"}, Layout: l, Client: &http.Client{Transport: server}, Lacks: &sync.Map{}}
			has := 0
			for range opened {
				c, err := Open(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				has = 0
				for _, there := range c.pieces() {
					if there {
						has++
					}
				}
				c.Close()
			}
			again := 0
			for path, n := range server.asked {
				if n > 1 && path != "/d/01" {
					again++
				}
			}
			if has != 50 || len(server.asked) != 100 || again > opened {
				t.Errorf("round trip %v: the server seems to have %d files; %d were asked for, %d of them again", trip, has, len(server.asked), again)
			}
		})
	}
}
