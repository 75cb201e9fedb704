// Package v1 is braid's own interface over HTTP: JSON, and server-sent events. The commands use it
// through Client, the page from JavaScript.
//
//	types    the JSON objects
//	routes   which path takes and gives which of them; openapi.yaml is generated from both
//	torrents, details, network, settings    what the routes do, each a thin layer over package node
//	events   the stream of changes
//	client   the interface from Go
//
// It decides nothing about torrents. Package web decides who may use it.
package v1

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"time"

	"braid/client"
	"braid/node"
)

// Access decides about logins. Package web implements it.
type Access interface {
	Allowed(*http.Request) error
	IsOwner(r *http.Request) bool
	HasPassword() bool
	SetPassword(string) error
	Login(w http.ResponseWriter, r *http.Request, cookie, password string) error
	Logout(w http.ResponseWriter, r *http.Request)
	Refuse(w http.ResponseWriter, r *http.Request, err error)
}

// Config describes an API.
type Config struct {
	Node    *node.Node
	Access  Access
	Version string
	// Addresses returns the addresses at which this interface answers.
	Addresses func() []string
	Journal   *Journal
}

// API answers requests. Handler makes it an http.Handler.
type API struct {
	Config
	started time.Time
	hub     *hub
}

// New returns an API. The caller closes it before the node.
func New(c Config) *API {
	a := &API{Config: c, started: time.Now()}
	a.hub = newHub(a)
	return a
}

// Close ends all streams of events.
func (a *API) Close() { a.hub.close() }

// MaxBody is the largest body of a request: a .torrent file in base64.
const MaxBody = client.MaxTorrentFile*4/3 + 1<<20

// Handler answers the requests below Prefix.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.HandleFunc(r.method+" "+Prefix+r.path, func(w http.ResponseWriter, q *http.Request) {
			if err := r.serve(a, w, q); err != nil {
				refuse(w, err)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, fault{http.StatusNotFound, fmt.Errorf("there is no %s %s; see %s/openapi.yaml",
			r.Method, r.URL.Path, Prefix)})
	})
	return mux
}

// fault is an error with the status of its answer.
type fault struct {
	status int
	error
}

func (f fault) Unwrap() error { return f.error }

// wrong returns the error of a wrong request.
func wrong(format string, args ...any) error {
	return fault{http.StatusBadRequest, fmt.Errorf(format, args...)}
}

// refuse answers with an error. An error without a status is a conflict with a torrent's state.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusConflict
	var f fault
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		status = http.StatusRequestEntityTooLarge
		err = fmt.Errorf("the body is larger than the %d bytes that are accepted", large.Limit)
	case errors.As(err, &f):
		status = f.status
	case errors.Is(err, node.ErrUnknown):
		status = http.StatusNotFound
	}
	Deny(w, status, err.Error())
}

// Deny answers with the object that the interface's description promises for errors.
func Deny(w http.ResponseWriter, status int, text string) {
	_ = answer(w, status, Problem{text}) // such an object can always be encoded
}

func answer(w http.ResponseWriter, status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fault{http.StatusInternalServerError, err}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client has gone
	return nil
}

// decode reads the body: one JSON value, or none.
func decode(r *http.Request, into any) error {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "" && kind != "application/json" {
		return fault{http.StatusUnsupportedMediaType, fmt.Errorf("the body is %s: want application/json", kind)}
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	return unmarshal(b, into)
}

func unmarshal(b []byte, into any) error {
	if len(bytes.TrimSpace(b)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return wrong("the body is not what is expected: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return wrong("the body has more than one JSON value")
	}
	return nil
}

var infoHash = regexp.MustCompile(`^[0-9a-f]{40}$`)

// torrent returns the torrent that the path of a request names.
func (a *API) torrent(r *http.Request) (*node.Torrent, error) {
	h := r.PathValue("hash")
	if !infoHash.MatchString(h) {
		return nil, wrong("%q is not an info hash: want 40 hexadecimal digits in lower case", h)
	}
	return a.Node.Torrent(h)
}

//go:embed openapi.yaml
var openAPI []byte

func (a *API) openapi(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPI) // the client has gone
	return nil
}

func (a *API) login(w http.ResponseWriter, r *http.Request) error {
	var p Password
	if err := decode(r, &p); err != nil {
		return err
	}
	if err := a.Access.Login(w, r, "", p.Password); err != nil {
		a.Access.Refuse(w, r, err)
		return nil
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *API) logout(w http.ResponseWriter, r *http.Request) error {
	a.Access.Logout(w, r)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// setPassword is for the owner only. Otherwise a user with a session could lock the owner out.
func (a *API) setPassword(r *http.Request, p Password) (none, error) {
	if !a.Access.IsOwner(r) {
		return none{}, fault{http.StatusForbidden, errors.New(
			"the password can be set only over the unix socket: run braid password")}
	}
	if err := a.Access.SetPassword(p.Password); err != nil {
		return none{}, wrong("%w", err)
	}
	return none{}, nil
}
