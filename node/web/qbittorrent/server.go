// Package qbittorrent serves the Web API of qBittorrent (version 2.11.4), as far as programs that
// automate downloads use it. It is a thin layer over package node.
//
//	server.go       the calls, who may make them, and how they read their arguments
//	torrents.go     the list of torrents, and their properties
//	details.go      files, trackers, peers and pieces of one torrent
//	change.go       changing torrents
//	add.go          adding torrents
//	labels.go       categories and tags, which a node keeps as labels
//	preferences.go  the settings
//	sync.go         the differences since a client's last request
//
// A category is a label of the form category:NAME. All other labels are tags.
//
// The package refuses to pretend: an attempt to switch on what braid lacks is an error that says
// so. docs/rpc.md lists what is missing.
package qbittorrent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"braid/client"
	"braid/node"
	"braid/node/web/foreign"
	"braid/units/lists"
)

// Versions that clients read. By them they decide what they may call.
const (
	emulated   = "v5.1.4"
	apiVersion = "2.11.4"
)

// MaxBody bounds a request that adds torrents: several .torrent files in one form. Other requests
// are at most maxArguments, which is enough to name 20,000 torrents.
const (
	MaxBody      = 2*client.MaxTorrentFile + 1<<20
	maxArguments = 1 << 20
)

// Access says who may use the interface; web.Access is one.
type Access interface {
	Allowed(*http.Request) error
	// Login begins a session if the password is right, and sets a cookie with that name.
	Login(w http.ResponseWriter, r *http.Request, cookie, password string) error
	Logout(http.ResponseWriter, *http.Request)
}

// Options configure a handler.
type Options struct {
	Access   Access
	State    string // a directory for the categories
	Shutdown func() // ends the program
	Logger   *slog.Logger
}

// Cookie is the name under which clients expect the session.
const Cookie = "SID"

type server struct {
	node    *node.Node
	options Options
	labels  *labels
	views   views
}

// Handler serves the API below /api/v2/. It checks the password itself, since clients expect the
// status 403 without a session, and have their own login. A GET changes nothing. The caller must
// refuse requests from foreign web pages.
func Handler(n *node.Node, o Options) (http.Handler, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	l, err := openLabels(o.State)
	if err != nil {
		return nil, err
	}
	// Numbers of answers differ after a restart, so that the old ones are not taken for them.
	s := &server{node: n, options: o, labels: l, views: views{last: rand.IntN(1 << 30)}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v2/auth/login", s.login)
	mux.HandleFunc("POST /api/v2/auth/logout", o.Access.Logout)
	for name, f := range reads {
		mux.HandleFunc("/api/v2/"+name, s.handle(f)) // some clients read with POST
	}
	for name, f := range answeredWrites {
		mux.HandleFunc("POST /api/v2/"+name, s.handle(f))
	}
	for name, f := range writes {
		mux.HandleFunc("POST /api/v2/"+name, s.handle(func(c *call) (any, error) {
			return nil, f(c)
		}))
	}
	return mux, nil
}

// reads are the calls that change nothing.
var reads = map[string]func(*call) (any, error){
	"app/version":       func(*call) (any, error) { return text(emulated), nil },
	"app/webapiVersion": func(*call) (any, error) { return text(apiVersion), nil },
	"app/buildInfo":     (*call).buildInfo,
	"app/defaultSavePath": func(c *call) (any, error) {
		return text(foreign.Final(c.node.Settings())), nil
	},
	"app/preferences":          (*call).preferences,
	"log/main":                 (*call).log,
	"log/peers":                func(*call) (any, error) { return []any{}, nil },
	"sync/maindata":            (*call).mainData,
	"sync/torrentPeers":        (*call).torrentPeers,
	"transfer/info":            (*call).transferInfo,
	"transfer/speedLimitsMode": (*call).speedLimitsMode,
	"transfer/downloadLimit":   func(c *call) (any, error) { return c.rate(true) },
	"transfer/uploadLimit":     func(c *call) (any, error) { return c.rate(false) },
	"torrents/info":            (*call).info,
	"torrents/count":           func(c *call) (any, error) { return len(c.node.Torrents()), nil },
	"torrents/properties":      ofTorrent((*call).properties),
	"torrents/trackers":        ofTorrent((*call).trackers),
	"torrents/webseeds":        ofTorrent((*call).webSeeds),
	"torrents/files":           ofTorrent((*call).files),
	"torrents/pieceStates":     ofTorrent((*call).pieceStates),
	"torrents/pieceHashes":     ofTorrent((*call).pieceHashes),
	"torrents/export":          ofTorrent((*call).export),
	"torrents/categories":      func(c *call) (any, error) { return c.categories(), nil },
	"torrents/tags":            func(c *call) (any, error) { return c.tags(), nil },
	"torrents/downloadLimit":   func(c *call) (any, error) { return c.torrentLimits(true) },
	"torrents/uploadLimit":     func(c *call) (any, error) { return c.torrentLimits(false) },
}

// ofTorrent makes a call about the torrent that the argument hash names.
func ofTorrent(f func(*call, *node.Torrent) (any, error)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		t := c.torrent()
		if c.err != nil {
			return nil, c.err
		}
		return f(c, t)
	}
}

// text is an answer that is not JSON.
type text string

// file is an answer to be saved.
type file struct {
	name string
	data []byte
}

// call is one request. Its methods that read arguments keep the first error.
type call struct {
	*server
	r   *http.Request
	err error
}

// status is an error with its HTTP status.
type status struct {
	code int
	text string
}

