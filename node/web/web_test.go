package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "braid/node/web/v1"
)

// serve starts a server with two routes: /public, and / that needs the password.
func serve(t *testing.T, a *Access, listen ...string) *Server {
	echo := func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, b)
	}
	s, err := New(Config{Listen: listen, Access: a}, []Route{
		{Pattern: "/", Handler: http.HandlerFunc(echo), Body: 10},
		{Pattern: "/public", Handler: http.HandlerFunc(echo), Public: true},
		{Pattern: "POST /login", Public: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := a.Login(w, r, "", r.Header.Get("Password")); err != nil {
				a.Refuse(w, r, err)
			}
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Serve()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func access(t *testing.T, password string, hosts ...string) *Access {
	a, err := OpenAccess(filepath.Join(t.TempDir(), "password"), hosts)
	if a.cost = 10; err == nil && password != "" {
		err = a.SetPassword(password)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ask sends a request with headers, each name: value, to the server's first address.
func ask(t *testing.T, s *Server, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	address := s.Addresses()[0]
	c := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
			if path, ok := strings.CutPrefix(address, unixPrefix); ok {
				return net.Dial("unix", path)
			}
			return net.Dial("tcp", address)
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	r, err := http.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
		}
		if user, password, ok := strings.Cut(value, ":"); ok && name == "Basic" {
			r.SetBasicAuth(user, password)
		}
		r.Header.Add(name, value)
	}
	out, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Body.Close()
	b, err := io.ReadAll(out.Body)
	if err != nil {
		t.Fatal(err)
	}
	return out, string(b)
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "api.sock")
	s := serve(t, access(t, "secret"), unixPrefix+path)
	if got := s.Addresses()[0]; got != unixPrefix+path {
		t.Errorf("it listens at %s", got)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode() != os.ModeSocket|0o600 {
		t.Errorf("mode %v, %v: want a socket for its owner only", st.Mode(), err)
	}
	// The owner needs no password, and any name is good that is no website's.
	for host, want := range map[string]int{"anything": 200, "localhost:9091": 200, "127.0.0.1": 200, "evil.example": 421, "evil.example:9091": 421} {
		if r, body := ask(t, s, "GET", "/x", "", "Host: "+host); r.StatusCode != want || want == 200 && body != "GET /x " {
			t.Errorf("Host %s: %s: %s", host, r.Status, body)
		}
	}
	if _, err := New(Config{Listen: []string{unixPrefix + path}, Access: access(t, "")}, nil); err == nil || !strings.Contains(err.Error(), "another braid daemon") {
		t.Errorf("a second server at the socket: %v", err)
	}
	if r, _ := ask(t, s, "GET", "/x", ""); r.StatusCode != 200 {
		t.Error("the second server took the socket of the first one away")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// A socket that a killed process has left is replaced. A file is not.
func TestUnixSocketLeftBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	s := serve(t, access(t, ""), unixPrefix+path)
	if r, _ := ask(t, s, "GET", "/x", ""); r.StatusCode != 200 {
		t.Error(r.Status)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Listen: []string{unixPrefix + file}, Access: access(t, "")}, nil); err == nil {
		t.Error("a server takes the place of a file")
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
		t.Errorf("the file is %q, %v", b, err)
	}
}

func TestListenNeedsPassword(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", "[::]:0", ":0", "192.0.2.1:0"} {
		if _, err := New(Config{Listen: []string{address}, Access: access(t, "")}, nil); !errors.Is(err, ErrNeedsPassword) {
			t.Errorf("%s without a password: %v", address, err)
		}
	}
	a := access(t, "secret")
	s := serve(t, a, "0.0.0.0:0")
	if len(s.Addresses()) != 1 {
		t.Error(s.Addresses())
	}
	// The password may be removed later.
	if err := a.SetPassword(""); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]int{"192.0.2.1": http.StatusForbidden, "127.0.0.1": http.StatusOK} {
		ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(at)})
		r, w := httptest.NewRequestWithContext(ctx, "GET", "http://"+at+"/x", nil), httptest.NewRecorder()
		if s.http.Handler.ServeHTTP(w, r); w.Code != want {
			t.Errorf("at %s, without a password: %d, want %d", at, w.Code, want)
		}
		r.SetBasicAuth("any", "any")
		if err := a.Allowed(r); (err == nil) != (want == http.StatusOK) { // a stream asks this as long as it is open
			t.Errorf("at %s, without a password: a stream goes on: %v", at, err)
		}
	}
}

