// Package page is braid's web page: ES modules, style sheets and drawings that are embedded in the
// program. There is no build step and no code of others. The page talks to /api/v1 and nothing
// else.
//
// Its parts, in static:
//
//	index.html, app.js     the frame: which view is shown, login, totals
//	api.js, live.js, poll.js   requests, the stream of events, repeated requests
//	list.js, tables.js     lists of which only the visible rows exist
//	torrents.js, add.js    all torrents; adding some
//	torrent.js             one torrent, with its tabs overview.js, files.js, paths.js and those of tables.js
//	history.js, lane.js    rates over time with decisions: memory, drawing
//	map.js, layout.js      the map of ASes: drawing, places
//	policy.js, settings.js changes, with a preview of what they would do
//	forms.js               fields that stay true while others change the same settings
//
// Everything that draws or decides is a function of data. Everything that is kept has a limit,
// since a page stays open for days. Texts from strangers go into the document as text, never as
// markup, and the Trusted Types of the content security policy hold the code to that.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed static
var static embed.FS

// ContentSecurityPolicy allows the page its own files and requests to its own server: no code in
// the document, no frames around it, nothing from elsewhere.
const ContentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; " +
	"img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// types are the media types of the files. Those of the host's own list differ from host to host.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml; charset=utf-8",
}

// Handler answers GET and HEAD for / (the document) and /page/NAME (its other files), and 404 for
// the rest. The files are the same for everybody and hold no secrets. Headers that keep other sites
// out are the server's, except for the policy.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, inside := strings.CutPrefix(r.URL.Path, "/page/")
		if r.URL.Path == "/" {
			name, inside = "index.html", true
		}
		content, err := static.ReadFile("static/" + name)
		switch {
		case !inside || err != nil:
			http.NotFound(w, r)
			return
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are answered here", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Type", types[path.Ext(name)])
		h.Set("Content-Security-Policy", ContentSecurityPolicy)
		// Browsers must ask again each time, so that they do not mix modules of two versions. The
		// tag changes with the content.
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(content)))
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	})
}
