package client

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"braid/units/await"
)

// webServer serves a handler on loopback.
func webServer(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL + "/"
}

// withoutRanges hides the header of that name from a server.
func withoutRanges(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Range")
		h.ServeHTTP(w, r)
	})
}

// webData is a directory with a torrent of several files.
func webData(t *testing.T) (dir string, src Source) {
	t.Helper()
	dir = t.TempDir()
	randomFiles(t, dir, "data", 300_000, 0, 1, 65536, 2_000_000, 70_000)
	return dir, makeTorrent(t, filepath.Join(dir, "data"), CreateOptions{PieceLength: 64 << 10}).Source
}

// webDownload downloads from web seeds that the user names.
func webDownload(t *testing.T, src Source, to string, o Options, urls ...string) *Transfer {
	t.Helper()
	for _, u := range urls {
		o.WebSeeds = append(o.WebSeeds, WebSeed{URL: u, ByUser: true})
	}
	tr, err := openSession(t, Config{}).Add(src, openStore(t, to), o)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestWebSeed(t *testing.T) {
	dir, src := webData(t)
	good := http.FileServer(http.Dir(dir))
	var asked, busy atomic.Int64
	for name, h := range map[string]http.Handler{
		"ranges":    good,
		"no ranges": withoutRanges(good),
		"busy at times": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n := asked.Add(1); n > 1 && n < 4 {
				busy.Add(1)
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			good.ServeHTTP(w, r)
		}),
		"redirects": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if at, ok := strings.CutPrefix(r.URL.Path, "/elsewhere"); ok {
				r.URL.Path = at
				good.ServeHTTP(w, r)
				return
			}
			http.Redirect(w, r, "/elsewhere"+r.URL.EscapedPath(), http.StatusFound)
		}),
		"endless": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // more than was requested
			f, err := os.Open(filepath.Join(dir, filepath.FromSlash(r.URL.Path)))
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			_, _ = io.Copy(w, f)
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			to := t.TempDir()
			tr := webDownload(t, src, to, Options{}, webServer(t, h))
			if p := wait(t, tr); p.Err != nil || p.Paths[0].Transport != "http" || p.Paths[0].BytesRead < uint64(src.Layout.Length) {
				t.Errorf("%+v", p)
			}
			sameFiles(t, src, dir, to)
		})
	}
	if busy.Load() == 0 {
		t.Error("the server was never busy")
	}
}

// A URL without a slash at its end is that of a torrent's only file.
func TestWebSeedOfFile(t *testing.T) {
	dir, to := t.TempDir(), t.TempDir()
	writeRandom(t, filepath.Join(dir, "f"), 200_000)
	src := makeTorrent(t, filepath.Join(dir, "f"), CreateOptions{PieceLength: 32 << 10}).Source
	url := webServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() != "/get?id=7" {
			t.Errorf("asked for %s", r.URL)
		}
		http.ServeFile(w, r, filepath.Join(dir, "f"))
	}))
	wait(t, webDownload(t, src, to, Options{}, url+"get?id=7"))
	sameFiles(t, src, dir, to)
}

// Whatever a server does, the download ends right with the data of an honest peer, and the reason
// why the server is of no use is shown.
func TestHostileWebSeeds(t *testing.T) {
	dir, src := webData(t)
	good := http.FileServer(http.Dir(dir))
	for name, x := range map[string]struct {
		h    http.HandlerFunc
		says string
	}{
		"absent":     {http.NotFound, "answers 404"},
		"always 500": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "answers 500"},
		"another size": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "hello")
		}, "a file of 5 bytes instead of 300000"},
		"another range": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 7-7/300000")
			w.WriteHeader(http.StatusPartialContent)
		}, "other bytes"},
		"compressed": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(http.StatusPartialContent)
		}, "encodes"},
		"turns in circles": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }, "too many redirects"},
		"wrong bytes": {func(w http.ResponseWriter, r *http.Request) {
			good.ServeHTTP(wrong{w}, r)
		}, ""},
		"stalls": {func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") == "bytes=0-0" {
				good.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Range", strings.Replace(r.Header.Get("Range"), "=", " ", 1)+"/300000")
			w.WriteHeader(http.StatusPartialContent)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, ""},
		"hangs up": {func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") == "bytes=0-0" {
				good.ServeHTTP(w, r)
				return
			}
			panic(http.ErrAbortHandler)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := t.TempDir()
			told := make(chan struct{})
			var once sync.Once
			tr := webDownload(t, src, to, Options{Decided: func(e PathEvent) {
				if x.says != "" && e.Name == "path-failed" && strings.Contains(e.Reason, x.says) {
					once.Do(func() { close(told) })
				}
			}}, webServer(t, x.h))
			if x.says == "" { // it is given up after a while, or banned
				close(told)
			}
			await.Value(t, "a reason why the web seed is of no use", told)
			tr.AddPeers(seed(t, src, dir).Listening()...)
			if p := wait(t, tr); p.Err != nil {
				t.Error(p.Err)
			}
			sameFiles(t, src, dir, to)
		})
	}
}

