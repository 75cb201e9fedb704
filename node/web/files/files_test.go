package files_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/client"
	"braid/node"
	"braid/node/web/files"
	"braid/node/web/webtest"
	"braid/storage"
	"braid/units/await"
)

// served is a torrent, and the URL of its files.
type served struct {
	src  client.Source
	dir  string // with the data
	url  string
	node *node.Node
}

// serve serves a torrent of these files from a complete copy.
func serve(t *testing.T, name string, list ...webtest.File) served {
	t.Helper()
	dir := t.TempDir()
	c := webtest.Torrent(t, dir, name, list...)
	n, _ := webtest.Service(t)
	x, err := n.Add(t.Context(), node.Options{
		Source: c.Source, Storage: node.Storage{Kind: storage.KindFile, Dir: dir, Complete: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "the start", func() bool { return x.State() == node.Running })
	return served{c.Source, dir, start(t, n, false) + files.Prefix + x.InfoHash() + "/", n}
}

// start serves a node's files on loopback.
func start(t *testing.T, n *node.Node, private bool) (url string) {
	t.Helper()
	s, err := files.Serve(t.Context(), n, []string{"127.0.0.1:0"}, private, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.URLs()[0]
}

// ask makes a request with these headers, "Name: value".
func ask(t *testing.T, method, url string, headers ...string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, b
}

func TestRanges(t *testing.T) {
	s := serve(t, "film.mp4", webtest.File{Size: 100_000})
	data, err := os.ReadFile(filepath.Join(s.dir, "film.mp4"))
	if err != nil {
		t.Fatal(err)
	}
	url := s.url + "film.mp4"
	whole, got := ask(t, http.MethodGet, url)
	tag := whole.Header.Get("ETag")
	if !bytes.Equal(got, data) || tag == "" || whole.Header.Get("Content-Type") != "video/mp4" || whole.Header.Get("Accept-Ranges") != "bytes" {
		t.Errorf("%d bytes with %v", len(got), whole.Header)
	}
	for _, x := range []struct {
		headers  string
		status   int
		from, to int
	}{
		{"Range: bytes=0-0", 206, 0, 1},
		{"Range: bytes=32760-32780", 206, 32760, 32781},
		{"Range: bytes=99999-", 206, 99999, 100_000},
		{"Range: bytes=-5", 206, 99995, 100_000},
		{"Range: bytes=5-200000", 206, 5, 100_000},
		{"Range: bytes=100000-", 416, 0, 0},
		{"Range: bytes=9-5", 416, 0, 0},
		{"Range: lines=1-2", 416, 0, 0},
		{"Range: bytes=0-0" + strings.Repeat(",5-5", 100), 416, 0, 0},
		{"Range: bytes=1-2|If-Range: " + tag, 206, 1, 3},
		{`Range: bytes=1-2|If-Range: "other"`, 200, 0, 100_000},
		{"If-None-Match: " + tag, 304, 0, 0},
		{`If-None-Match: "other"`, 200, 0, 100_000},
	} {
		res, got := ask(t, http.MethodGet, url, strings.Split(x.headers, "|")...)
		if res.StatusCode != x.status {
			t.Errorf("%s: status %d, want %d", x.headers, res.StatusCode, x.status)
		} else if x.status < 300 && !bytes.Equal(got, data[x.from:x.to]) {
			t.Errorf("%s: %d bytes, or wrong ones", x.headers, len(got))
		}
	}
	res, got := ask(t, http.MethodHead, url)
	if res.ContentLength != 100_000 || len(got) != 0 || res.Header.Get("ETag") != tag {
		t.Errorf("HEAD: %d bytes of %d", len(got), res.ContentLength)
	}
	res, got = ask(t, http.MethodGet, url, "Range: bytes=1-3,50000-50009,-2")
	_, params, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil || res.StatusCode != http.StatusPartialContent {
		t.Fatal(res.Status, err)
	}
	parts := multipart.NewReader(bytes.NewReader(got), params["boundary"])
	for _, want := range [][]byte{data[1:4], data[50000:50010], data[99998:]} {
		p, err := parts.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(p); err != nil || !bytes.Equal(b, want) {
			t.Errorf("a part has %d bytes, want %d: %v", len(b), len(want), err)
		}
	}
}

func TestRefusals(t *testing.T) {
	s := serve(t, "data", webtest.File{Path: "a/x & <y>.txt", Size: 10}, webtest.File{Path: "b", Size: 10})
	root := strings.Split(s.url, files.Prefix)[0]
	for _, x := range []struct {
		method, url string
		status      int
	}{
		{"GET", root + "/", 404},
		{"GET", root + "/api/v1/torrents", 404},
		{"GET", root + "/torrent/", 404},
		{"GET", root + files.Prefix + strings.Repeat("0", 40) + "/", 404},
		{"GET", root + files.Prefix + "../../etc/passwd", 404},
		{"GET", s.url + "data/c", 404},
		{"GET", s.url + "data/%2e%2e/%2e%2e/etc/passwd", 404},
		{"GET", s.url + "data/b/", 404},
		{"GET", s.url + "data/a", 301},
		{"POST", s.url + "data/b", 405},
		{"DELETE", s.url + "data/b", 405},
		{"GET", strings.ReplaceAll(s.url, s.src.InfoHash.HexString(), strings.ToUpper(s.src.InfoHash.HexString())) + "data/b", 200},
	} {
		res, _ := ask(t, x.method, x.url)
		if res.StatusCode == http.StatusTemporaryRedirect || res.StatusCode == http.StatusMovedPermanently && x.status == 404 {
			at, err := res.Location() // the path was cleaned
			if err != nil {
				t.Fatal(err)
			}
			res, _ = ask(t, x.method, at.String())
		}
		if res.StatusCode != x.status {
			t.Errorf("%s %s: status %d, want %d", x.method, x.url, res.StatusCode, x.status)
		}
	}
	res, page := ask(t, http.MethodGet, s.url+"data/a/")
	if !strings.Contains(string(page), `<a href="./x%20&amp;%20%3Cy%3E.txt">x &amp; &lt;y&gt;.txt</a>`) || strings.Contains(string(page), "<y>") {
		t.Errorf("the listing is\n%s", page)
	}
	if policy := res.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "sandbox; default-src 'none'") {
		t.Errorf("a browser gets the policy %q", policy)
	}
	res, page = ask(t, http.MethodGet, s.url)
	if res.StatusCode != http.StatusOK || !strings.Contains(string(page), `<a href="./data/">`) {
		t.Errorf("%s\n%s", res.Status, page)
	}
	if res, got := ask(t, http.MethodGet, s.url+"data/a/x%20&%20%3Cy%3E.txt"); res.StatusCode != http.StatusOK || len(got) != 10 {
		t.Errorf("a file with a difficult name: %s", res.Status)
	}
}

// Private torrents are served only if the user says so.
func TestPrivate(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := client.Create(context.Background(), filepath.Join(dir, "f"), client.CreateOptions{Private: true})
	if err != nil {
		t.Fatal(err)
	}
	n, _ := webtest.Service(t)
	x, err := n.Add(t.Context(), node.Options{Source: c.Source, Storage: node.Storage{Kind: storage.KindFile, Dir: dir, Complete: true}})
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "the start", func() bool { return x.State() == node.Running })
	path := files.Prefix + x.InfoHash() + "/f"
	if res, _ := ask(t, http.MethodGet, start(t, n, false)+path); res.StatusCode != http.StatusNotFound {
		t.Errorf("it is served: %s", res.Status)
	}
	url := start(t, n, true) + path
	if res, got := ask(t, http.MethodGet, url); string(got) != "secret" {
		t.Errorf("it is not served: %s", res.Status)
	}
	if err := x.Pause(); err != nil {
		t.Fatal(err)
	}
	if res, _ := ask(t, http.MethodGet, url); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
		t.Errorf("of a paused torrent: %s", res.Status)
	}
}

