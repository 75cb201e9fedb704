package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"braid/node/web/page"
	"braid/node/web/page/chromium"
)

// reached is an API that notes the requests that get through to it.
type reached struct {
	mu   sync.Mutex
	list []string
}

func (a *reached) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, r.Method+" "+r.URL.Path+" of "+r.Host)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"secret": "torrents", "has_password": true})
}

func (a *reached) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.list
	a.list = nil
	return out
}

// attack is what a page of another site tries, in the browser of a user who is logged in to braid,
// or whose braid has no password. Each try ends with what it has found out: "refused", or what the
// page could read.
const attack = `(async () => {
	const braid = "%s", out = []
	const seen = async (name, run) => out.push(name + ": " + await Promise.race([run().catch(() => "refused"), new Promise(r => setTimeout(r, 4000, "refused"))]))
	const once = (target, good, bad) => new Promise(r => { target["on" + good] = () => r("got through"); target["on" + bad] = () => r("refused") })
	const put = (tag, attributes) => { const e = Object.assign(document.createElement(tag), attributes); document.body.append(e); return e }
	await seen("read", async () => (await fetch(braid + "/api/v1/read", {credentials: "include"})).text())
	await seen("simple post", async () => (await fetch(braid + "/api/v1/post", {method: "POST", mode: "no-cors", credentials: "include", body: "{}"})).type === "opaque" ? "refused" : "read")
	await seen("json post", async () => (await fetch(braid + "/api/v1/json", {method: "POST", credentials: "include", headers: {"Content-Type": "application/json"}, body: "{}"})).text())
	await seen("delete", async () => (await fetch(braid + "/api/v1/delete", {method: "DELETE", credentials: "include"})).text())
	await seen("beacon", async () => { navigator.sendBeacon(braid + "/api/v1/beacon", "{}"); return "refused" })
	await seen("form", async () => {
		put("iframe", {name: "hole"})
		const f = put("form", {method: "post", action: braid + "/api/v1/form", enctype: "text/plain", target: "hole"})
		f.append(Object.assign(document.createElement("input"), {name: '{"a":"', value: '"}'}))
		f.submit()
		await new Promise(r => setTimeout(r, 500))
		return "refused"
	})
	await seen("websocket", () => once(new WebSocket(braid.replace("http", "ws") + "/api/v1/socket"), "open", "error"))
	await seen("events", () => once(new EventSource(braid + "/api/v1/events", {withCredentials: true}), "message", "error"))
	await seen("script", () => once(put("script", {src: braid + "/api/v1/script"}), "load", "error"))
	await seen("image", () => once(put("img", {src: braid + "/page/logo.svg"}), "load", "error"))
	await seen("frame", async () => { const f = put("iframe", {src: braid + "/"}); await new Promise(r => setTimeout(r, 700)); return f.contentDocument === null ? "refused" : "read" })
	await seen("window", async () => { const w = open(braid + "/"); await new Promise(r => setTimeout(r, 700)); try { return w && w.document.title ? "read" : "refused" } catch { return "refused" } })
	return out
})()`

// servePage serves the page and an API.
func servePage(t *testing.T, a *Access, api ...Route) (s *Server, url string) {
	t.Helper()
	s, err := New(Config{Listen: []string{"127.0.0.1:0"}, Access: a}, append(api,
		Route{Pattern: "GET /{$}", Handler: page.Handler(), Public: true},
		Route{Pattern: "GET /page/", Handler: page.Handler(), Public: true}))
	if err != nil {
		t.Fatal(err)
	}
	s.Serve()
	t.Cleanup(func() { _ = s.Close() })
	return s, "http://" + s.Addresses()[0]
}

