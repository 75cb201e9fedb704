// Package files serves the files of a node's torrents over HTTP: to browsers, curl and players, and
// as a web seed to BitTorrent clients (BEP 19).
//
//	Handler  GET and HEAD of /torrent/INFO HASH/PATH, with ranges, and of directories
//	Server   listens on TCP and on SCION (HTTP/3), apart from braid's API
//
// The answers are verified pieces. Of an incomplete torrent, the pieces of a request are fetched
// first, in the order of reading, and the answer waits for them.
//
// It serves everybody who knows an info hash, and lists no torrents. It changes nothing but the
// order in which pieces are requested. What it serves was made by strangers: a browser must not run
// it.
package files

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"braid/client"
	"braid/node"
	"braid/scionnet"
	"braid/storage"
)

// Prefix is the path below which all files are. The web seed of a torrent is Prefix, its info hash
// in hexadecimal digits, and a slash.
const Prefix = "/torrent/"

const (
	// maxRanges bounds the ranges of one request. Each may cost a piece of an incomplete torrent.
	maxRanges = 64
	// patience is how long a client may take to accept some of the answer, and how long an answer
	// may wait for the next piece.
	patience = 2 * time.Minute
)

// Handler serves the files of a node. If private is true, it serves private torrents (BEP 27), too:
// everybody who knows the info hash can read them.
func Handler(n *node.Node, private bool) http.Handler {
	h := &handler{node: n, private: private, listing: make(chan struct{}, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Prefix+"{hash}/{path...}", h.serve)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 0 || len(r.TransferEncoding) > 0 { // nobody waits for its body
			_ = http.NewResponseController(w).SetReadDeadline(time.Now())
			http.Error(w, "The request has a body.", http.StatusBadRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

type handler struct {
	node    *node.Node
	private bool
	listing chan struct{} // has room for one long listing at a time
}

// serve answers one request.
func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	t, err := h.node.Torrent(strings.ToLower(r.PathValue("hash")))
	if err != nil || t.Source().IsPrivate() && !h.private { // nobody learns that it is there
		http.Error(w, "There is no such torrent here.", http.StatusNotFound)
		return
	}
	src := t.Source()
	if src.IsMagnet() {
		retryLater(w, "It is not known yet which files the torrent has.")
		return
	}
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy",
		"sandbox; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'")
	header.Set("Referrer-Policy", "no-referrer")
	name := r.PathValue("path")
	if i := find(src.Layout.Files, name); i >= 0 {
		serveFile(t, i, w, r)
		return
	}
	h.list(src, name, w, r)
}

// find returns the index of the file with that path, or -1. Most torrents have their files in the
// order of a walk through the directories. Others, and names that they lack, take a look at all.
func find(all []storage.File, name string) int {
	walk := strings.NewReplacer("/", "\x00").Replace
	key := walk(name)
	i, found := slices.BinarySearchFunc(all, key, func(f storage.File, key string) int {
		return strings.Compare(walk(f.Path), key)
	})
	if found {
		return i
	}
	return slices.IndexFunc(all, func(f storage.File) bool { return f.Path == name })
}

// serveFile answers with one file. It never changes, so the info hash and its number are its tag.
func serveFile(t *node.Torrent, i int, w http.ResponseWriter, r *http.Request) {
	if strings.Count(r.Header.Get("Range"), ",") >= maxRanges {
		http.Error(w, "The request has too many ranges.", http.StatusRequestedRangeNotSatisfiable)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	f, err := t.OpenFile(ctx, i)
	switch {
	case errors.Is(err, client.ErrUnwanted):
		http.Error(w, "This file of the torrent is not here.", http.StatusNotFound)
		return
	case err != nil:
		retryLater(w, "The torrent is not active.")
		return
	}
	defer f.Close()
	name := t.Source().Layout.Files[i].Path
	header := w.Header()
	header.Set("ETag", `"`+t.InfoHash()+"-"+strconv.Itoa(i)+`"`)
	header.Set("Content-Type", typeOf(name))
	a := &answer{
		ResponseWriter: w,
		ReadSeeker:     f,
		request:        r,
		stalled:        time.AfterFunc(patience, cancel),
	}
	defer a.stalled.Stop()
	http.ServeContent(responseOnly{a}, r, name, time.Time{}, contentOnly{a})
	if a.failed != nil { // what was sent must not look complete
		panic(http.ErrAbortHandler)
	}
}

// typeOf is the content type by the name: the content itself is not looked at.
func typeOf(name string) string {
	return cmp.Or(mime.TypeByExtension(path.Ext(name)), "application/octet-stream")
}

func retryLater(w http.ResponseWriter, text string) {
	w.Header().Set("Retry-After", "10")
	http.Error(w, text, http.StatusServiceUnavailable)
}

// answer is a file on its way to a client. It ends if the client takes nothing for a while, or if
// the data does not come.
type answer struct {
	http.ResponseWriter
	io.ReadSeeker
	request *http.Request
	stalled *time.Timer // ends the context of reads
	failed  error       // of a read
}

// The two sides of an answer.
type (
	responseOnly struct{ *answer }
	contentOnly  struct{ *answer }
)

// Read reads the next part of the file. It may wait until that part has arrived from peers.
func (a contentOnly) Read(b []byte) (int, error) {
	defer scionnet.Waiting(a.request.Context())()
	n, err := a.ReadSeeker.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		a.failed = err
	}
	return n, err
}

// Write passes a part on.
func (a responseOnly) Write(b []byte) (int, error) {
	_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(patience))
	n, err := a.ResponseWriter.Write(b)
	if n > 0 {
		a.stalled.Reset(patience)
	}
	return n, err
}
