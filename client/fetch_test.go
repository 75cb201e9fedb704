package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"braid/scionnet"
)

// A torrent is read from where its URL leads, as long as that is a torrent and no redirect leads
// nearer.
func TestFetchTorrent(t *testing.T) {
	data := filepath.Join(t.TempDir(), "file")
	writeRandom(t, data, 100_000)
	c := makeTorrent(t, data, CreateOptions{})
	serve := func(at string) (address string, mux *http.ServeMux) {
		l, err := net.Listen("tcp", at+":0")
		if err != nil {
			t.Fatal(err)
		}
		mux = http.NewServeMux()
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
		s.Start()
		t.Cleanup(s.Close)
		return l.Addr().String(), mux
	}
	// For this test 127.0.0.2 is an address on the Internet.
	scopeOf := func(a netip.Addr) scionnet.Scope {
		if a == netip.MustParseAddr("127.0.0.2") {
			return scionnet.ScopePublic
		}
		return scionnet.ScopeOf(a)
	}
	near, nearMux := serve("127.0.0.1")
	far, farMux := serve("127.0.0.2")
	asked := false
	nearMux.HandleFunc("/file.torrent", func(w http.ResponseWriter, r *http.Request) {
		asked = true
		_, _ = w.Write(c.Torrent)
	})
	nearMux.HandleFunc("/script", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=UTF-8") // PHP's default
		_, _ = w.Write(c.Torrent)
	})
	nearMux.Handle("/outward", http.RedirectHandler("http://"+far+"/file.torrent", http.StatusFound))
	nearMux.Handle("/there", http.RedirectHandler("/file.torrent", http.StatusFound))
	nearMux.Handle("/loop", http.RedirectHandler("/loop", http.StatusFound))
	nearMux.Handle("/ftp", http.RedirectHandler("ftp://"+near+"/KEY", http.StatusFound))
	nearMux.Handle("/magnet", http.RedirectHandler("Magnet:?xt=urn:btih:"+c.Source.InfoHash.HexString()+"&tr.1=udp://KEY", http.StatusFound))
	nearMux.Handle("/nomagnet", http.RedirectHandler("magnet:?dn=x", http.StatusFound))
	farMux.Handle("/tomagnet", http.RedirectHandler("http://"+far+"/magnet", http.StatusFound))
	farMux.Handle("/magnet", http.RedirectHandler(c.Source.Magnet(), http.StatusSeeOther))
	nearMux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>log in</html>") })
	nearMux.HandleFunc("/nonsense", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "nonsense") })
	nearMux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-bittorrent")
		for b := make([]byte, 1<<20); ; {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	})
	farMux.HandleFunc("/file.torrent", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(c.Torrent) })
	farMux.Handle("/inward", http.RedirectHandler("http://"+near+"/file.torrent", http.StatusFound))
	for _, tt := range []struct{ url, want string }{
		{"http://" + near + "/file.torrent?key=KEY", ""},
		{"HTTP://KEY:KEY@" + near + "/file.torrent", ""},
		{"http://" + near + "/there", ""},
		{"http://" + near + "/script", ""},
		{"http://" + near + "/outward", ""},
		{"http://" + near + "/magnet", ""},
		{"http://" + far + "/tomagnet", ""},
		{"http://" + near + "/nomagnet?key=KEY", "want magnet:?xt=urn:btih:HASH"},
		{"http://" + far + "/inward?key=KEY", "redirect to a loopback address is not followed"},
		{"http://" + near + "/loop?key=KEY", "too many redirects"},
		{"http://" + near + "/ftp?key=KEY", "redirect from http to ftp"},
		{"http://" + near + "/none?key=KEY", "get torrent from " + near + ": the server answers 404 Not Found"},
		{"http://" + near + "/page?key=KEY", "a web page, not a torrent"},
		{"http://" + near + "/nonsense?key=KEY", "not a torrent file"},
		{"http://" + near + "/endless?key=KEY", "larger than the 64 MiB"},
		{"https://" + near + "/file.torrent?key=KEY", "server gave HTTP response to HTTPS client"},
		{"http://" + refusing(t) + "/KEY", "connection refused"},
		{"http:///KEY", "not a URL like"},
		{"http://%zz/KEY", "not a URL like"},
	} {
		asked = false
		s, err := Fetch{URL: tt.url, scopeOf: scopeOf}.Source(t.Context())
		switch {
		case tt.want == "" && (err != nil || s.InfoHash != c.Source.InfoHash):
			t.Errorf("%s: %v, %v", tt.url, s.InfoHash, err)
		case tt.want == "":
		case err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "KEY"):
			t.Errorf("%s: %v, want %q", tt.url, err, tt.want)
		case asked:
			t.Errorf("%s: a request was sent to a nearer host", tt.url)
		}
	}
	if s, err := OpenSource(t.Context(), "http://"+near+"/file.torrent"); err != nil || s.InfoHash != c.Source.InfoHash {
		t.Errorf("%v, %v", s.InfoHash, err)
	}
	nearMux.HandleFunc("/members", func(w http.ResponseWriter, r *http.Request) {
		if c, err := r.Cookie("pass"); err != nil || c.Value != "KEY" {
			http.Error(w, "log in", http.StatusForbidden)
			return
		}
		http.Redirect(w, r, "http://"+far+"/told", http.StatusFound)
	})
	told := ""
	farMux.HandleFunc("/told", func(w http.ResponseWriter, r *http.Request) {
		told = r.Header.Get("Cookie")
		_, _ = w.Write(c.Torrent)
	})
	if _, err := OpenSource(t.Context(), "http://"+near+"/members"); err == nil {
		t.Error("a server that demands a cookie answers without one")
	}
	members := Fetch{URL: "http://" + near + "/members", Cookies: "uid=1; pass=KEY", scopeOf: scopeOf}
	if s, err := members.Source(t.Context()); err != nil || s.InfoHash != c.Source.InfoHash {
		t.Errorf("with a cookie: %v", err)
	}
	if told != "" {
		t.Errorf("another host was told the cookie %s", told)
	}
	if _, err := (Fetch{URL: "http://" + near + "/file.torrent", Cookies: "a=b\r\nX: y"}).Source(t.Context()); err == nil {
		t.Error("a cookie adds a header")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := OpenSource(ended, "http://"+near+"/file.torrent"); err == nil {
		t.Error("a torrent is fetched after the end")
	}
	// What looks like a URL is none where a file has that name: only http and https are fetched.
	if _, err := OpenSource(t.Context(), "ftp://"+near+"/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