// A hostile page achieves nothing, with and without a password: no request that changes something
// gets through, and nothing can be read. The same requests of braid's own page get through, so the
// test can fail.
func TestHostilePage(t *testing.T) {
	for _, password := range []string{"", "correct horse"} {
		t.Run("password "+password, func(t *testing.T) {
			api, a := &reached{}, access(t, password)
			_, braid := servePage(t, a,
				Route{Pattern: "/api/v1/", Handler: api},
				Route{Pattern: "POST /api/v1/login", Public: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					var p struct{ Password string }
					_ = json.NewDecoder(r.Body).Decode(&p)
					if err := a.Login(w, r, "", p.Password); err != nil {
						a.Refuse(w, r, err)
						return
					}
					w.WriteHeader(http.StatusNoContent)
				})})
			evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprint(w, "<!doctype html><title>evil</title><body>")
			}))
			t.Cleanup(evil.Close)

			// Names of other sites lead to this machine: evil.example to its own server,
			// rebound.example to braid's.
			b := chromium.Open(t, true, "MAP evil.example 127.0.0.1, MAP rebound.example 127.0.0.1")
			logIn(t, b, braid, password)
			if got := chromium.Get[int](b, `fetch("/api/v1/post", {method: "POST", body: "{}"}).then(r => r.status)`); got != http.StatusOK {
				t.Fatalf("braid's own page is answered %d", got)
			}
			if cookie := chromium.Get[string](b, `document.cookie`); cookie != "" {
				t.Errorf("scripts can read the cookie: %q", cookie)
			}
			api.take()

			b.Show(strings.Replace(evil.URL, "127.0.0.1", "evil.example", 1))
			for _, line := range chromium.Get[[]string](b, fmt.Sprintf(attack, braid)) {
				if !strings.HasSuffix(line, ": refused") {
					t.Errorf("the hostile page: %s", line)
				}
			}
			// GET and the browser's own OPTIONS change nothing, and their answers cannot be read.
			safe := func(r string) bool { return strings.HasPrefix(r, "GET ") || strings.HasPrefix(r, "OPTIONS ") }
			if got := slices.DeleteFunc(api.take(), safe); len(got) > 0 {
				t.Errorf("these got through: %q", got)
			}

			// DNS rebinding: the name is another site's, the address is braid's.
			rebound := strings.Replace(braid, "127.0.0.1", "rebound.example", 1)
			b.Show(rebound + "/")
			if text := chromium.Get[string](b, `document.body.innerText`); !strings.Contains(text, "not allowed") {
				t.Errorf("under another name braid shows %q", text)
			}
			if got := chromium.Get[int](b, `fetch("/api/v1/rebound", {method: "POST", body: "{}"}).then(r => r.status)`); got != http.StatusMisdirectedRequest {
				t.Errorf("under another name braid answers %d", got)
			}
			// The attack has opened braid's own page in a window, which goes on to ask under
			// braid's name.
			own := func(r string) bool { return strings.HasSuffix(r, " of "+strings.TrimPrefix(braid, "http://")) }
			if got := slices.DeleteFunc(api.take(), own); len(got) > 0 {
				t.Errorf("under another name these got through: %q", got)
			}
		})
	}
}

// The page's own form asks for the password, and says why a login fails. The browser does not ask in
// its own way, also where it says nothing about the origin of requests: on HTTP from another machine.
func TestLogInPage(t *testing.T) {
	a := access(t, "correct horse", "braid.example")
	s, braid := servePage(t, a,
		Route{Pattern: "/api/v1/", Handler: http.NotFoundHandler()},
		Route{Pattern: "POST /api/v1/login", Public: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a.Refuse(w, r, a.Login(w, r, "", "wrong"))
		})})
	b := chromium.Open(t, true, "MAP braid.example 127.0.0.1")
	b.Show(strings.Replace(braid, "127.0.0.1", "braid.example", 1) + "/")
	b.Until(`document.activeElement?.type === "password"`)
	b.Run(`(() => {
		const real = fetch
		window.challenges = []
		window.fetch = async (...what) => {
			const r = await real(...what)
			challenges.push(r.headers.get("WWW-Authenticate"))
			return r
		}
	})()`)
	b.Type("wrong")
	b.Click(`.login button`)
	b.Until(`document.querySelector(".wrong").textContent`)
	if said := chromium.Get[string](b, `document.querySelector(".wrong").textContent`); said != "Wrong password." {
		t.Errorf("after a wrong password the page says %q", said)
	}
	if challenges := chromium.Get[string](b, `JSON.stringify(challenges)`); challenges != "[null]" {
		t.Errorf("the browser was challenged: %s", challenges)
	}
	for range failuresAtOnce {
		ask(t, s, "POST", "/api/v1/login", "")
	}
	b.Click(`.login button`)
	b.Until(`document.querySelector(".wrong").textContent !== "Wrong password."`)
	if said := chromium.Get[string](b, `document.querySelector(".wrong").textContent`); said != ErrTooOften.Error() {
		t.Errorf("after many wrong passwords the page says %q", said)
	}
}

// logIn opens the page, and logs in by its form if there is a password.
func logIn(t *testing.T, b *chromium.Tab, braid, password string) {
	t.Helper()
	b.Show(braid + "/")
	if password == "" {
		b.Until(`document.querySelector(".torrents")`)
		return
	}
	b.Until(`document.activeElement?.type === "password"`)
	b.Shot("login")
	b.Type("wrong")
	b.Click(`.login button`)
	b.Until(`document.querySelector(".wrong").textContent.includes("password")`)
	b.Run(`document.querySelector(".login input").value = ""`)
	b.Type(password)
	b.Click(`.login button`)
	b.Until(`document.querySelector(".torrents")`)
}