func (s *status) Error() string { return s.text }

func fail(code int, format string, args ...any) error {
	return &status{code, fmt.Sprintf(format, args...)}
}

func lacking(what string) error { return fail(http.StatusConflict, "braid has no %s", what) }

func (s *server) handle(f func(*call) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := s.options.Access.Allowed(r); err != nil {
			http.Error(w, "Forbidden", http.StatusForbidden)
			return
		}
		limit := int64(maxArguments)
		if strings.HasSuffix(r.URL.Path, "/torrents/add") {
			limit = MaxBody
		}
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		if err := readForm(r); err != nil {
			code := http.StatusBadRequest
			if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
				code = http.StatusRequestEntityTooLarge
			}
			http.Error(w, "the form cannot be read", code)
			return
		}
		if r.MultipartForm != nil {
			defer func() { _ = r.MultipartForm.RemoveAll() }()
		}
		c := &call{server: s, r: r}
		answer, err := f(c)
		if c.err != nil {
			err = c.err
		}
		s.write(w, answer, err)
	}
}

// formMemory is how much of a form stays in memory; the rest goes to temporary files.
const formMemory = 8 << 20

func readForm(r *http.Request) error {
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/form-data") {
		return r.ParseMultipartForm(formMemory)
	}
	return r.ParseForm()
}

func (s *server) write(w http.ResponseWriter, answer any, err error) {
	w.Header().Set("Cache-Control", "no-store")
	if x, ok := errors.AsType[*status](err); ok {
		http.Error(w, x.text, x.code)
		return
	} else if errors.Is(err, node.ErrUnknown) {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	} else if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	switch answer := answer.(type) {
	case nil:
		w.WriteHeader(http.StatusOK)
	case text:
		w.Header().Set("Content-Type", "text/plain; charset=UTF-8")
		_, err = w.Write([]byte(answer))
	case file:
		w.Header().Set("Content-Type", "application/x-bittorrent")
		w.Header().Set("Content-Disposition", "attachment; filename="+strconv.Quote(answer.name))
		_, err = w.Write(answer.data)
	default:
		w.Header().Set("Content-Type", "application/json")
		err = json.NewEncoder(w).Encode(answer)
	}
	if err != nil {
		s.options.Logger.Debug("an answer cannot be written", "error", err)
	}
}

func (s *server) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	err := s.options.Access.Login(w, r, Cookie, r.PostFormValue("password"))
	answer := text("Ok.")
	if err != nil && s.options.Access.Allowed(r) != nil { // no session, and a password is set
		s.options.Logger.Info("a login was refused", "from", r.RemoteAddr, "reason", err)
		answer = "Fails."
	}
	s.write(w, answer, nil)
}

func (c *call) wrong(format string, args ...any) {
	if c.err == nil {
		c.err = fail(http.StatusBadRequest, format, args...)
	}
}

func (c *call) has(name string) bool { return c.r.Form.Has(name) }

func (c *call) text(name string) string { return c.r.Form.Get(name) }

// needed returns an argument. It is an error if the argument is missing.
func (c *call) needed(name string) string {
	if !c.has(name) {
		c.wrong("Missing required parameters: %s", name)
	}
	return c.text(name)
}

// flag returns the first of these arguments, or nil if all are missing.
func (c *call) flag(names ...string) *bool {
	for _, n := range names {
		switch v := strings.ToLower(c.text(n)); v {
		case "true", "1":
			return new(true)
		case "false", "0":
			return new(false)
		case "":
		default:
			c.wrong("%s: %q is not true or false", n, v)
		}
	}
	return nil
}

// on tells whether an argument is true.
func (c *call) on(name string) bool {
	on := c.flag(name)
	return on != nil && *on
}

func (c *call) whole(name string, otherwise int) int {
	v := c.text(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		c.wrong("%s: %q is not a whole number", name, v)
	}
	return n
}

func (c *call) real(name string, otherwise float64) float64 {
	v := c.text(name)
	if v == "" {
		return otherwise
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		c.wrong("%s: %q is not a number", name, v)
	}
	return f
}

// torrent returns the torrent that the argument hash names.
func (c *call) torrent() *node.Torrent {
	hash := c.needed("hash")
	t, err := c.node.Torrent(strings.ToLower(hash))
	if err != nil && c.err == nil {
		c.err = fail(http.StatusNotFound, "there is no torrent %s", hash)
	}
	return t
}

// torrentsOfHash returns the torrents that the argument hash names: * for all, or a list with bars.
func (c *call) torrentsOfHash() (out []*node.Torrent) {
	hash := c.needed("hash")
	if hash == "*" || hash == "all" {
		return c.node.Torrents()
	}
	for _, h := range lists.Split(strings.ToLower(hash), "|") {
		t, err := c.node.Torrent(h)
		if err != nil && c.err == nil {
			c.err = fail(http.StatusNotFound, "there is no torrent %s", h)
		}
		out = append(out, t)
	}
	return out
}

// torrents returns the torrents that the argument hashes names: all, or a list with bars. It
// returns each torrent once, and ignores unknown ones, as qBittorrent does.
func (c *call) torrents() (out []*node.Torrent) {
	hashes := c.needed("hashes")
	if hashes == "all" {
		return c.node.Torrents()
	}
	all := lists.Split(strings.ToLower(hashes), "|")
	slices.Sort(all)
	for _, h := range slices.Compact(all) {
		if t, err := c.node.Torrent(h); err == nil {
			out = append(out, t)
		}
	}
	return out
}