// Strangers who hold all connections open do not keep others out, however long the server is
// patient.
func TestSilentConnections(t *testing.T) {
	s, err := New(Config{Listen: []string{"127.0.0.1:0"}, Access: access(t, "")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.http.ReadHeaderTimeout, s.http.ReadTimeout = 0, 0
	s.Serve()
	defer s.Close()
	for range maxConnections {
		c, err := net.Dial("tcp", s.Addresses()[0])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	c := http.Client{Timeout: time.Minute}
	res, err := c.Get("http://" + s.Addresses()[0] + "/")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
}

func TestHosts(t *testing.T) {
	s := serve(t, access(t, "", "Mirror.example.org", "*.example.net"), "127.0.0.1:0")
	for _, tt := range []struct {
		host string
		want int
	}{
		{"127.0.0.1", 200}, {"127.0.0.1:9091", 200}, {"[::1]:9091", 200}, {"[fe80::1]", 200}, {"localhost", 200}, {"LOCALHOST:9091", 200},
		{"mirror.example.org", 200}, {"mirror.example.org.:80", 200}, {"a.example.net", 200}, {"a.b.example.net:9091", 200},
		{"example.net", 421}, {".example.net", 421}, {"evil-example.net", 421}, {"x.mirror.example.org", 421}, {"evil.example", 421},
		{"127.0.0.1.evil.example", 421}, {"localhost.evil.example", 421}, {"evil.example:9091", 421},
	} {
		if r, body := ask(t, s, "GET", "/public", "", "Host: "+tt.host); r.StatusCode != tt.want {
			t.Errorf("Host %s: %s %s, want %d", tt.host, r.Status, body, tt.want)
		}
	}
}

// Programs that speak HTTP/1.0, as load balancers do for health checks, name no host.
func TestNoHost(t *testing.T) {
	s := serve(t, access(t, ""), "127.0.0.1:0")
	c, err := net.Dial("tcp", s.Addresses()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /public HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(b), "HTTP/1.0 200 ") {
		t.Errorf("%.80s, %v", b, err)
	}
}

func TestPassword(t *testing.T) {
	a := access(t, "secret")
	s := serve(t, a, "127.0.0.1:0")
	r, _ := ask(t, s, "GET", "/x", "")
	if r.StatusCode != 401 || r.Header.Get("WWW-Authenticate") == "" {
		t.Errorf("without a password: %s %v", r.Status, r.Header)
	}
	for _, sign := range []string{"Sec-Fetch-Site: same-origin", "X-Requested-With: XMLHttpRequest", "Accept: text/event-stream"} {
		if r, _ := ask(t, s, "GET", "/x", "", sign); r.StatusCode != 401 || r.Header.Get("WWW-Authenticate") != "" {
			t.Errorf("a script without a session: %s %v", r.Status, r.Header)
		}
	}
	if r, _ := ask(t, s, "GET", "/x", "", "Sec-Fetch-Mode: navigate"); r.StatusCode != 303 || r.Header.Get("Location") != "/" {
		t.Errorf("a browser without a session: %s %v", r.Status, r.Header)
	}
	if r, body := ask(t, s, "GET", "/public", ""); r.StatusCode != 200 {
		t.Errorf("a public route: %s %s", r.Status, body)
	}
	for _, password := range []string{"secret", "secret", "wrong", "", strings.Repeat("x", 2000)} {
		want := 401
		if password == "secret" {
			want = 200
		}
		if r, _ := ask(t, s, "GET", "/x", "", "Basic: anybody:"+password); r.StatusCode != want {
			t.Errorf("password %.10q: %s, want %d", password, r.Status, want)
		}
	}
	const at = "Host: 127.0.0.1:9091"
	r, body := ask(t, s, "POST", "/login", "", at, "Password: secret")
	c := r.Cookies()
	if r.StatusCode != 200 || len(c) != 1 || !c[0].HttpOnly || c[0].SameSite != http.SameSiteStrictMode || c[0].Path != "/" {
		t.Fatalf("login: %s %s %v", r.Status, body, c)
	}
	if c[0].Name != "braid-9091" {
		t.Errorf("a daemon on another port would replace the cookie %s", c[0].Name)
	}
	cookie := "Cookie: " + c[0].Name + "=" + c[0].Value
	if r, _ := ask(t, s, "POST", "/x", "", at, cookie); r.StatusCode != 200 {
		t.Errorf("in a session: %s", r.Status)
	}
	if r, _ := ask(t, s, "GET", "/x", "", "Cookie: braid=guess"); r.StatusCode != 401 {
		t.Errorf("with a cookie of nobody: %s", r.Status)
	}
	if err := a.SetPassword("other"); err != nil {
		t.Fatal(err)
	}
	for _, h := range []string{cookie, "Basic: x:secret"} {
		if r, _ := ask(t, s, "GET", "/x", "", at, h); r.StatusCode != 401 {
			t.Errorf("after another password was set, %s: %s", h, r.Status)
		}
	}
}

// The checks answer programs of braid's own interface as its description says: with an object.
func TestErrorsAreDescribed(t *testing.T) {
	s := serve(t, access(t, "secret"), "127.0.0.1:0")
	for header, want := range map[string]int{"X: nothing": 401, "Host: evil.example": 421, "Origin: http://evil.example": 403} {
		r, body := ask(t, s, "POST", "/api/v1/torrents", "", header)
		var p v1.Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil || p.Error == "" || r.StatusCode != want || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s %s %q, want %d", header, r.Status, r.Header.Get("Content-Type"), body, want)
		}
	}
}

// The hash survives the process, in a file that only its owner reads. A damaged file is an error.
func TestPasswordFile(t *testing.T) {
	a := access(t, "secret")
	st, err := os.Stat(a.file)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if b, _ := os.ReadFile(a.file); strings.Contains(string(b), "secret") {
		t.Error("the file has the password")
	}
	b, err := OpenAccess(a.file, nil)
	if err != nil || !b.HasPassword() || !b.password.matches("secret") || b.password.matches("Secret") {
		t.Errorf("%v", err)
	}
	if err := b.SetPassword(""); err != nil || b.HasPassword() {
		t.Errorf("the password is still there: %v", err)
	}
	if err := a.Reload(); err != nil || a.HasPassword() {
		t.Errorf("the password is still there after a reload: %v", err)
	}
	for _, damaged := range []string{"", "{}", "x", `{"pbkdf2_sha256_iterations":1,"salt":"","key":""}`} {
		if err := os.WriteFile(a.file, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := a.Reload(); err == nil {
			t.Errorf("the damaged file %q passes", damaged)
		}
	}
}

// A network that has sent many wrong passwords waits. Others do not.
func TestFailedLogins(t *testing.T) {
	a := access(t, "")
	a.password = hash("secret", 1)
	synctest.Test(t, func(t *testing.T) {
		try := func(from, password string) error {
			return a.verify(&http.Request{RemoteAddr: from}, password)
		}
		for i := range failuresAtOnce {
			if err := try(fmt.Sprintf("192.0.2.%d:1", i), "wrong"); !errors.Is(err, ErrPassword) {
				t.Fatalf("try %d: %v", i, err)
			}
		}
		if err := try("192.0.2.77:1", "secret"); !errors.Is(err, ErrTooOften) {
			t.Errorf("after %d wrong passwords: %v", failuresAtOnce, err)
		}
		if err := try("198.51.100.1:1", "secret"); err != nil {
			t.Errorf("from another network: %v", err)
		}
		if err := try("192.0.2.77:1", "secret"); err != nil {
			t.Errorf("the password that was right last: %v", err)
		}
		a.proven = nil
		time.Sleep(failureEvery)
		if err := try("192.0.2.77:1", "secret"); err != nil {
			t.Errorf("after a while: %v", err)
		}
		for i := range maxNetworks + 100 {
			_ = try(fmt.Sprintf("10.%d.%d.1:1", i>>8, i&255), "wrong")
		}
		if n := len(a.failures); n > maxNetworks {
			t.Errorf("%d networks are remembered", n)
		}
	})
}

// A program may send many requests at once when the daemon has just started: right passwords are no
// failures.
func TestManyAtOnce(t *testing.T) {
	a := access(t, "")
	a.password = hash("secret", 1)
	synctest.Test(t, func(t *testing.T) {
		a.hashing = make(chan struct{}, hashesAtOnce)
		for range hashesAtOnce {
			a.hashing <- struct{}{} // others are being checked
		}
		for range 10 * failuresAtOnce {
			go func() {
				if err := a.verify(&http.Request{RemoteAddr: "192.0.2.1:1"}, "secret"); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		for range hashesAtOnce {
			<-a.hashing
		}
		synctest.Wait()
	})
}

func TestSessionsAreBounded(t *testing.T) {
	a := access(t, "")
	a.password = hash("secret", 1)
	synctest.Test(t, func(t *testing.T) {
		var cookies []*http.Cookie
		for range maxSessions + 1 {
			w := recorder{header: http.Header{}}
			if err := a.Login(w, &http.Request{RemoteAddr: "192.0.2.1:1"}, "SID", "secret"); err != nil {
				t.Fatal(err)
			}
			cookies = append(cookies, (&http.Response{Header: w.header}).Cookies()...)
			time.Sleep(time.Second)
		}
		in := func(c *http.Cookie) bool {
			r := &http.Request{Header: http.Header{}}
			r.AddCookie(c)
			return a.inSession(r)
		}
		if in(cookies[0]) || !in(cookies[1]) || !in(cookies[maxSessions]) {
			t.Error("the session that was not used for longest should have ended, and no other")
		}
		time.Sleep(sessionIdle)
		if in(cookies[1]) {
			t.Error("an idle session goes on")
		}
	})
}

type recorder struct {
	http.ResponseWriter
	header http.Header
}

func (r recorder) Header() http.Header { return r.header }

// What other sites can make a browser send changes nothing, and they read nothing.
func TestOtherSites(t *testing.T) {
	s := serve(t, access(t, ""), "127.0.0.1:0")
	for _, tt := range []struct {
		method, header string
		want           int
	}{
		{"POST", "Sec-Fetch-Site: cross-site", 403}, {"POST", "Sec-Fetch-Site: same-site", 403}, {"DELETE", "Origin: http://evil.example", 403},
		{"POST", "Origin: null", 403}, {"POST", "Sec-Fetch-Site: same-origin", 200}, {"POST", "Origin: http://127.0.0.1", 200},
		{"POST", "X: no browser", 200}, {"GET", "Sec-Fetch-Site: cross-site", 200},
	} {
		r, _ := ask(t, s, tt.method, "/x", "", tt.header)
		if r.StatusCode != tt.want {
			t.Errorf("%s with %s: %s, want %d", tt.method, tt.header, r.Status, tt.want)
		}
		for name, want := range map[string]string{
			"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin", "Access-Control-Allow-Origin": "",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if p := r.Header.Get("Content-Security-Policy"); tt.want == 200 && (!strings.Contains(p, "default-src 'none'") || strings.Contains(p, "unsafe")) {
			t.Errorf("policy %q", p)
		}
	}
	if r, _ := ask(t, s, "POST", "/x", "01234567890"); r.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of 11 bytes, of which 10 are allowed: %s", r.Status)
	}
}