// Servers that lack a file, or have another one of its name, serve the others.
func TestWebSeedsLackFiles(t *testing.T) {
	dir, src := webData(t)
	good := http.FileServer(http.Dir(dir))
	without := func(file string, answer http.HandlerFunc) string {
		return webServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, file) {
				answer(w, r)
			} else {
				good.ServeHTTP(w, r)
			}
		}))
	}
	to := t.TempDir()
	tr := webDownload(t, src, to, Options{}, without("/f0", http.NotFound), without("/f5", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "another")
	}))
	if p := wait(t, tr); p.Err != nil {
		t.Error(p.Err)
	}
	sameFiles(t, src, dir, to)
}

// wrong changes what it is given to write.
type wrong struct{ http.ResponseWriter }

func (w wrong) Write(b []byte) (int, error) {
	b = slices.Clone(b)
	for i := range b {
		b[i] ^= 1
	}
	return w.ResponseWriter.Write(b)
}

// A torrent can make braid contact no host on this machine or its network, neither by a URL nor by
// a name. Web seeds of BEP 17 are refused.
func TestWebSeedsOfStrangers(t *testing.T) {
	dir, src := webData(t)
	var asked atomic.Int64
	url := webServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	src.WebSeeds = []string{
		url, strings.Replace(url, "127.0.0.1", "localhost", 1), "ftp://127.0.0.1/", "http://", "scion://1-ff00:0:110,[127.0.0.1]:80/", "\x00",
		"http://192.168.0.1/", "http://[::1]:80/", "http://old.example/",
	}
	src.HTTPSeeds = []string{"http://old.example/"}
	if _, _, err := (WebSeed{URL: "http://old.example/"}).of(src); err == nil || !strings.Contains(err.Error(), "httpseeds (BEP 17)") {
		t.Errorf("a web seed of BEP 17: %v", err)
	}
	var failed atomic.Int64
	reached := make(chan string, 100)
	tr, err := openSession(t, Config{}).Add(src, openStore(t, t.TempDir()), Options{Decided: func(e PathEvent) {
		if e.Name == "path-failed" {
			failed.Add(1)
			reached <- e.Reason
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if why := <-reached; !strings.Contains(why, "a stranger has named a server at a loopback address") {
		t.Error(why)
	}
	var seeds []string
	for _, p := range tr.Progress().Paths {
		seeds = append(seeds, p.Peer)
	}
	if len(seeds) != 1 || !strings.Contains(seeds[0], "localhost") || asked.Load() != 0 {
		t.Errorf("%d requests; the web seeds are %q", asked.Load(), seeds)
	}
	tr.AddPeers(seed(t, src, dir).Listening()...)
	if p := wait(t, tr); p.Err != nil {
		t.Error(p.Err)
	}
}

// Several torrents share the list of the user's web seeds, and do not mix their own into it.
func TestWebSeedsOfSeveralTorrents(t *testing.T) {
	named := make([]WebSeed, 1, 2)
	named[0] = WebSeed{URL: "http://user.example/", ByUser: true}
	x := webTransport{source: Source{WebSeeds: []string{"http://torrent.example/"}}, log: testLog(t)}
	if seeds := x.webSeeds(named); len(seeds) != 2 || named[:2][1].URL != "" {
		t.Errorf("web seeds %v, and the shared list is %v", seeds, named[:2])
	}
}

// A redirect of a server on the Internet cannot lead to this machine.
func TestWebSeedRedirectInward(t *testing.T) {
	p, _, err := WebSeed{URL: "http://files.example/"}.peer()
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	inner := webServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	res, err := ipClient(p).Get(inner) //nolint:noctx // a test
	if err == nil {
		res.Body.Close()
	}
	if err == nil || asked.Load() != 0 {
		t.Error("a stranger reaches this machine")
	}
	for _, u := range []string{"http://x/" + strings.Repeat("a", maxWebSeedURL), "gopher://x/", "http:///x", "http://x:99999/", "scion://name.example/"} {
		if err := CheckWebSeed(u); err == nil {
			t.Errorf("%.50q is accepted", u)
		}
	}
	for _, u := range []string{"http://x/", "https://x:8443/a?b=c", "scion://1-ff00:0:110,[127.0.0.1]:31080/torrent/", "http://scion4-1-ff00-0-110_127-0-0-1:8080/"} {
		if err := CheckWebSeed(u); err != nil {
			t.Error(err)
		}
	}
}
