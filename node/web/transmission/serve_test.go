package transmission

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/client"
	"braid/node"
	"braid/node/web/webtest"
)

// service is a node with its RPC.
type service struct {
	*testing.T
	node      *node.Node
	downloads string
	url       string
	session   string
	ended     chan struct{} // closed when a client has ended the program
}

func serve(t *testing.T) *service {
	n, downloads := webtest.Service(t)
	return serveNode(t, n, downloads)
}

func serveNode(t *testing.T, n *node.Node, downloads string) *service {
	t.Helper()
	s := &service{T: t, node: n, downloads: downloads, ended: make(chan struct{}, 1)}
	rpc := Handler(n, Options{Version: "braid 1", State: "/state", Shutdown: func() { s.ended <- struct{}{} }})
	mux := http.NewServeMux()
	mux.Handle("/transmission/rpc", rpc)
	mux.Handle("/transmission/rpc/", rpc)
	mux.Handle("/transmission/web/", http.StripPrefix("/transmission/web/", http.FileServer(http.Dir("/usr/share/transmission/web"))))
	h := httptest.NewServer(mux)
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

// post sends a body and returns the status and the answer. It learns the session id.
func (s *service) post(body string) (status int, answer []byte) {
	s.Helper()
	for range 2 {
		r, err := http.NewRequest(http.MethodPost, s.url+"/transmission/rpc", strings.NewReader(body))
		if err != nil {
			s.Fatal(err)
		}
		r.Header.Set(sessionHeader, s.session)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			s.Fatal(err)
		}
		answer, err = io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			s.Fatal(err)
		}
		if status = res.StatusCode; status != http.StatusConflict {
			break
		}
		s.session = res.Header.Get(sessionHeader)
	}
	return status, answer
}

// ask calls a method in the classic dialect, and returns its arguments and its result.
func (s *service) ask(method string, args any) (out map[string]any, result string) {
	s.Helper()
	b, err := json.Marshal(map[string]any{"method": method, "arguments": args})
	if err != nil {
		s.Fatal(err)
	}
	status, answer := s.post(string(b))
	var reply struct {
		Arguments map[string]any
		Result    string
	}
	d := json.NewDecoder(bytes.NewReader(answer))
	if err := d.Decode(&reply); err != nil || status != http.StatusOK {
		s.Fatalf("%s: status %d, %v: %s", method, status, err, answer)
	}
	return reply.Arguments, reply.Result
}

// must calls a method that succeeds.
func (s *service) must(method string, args any) map[string]any {
	s.Helper()
	out, result := s.ask(method, args)
	if result != "success" {
		s.Fatalf("%s %v: %s", method, args, result)
	}
	return out
}

// field is one field of a torrent.
func (s *service) field(id any, name string) any {
	s.Helper()
	all := s.must("torrent-get", map[string]any{"ids": id, "fields": []string{name}})["torrents"].([]any)
	if len(all) != 1 {
		s.Fatalf("torrent %v: %d torrents", id, len(all))
	}
	v, ok := all[0].(map[string]any)[name]
	if !ok {
		s.Fatalf("torrent %v has no field %s: %v", id, name, all[0])
	}
	return v
}

func (s *service) setting(name string) any {
	s.Helper()
	v, ok := s.must("session-get", map[string]any{"fields": []string{name}})[name]
	if !ok {
		s.Fatalf("there is no setting %s", name)
	}
	return v
}

// add adds a torrent that is paused.
func (s *service) add(c client.Created, args map[string]any) float64 {
	s.Helper()
	all := map[string]any{"metainfo": encode(c), "paused": true}
	for k, v := range args {
		all[k] = v
	}
	return s.must("torrent-add", all)["torrent-added"].(map[string]any)["id"].(float64)
}

// torrent makes a torrent of three files, and the .torrent file.
func (s *service) torrent(name string) (c client.Created, dir, file string) {
	s.Helper()
	dir = s.TempDir()
	c = webtest.Torrent(s, dir, name, webtest.File{Path: "a.txt", Size: 100_000}, webtest.File{Path: "b/c.mkv", Size: 300_000},
		webtest.File{Path: "d.txt", Size: 50_000})
	file = filepath.Join(dir, name+".torrent")
	if err := os.WriteFile(file, c.Torrent, 0o644); err != nil {
		s.Fatal(err)
	}
	return c, dir, file
}

func encode(c client.Created) string { return base64.StdEncoding.EncodeToString(c.Torrent) }

// addPaused adds a torrent without the RPC.
func (s *service) addPaused(c client.Created) *node.Torrent {
	s.Helper()
	x, err := s.node.Add(s.Context(), node.Options{Source: c.Source, Paused: true})
	if err != nil {
		s.Fatal(err)
	}
	return x
}

func (s *service) label(x *node.Torrent, labels ...string) {
	s.Helper()
	if err := x.Change(func(o *node.Options) error { o.Labels = labels; return nil }); err != nil {
		s.Fatal(err)
	}
}
