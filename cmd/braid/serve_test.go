package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"braid/client"
	"braid/commands/program"
	"braid/node/event"
	"braid/node/web/files"
	"braid/scionnet"
)

// get returns what is at a URL, once the server has it.
func get(t *testing.T, tr http.RoundTripper, url string) []byte {
	t.Helper()
	for {
		res, b := getOnce(t, tr, url)
		switch res.StatusCode {
		case http.StatusOK:
			return b
		case http.StatusServiceUnavailable: // the torrent has not started yet
			time.Sleep(10 * time.Millisecond)
		default:
			t.Fatalf("%s: %s", url, res.Status)
		}
	}
}

func getOnce(t *testing.T, tr http.RoundTripper, url string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return res, b
}

// braid serve serves what is there without a write, and fetches what is not.
func TestServe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallTorrent(t, dir)
	src, err := client.OpenSource(t.Context(), filepath.Join(dir, "file.torrent"))
	if err != nil {
		t.Fatal(err)
	}
	if code, _, said := ends(t, dir, "serve", "file.torrent"); code != program.Usage || !strings.Contains(said, "give --http") {
		t.Errorf("exit code %d: %s", code, said)
	}
	for _, address := range []string{"foo", "127.0.0.1:66000", "1-ff00:0:110,127.0.0.1"} {
		for _, command := range []string{"serve file.torrent --http", "daemon --state state --http", "daemon --state state --api"} {
			args := append(strings.Fields(command), address)
			if code, _, said := ends(t, dir, args...); code != program.Usage || !strings.Contains(said, args[len(args)-2]+": ") || !strings.Contains(said, "want ") {
				t.Errorf("%q: exit code %d: %s", args, code, said)
			}
		}
	}
	want := bytes.Repeat([]byte("braid"), 10_000)
	path := files.Prefix + src.InfoHash.HexString() + "/file"
	complete := readyEvent(t, dir, "serve", "file.torrent", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--json")
	if got := get(t, http.DefaultTransport, "http://"+complete.HTTP[0]+path); !bytes.Equal(got, want) {
		t.Errorf("%d bytes of complete data", len(got))
	}
	if _, err := os.Stat(filepath.Join(dir, ".braid")); err == nil {
		t.Error("something is written beside complete data")
	}
	missing := readyEvent(t, dir, "serve", "file.torrent", "--data", "empty", "--http", "127.0.0.1:0", "--peer", complete.Listen[0], "--json")
	if got := get(t, http.DefaultTransport, "http://"+missing.HTTP[0]+path); !bytes.Equal(got, want) {
		t.Errorf("%d bytes of data from a peer", len(got))
	}
	// A daemon serves files only where it is told to, and its API not there.
	d := startDaemon(t, t.TempDir(), "--http", "127.0.0.1:0")
	d.does(t, "add", filepath.Join(dir, "file.torrent"), "--peer", complete.Listen[0])
	if got := get(t, http.DefaultTransport, "http://"+d.ready.HTTP[0]+path); !bytes.Equal(got, want) {
		t.Errorf("%d bytes from the daemon", len(got))
	}
	if res, _ := getOnce(t, http.DefaultTransport, "http://"+d.ready.HTTP[0]+"/api/v1/session"); res.StatusCode != http.StatusNotFound {
		t.Errorf("the API answers where files are served: %s", res.Status)
	}
}

// Files are served over HTTP/3 on SCION, and a download uses such a server over all paths to it: a
// web seed that the torrent names.
func TestServeOverSCION(t *testing.T) {
	t.Parallel()
	n, from, to := startNetwork(t, "two-paths")
	dir := t.TempDir()
	data := randomFile(t, dir, 11, 3<<20)
	must(t, dir, "create", "file", "-o", "x.torrent")
	src, err := client.OpenSource(t.Context(), filepath.Join(dir, "x.torrent"))
	if err != nil {
		t.Fatal(err)
	}
	at := readyEvent(t, dir, "serve", "x.torrent", "--json", "--config-dir", n.ConfigDir(from),
		"--http", fmt.Sprintf("%s,[%s]:31085", from, n.HostIP(from)))
	host, err := scionnet.Open(context.Background(), scionnet.Config{ConfigDir: n.ConfigDir(to), LocalIP: n.HostIP(to)})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	port, err := host.OpenHTTP(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	server, err := scionnet.ParseAddr(at.HTTP[0])
	if err != nil {
		t.Fatal(err)
	}
	tr := port.ClientOf(server, "")
	defer tr.Close()
	web := files.Prefix + src.InfoHash.HexString() + "/"
	if got := get(t, tr, "https://x"+web+"file"); !bytes.Equal(got, data) {
		t.Errorf("%d bytes of %d", len(got), len(data))
	}
	must(t, dir, "create", "file", "-o", "web.torrent", "--web-seed", "scion://"+at.HTTP[0]+web)
	fetch := func(out string, more ...string) (used int) {
		events := must(t, dir, append([]string{"download", "web.torrent", "-o", out, "--dht", "off", "--json",
			"--config-dir", n.ConfigDir(to), "--local", n.HostIP(to).String()}, more...)...)
		if got, err := os.ReadFile(filepath.Join(dir, out, "file")); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		var done event.Done
		for line := range strings.Lines(events) {
			if e, err := event.Parse([]byte(line)); err == nil {
				if d, ok := e.(*event.Done); ok {
					done = *d
				}
			}
		}
		for _, p := range done.Paths {
			if p.Transport == "http" && p.BytesRead > 100_000 {
				used++
			}
		}
		return used
	}
	// At this rate it takes 6 s, so that a busy machine opens both paths in time.
	if used := fetch("out", "--download-rate", "4mbit"); used != 2 {
		t.Errorf("%d paths to the web seed were used, want 2", used)
	}
	// What is forbidden for peers is forbidden for web seeds.
	if used := fetch("one", "--acl", fmt.Sprintf("- %s#2, +", from)); used != 1 {
		t.Errorf("%d paths to the web seed were used, want the allowed one", used)
	}
}

// A web seed over HTTPS is used if its certificate is valid.
func TestWebSeedHTTPS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := randomFile(t, dir, 12, 300_000)
	s := httptest.NewTLSServer(http.FileServer(http.Dir(dir)))
	defer s.Close()
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(dir, "roots.pem"), roots, 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, dir, "create", "file", "-o", "x.torrent")
	cmd := braid(t, dir, "download", "x.torrent", "-o", "out", "--no-trackers", "--dht", "off", "--web-seed", s.URL+"/")
	cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+filepath.Join(dir, "roots.pem"))
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "out/file")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