// curl and aria2 fetch files in every way in which they fetch parts, some of them while the node
// downloads the torrent itself.
func TestForeignClients(t *testing.T) {
	from := t.TempDir()
	c := webtest.Torrent(t, from, "data", webtest.File{Path: "a.bin", Size: 3_000_000}, webtest.File{Path: "b/c.bin", Size: 400_000})
	n, _ := webtest.Service(t)
	x, err := n.Add(t.Context(), node.Options{Source: c.Source, Peers: webtest.Seed(t, c.Source, from)})
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "the start", func() bool { return x.State() == node.Running })
	web := start(t, n, false) + files.Prefix + x.InfoHash() + "/"
	data, err := os.ReadFile(filepath.Join(from, "data/a.bin"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	curl := func(want []byte, args ...string) {
		t.Helper()
		said, err := webtest.Run(t, nil, "curl", append([]string{"-sSf", "-o", out, web + "data/a.bin"}, args...)...)
		got, readErr := os.ReadFile(out)
		if err != nil || readErr != nil || !bytes.Equal(got, want) {
			t.Errorf("curl %v: %d bytes, want %d: %v %s", args, len(got), len(want), err, said)
		}
	}
	curl(data[1_000_000:1_000_010], "-r", "1000000-1000009")
	curl(data[len(data)-7:], "-r", "-7")
	curl(data[2_900_000:], "-r", "2900000-")
	curl(data)
	if err := os.WriteFile(out, data[:1_234_567], 0o644); err != nil {
		t.Fatal(err)
	}
	curl(data, "-C", "-")
	if said, err := webtest.Run(t, nil, "aria2c", "--no-conf", "-q", "-x", "8", "-s", "8", "-k", "1M", "-d", dir, "-o", "aria", web+"data/a.bin"); err != nil {
		t.Fatalf("aria2: %v\n%s", err, said)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "aria")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("aria2: %d bytes, %v", len(got), err)
	}
	// As a web seed: aria2 has nobody else to fetch the torrent from.
	seeded, err := client.Create(t.Context(), filepath.Join(from, "data"), client.CreateOptions{PieceLength: 32 << 10, Comment: "a comment", WebSeeds: []string{web}})
	if err != nil {
		t.Fatal(err)
	}
	torrent := filepath.Join(dir, "data.torrent")
	if err := os.WriteFile(torrent, seeded.Torrent, 0o644); err != nil {
		t.Fatal(err)
	}
	if seeded.Source.InfoHash != c.Source.InfoHash {
		t.Fatal("the web seed has changed the info hash")
	}
	if said, err := webtest.Run(t, nil, "aria2c", "--no-conf", "-q", "--enable-dht=false", "--seed-time=0", "-d", dir, torrent); err != nil {
		t.Fatalf("aria2 with the web seed: %v\n%s", err, said)
	}
	for _, f := range c.Source.Layout.Files {
		want, err := os.ReadFile(filepath.Join(from, f.Path))
		got, err2 := os.ReadFile(filepath.Join(dir, f.Path))
		if err != nil || err2 != nil || !bytes.Equal(got, want) {
			t.Error(fmt.Errorf("aria2 with the web seed: %s: %d bytes of %d; %w", f.Path, len(got), len(want), err2))
		}
	}
}
