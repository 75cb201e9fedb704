package web

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"braid/node"
	"braid/node/web/transmission"
	v1 "braid/node/web/v1"
	"braid/node/web/webtest"
)

// serveNode serves a node with all interfaces.
func serveNode(t *testing.T, a *Access) (*node.Node, *Server) {
	t.Helper()
	n, _ := webtest.Service(t)
	api := v1.New(v1.Config{Node: n, Access: a, Journal: &v1.Journal{}, Addresses: func() []string { return nil }})
	t.Cleanup(api.Close)
	routes, err := Routes(n, api, a, transmission.Options{State: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Listen: []string{"127.0.0.1:0"}, Access: a}, routes)
	if err != nil {
		t.Fatal(err)
	}
	s.Serve()
	t.Cleanup(func() { _ = s.Close() })
	return n, s
}

// A stream of events ends when its reader is no longer allowed, and says nothing more.
func TestEventsEndWithThePassword(t *testing.T) {
	a := access(t, "first")
	n, s := serveNode(t, a)
	reader := v1.NewClient(s.Addresses()[0], "first")
	t.Cleanup(reader.Close)
	var got []string
	err := reader.Events(t.Context(), "", func(e v1.Event) error {
		got = append(got, e.Name)
		change := func(s *node.Settings) error { s.AddPaused = true; return nil }
		return errors.Join(a.SetPassword("second"), n.Change(change))
	}, func() { t.Error("the daemon has gone") })
	var status *v1.StatusError
	if !errors.As(err, &status) || status.Status != http.StatusUnauthorized || len(got) != 1 {
		t.Errorf("after %q: %v", got, err)
	}
}

// The interfaces of other clients are behind the password and the list of allowed hosts.
func TestOtherClients(t *testing.T) {
	_, s := serveNode(t, access(t, "secret"))
	does := func(want int, path, body string, headers ...string) (*http.Response, string) {
		t.Helper()
		r, said := ask(t, s, "POST", path, body, headers...)
		if r.StatusCode != want {
			t.Errorf("%s %q: %s, want %d: %s", path, headers, r.Status, want, said)
		}
		return r, said
	}
	const rpc, call, me, form = "/transmission/rpc", `{"method":"session-get"}`, "Basic: any:secret", "Content-Type: application/x-www-form-urlencoded"
	does(http.StatusUnauthorized, rpc, call)
	r, _ := does(http.StatusConflict, rpc, call, me)
	session := "X-Transmission-Session-Id: " + r.Header.Get("X-Transmission-Session-Id")
	if _, said := does(http.StatusOK, rpc, call, me, session); !strings.Contains(said, `"success"`) {
		t.Error(said)
	}
	does(http.StatusMisdirectedRequest, rpc, call, me, session, "Host: evil.example")

	const version = "/api/v2/app/version"
	does(http.StatusForbidden, version, "")
	if r, said := does(http.StatusOK, "/api/v2/auth/login", "username=a&password=wrong", form); said != "Fails." || len(r.Cookies()) > 0 {
		t.Errorf("a wrong password: %s", said)
	}
	r, said := does(http.StatusOK, "/api/v2/auth/login", "username=a&password=secret", form)
	if said != "Ok." || len(r.Cookies()) != 1 {
		t.Fatalf("%s, %v", said, r.Cookies())
	}
	cookie := "Cookie: SID=" + r.Cookies()[0].Value
	does(http.StatusOK, version, "", cookie)
	does(http.StatusMisdirectedRequest, version, "", cookie, "Host: evil.example")
}
