package page

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"braid/node/web/page/chromium"
)

func TestMain(m *testing.M) { os.Exit(chromium.Main(m)) }

// The handler serves the document and its files, with the headers that keep other sites out, and
// nothing else.
func TestHandler(t *testing.T) {
	h := Handler()
	ask := func(method, path, tag string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		if tag != "" {
			r.Header.Set("If-None-Match", tag)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/page/app.js": "text/javascript; charset=utf-8", "/page/style.css": "text/css; charset=utf-8",
		"/page/icons.svg": "image/svg+xml; charset=utf-8",
	} {
		w := ask("GET", path, "")
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind || w.Body.Len() == 0 {
			t.Errorf("%s: %d %s, %d bytes", path, w.Code, w.Header().Get("Content-Type"), w.Body.Len())
		}
		if got := w.Header().Get("Content-Security-Policy"); got != ContentSecurityPolicy || strings.Contains(got, "unsafe") {
			t.Errorf("%s: policy %q", path, got)
		}
		if again := ask("GET", path, w.Header().Get("ETag")); again.Code != http.StatusNotModified {
			t.Errorf("%s a second time: %d", path, again.Code)
		}
	}
	for path, code := range map[string]int{"/page/": 404, "/page/../page.go": 404, "/index.html": 404, "/page/nothing.js": 404, "/page": 404} {
		if w := ask("GET", path, ""); w.Code != code {
			t.Errorf("%s: %d, want %d", path, w.Code, code)
		}
	}
	if w := ask("POST", "/", ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

// No file has code or style inside the document, makes markup of text, or names another server.
func TestNothingInline(t *testing.T) {
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\sstyle="|\son[a-z]+="|javascript:`)
	elsewhere := regexp.MustCompile(`(https?:)?//[a-z0-9.-]+\.[a-z]{2,}`)
	err := fs.WalkDir(static, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := static.ReadFile(name)
		if found := forbidden.FindString(string(content)); found != "" {
			t.Errorf("%s has %q", name, found)
		}
		for _, found := range elsewhere.FindAllString(string(content), -1) {
			if found != "http://www.w3.org" { // the name space of SVG, which nobody fetches
				t.Errorf("%s names %q", name, found)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
