// Package transmission serves the RPC of Transmission, so that programs made for Transmission can
// control a node: transmission-remote, Transmission's own web page, and libraries of many
// languages. It is a thin layer over package node.
//
//	server.go     HTTP: the session id, and bounds
//	message.go    requests and answers of both dialects
//	names.go      how both dialects spell names; tables that describe objects
//	arguments.go  reading arguments
//	methods.go    the methods
//	fields.go     the fields of torrents
//	settings.go   the fields of the session
//
// A client speaks one of two dialects. The classic one is that of Transmission up to 4.0; JSON-RPC
// 2.0 with names in snake_case came with 4.1. Tables in the names of the classic one drive both.
//
// The package refuses to pretend: if braid lacks something, its field has a fixed value, and an
// attempt to set another one is an error that says so. docs/rpc.md lists these.
package transmission

import (
	"cmp"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"braid/client"
	"braid/node"
)

// Versions that clients read. Transmission's own comes first, since clients decide by it what they
// may send.
const (
	emulated          = "4.1.0"
	rpcVersion        = 18
	rpcVersionMinimum = 14
	rpcVersionSemver  = "6.0.0"
)

// MaxBody bounds a request: the largest .torrent file in base64, and some more.
const MaxBody = client.MaxTorrentFile*4/3 + 1<<20

const sessionHeader = "X-Transmission-Session-Id"

// Options configure a handler.
type Options struct {
	Version  string       // of this program, with its name
	State    string       // the directory that keeps the node's state; clients see its name
	Shutdown func()       // ends the program
	Logger   *slog.Logger // may be nil
}

// server is the RPC of one node.
type server struct {
	node      *node.Node
	options   Options
	sessionID string
	since     time.Time
	memory    memory
}

// Handler serves the RPC of a node at any path. The caller must check the password and the host
// name. Handler refuses requests that a foreign web page makes in a user's browser: it demands a
// header with a session id, which such a page cannot read (Transmission's rpc-spec, section 2.3.1).
func Handler(n *node.Node, o Options) http.Handler {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &server{node: n, options: o, sessionID: rand.Text(), since: time.Now()}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(sessionHeader, s.sessionID)
	w.Header().Set("X-Transmission-Rpc-Version", rpcVersionSemver)
	if subtle.ConstantTimeCompare([]byte(r.Header.Get(sessionHeader)), []byte(s.sessionID)) != 1 {
		text := fmt.Sprintf("Send the request again with the header %s: %s\n\n"+
			"It shows that the request does not come from a foreign web page.",
			sessionHeader, s.sessionID)
		http.Error(w, text, http.StatusConflict)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "The RPC takes POST requests only.", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		http.Error(w, fmt.Sprintf("The request is larger than %d bytes.",
			tooLarge.Limit), http.StatusRequestEntityTooLarge)
		return
	} else if err != nil {
		http.Error(w, "The request was cut off.", http.StatusBadRequest)
		return
	}
	answer := s.answer(r, body)
	if answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Header().Set("Cache-Control", "no-store")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.options.Logger.Debug("the answer to an RPC request cannot be written", "error", err)
	}
}

// answer carries out the requests of a body one after the other. It returns nil if none of them
// wants an answer.
func (s *server) answer(r *http.Request, body []byte) any {
	requests, batch := parse(body)
	answers := make([]any, 0, len(requests))
	for _, q := range requests {
		result, err := s.carryOut(r.Context(), q)
		if a := q.answer(result, err); a != nil {
			answers = append(answers, a)
		}
	}
	switch {
	case len(answers) == 0:
		return nil
	case batch:
		return answers
	}
	return answers[0]
}
