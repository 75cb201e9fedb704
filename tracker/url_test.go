package tracker

import (
	"net/url"
	"strconv"
	"testing"
)

func TestParseURL(t *testing.T) {
	for _, tt := range []struct {
		in    string
		ok    bool
		scion string // address, "" for a tracker on IP
	}{
		{"http://tracker.example/announce", true, ""},
		{"https://tracker.example:8443/announce?key=1", true, ""},
		{"udp://127.0.0.1:6969", true, ""},
		{"ws://127.0.0.1:8082", true, ""},
		{"wss://tracker.example/announce", true, ""},
		{"scion://1-ff00:0:110,[127.0.0.1]:8080", true, "1-ff00:0:110,[127.0.0.1]:8080"},
		{"scion://1-ff00:0:110,[127.0.0.1]:8080/announce", true, "1-ff00:0:110,[127.0.0.1]:8080"},
		{"scion://[1-ff00:0:110,127.0.0.1]:8080/announce", true, "1-ff00:0:110,[127.0.0.1]:8080"},
		{"scion://64-2:0:9,[fd00::1]/announce", true, "64-2:0:9,[fd00::1]:80"},
		{"http://scion4-1-ff00-0-110_127-0-0-1:8080/announce", true, "1-ff00:0:110,[127.0.0.1]:8080"},
		{"http://scion4-64-559_10-0-0-1/announce", true, "64-559,[10.0.0.1]:80"},
		{"http://scion6-1-ff00-0-110_fd00--1:81/announce", true, "1-ff00:0:110,[fd00::1]:81"},
		{"scion://tracker.example:8080/announce", true, "tracker.example:8080"},
		{"scion://tracker", true, "tracker:80"},
		{"scion://tracker.example:0/announce", false, ""},
		{"scion://10.0.0.1:80/announce", false, ""},
		{"scion://tra cker:80/announce", false, ""},
		{"scion://user@tracker:80/announce", false, ""},
		{"scion://A/%", false, ""},
		{"scion://1-ff00:0:110,[127.0.0.1]:0", false, ""},
		{"", false, ""},
		{"tracker.example/announce", false, ""},
		{"ftp://tracker.example/", false, ""},
		{"http:///announce", false, ""},
		{"http://tracker.example:0/", false, ""},
		{"http://tracker.example:65536/", false, ""},
		{"udp://tracker.example", false, ""},
		{"scion://1-ff00:0:110", false, ""},
		{"scion://0-0,[127.0.0.1]:80", false, ""},
		{"http://scion4-1-ff00-0-110:80/", false, ""},
		{"http://scion4-1-ff00-0-110_fd00--1:80/", false, ""},
		{"http://scion6-1-ff00-0-110_10-0-0-1:80/", false, ""},
		{"https://scion4-1-ff00-0-110_127-0-0-1/", false, ""},
		{"http://[1-ff00:0:110,127.0.0.1]:80/", false, ""},
	} {
		u, err := ParseURL(tt.in)
		if (err == nil) != tt.ok {
			t.Errorf("ParseURL(%q): %v", tt.in, err)
			continue
		}
		a, isSCION := u.SCION()
		where := a.String()
		if u.Name() != "" {
			where = u.Name() + ":" + strconv.Itoa(int(a.Port))
		}
		if isSCION != (tt.scion != "") || isSCION && where != tt.scion {
			t.Errorf("ParseURL(%q): SCION address %v, %v; want %q", tt.in, a, isSCION, tt.scion)
		}
		if tt.ok && u.String() != tt.in {
			t.Errorf("ParseURL(%q).String() = %q", tt.in, u)
		}
	}
}

func TestRequest(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"http://h:1/announce", "http://h:1/announce?q=1"},
		{" http://h:1/announce\r\n", "http://h:1/announce?q=1"}, // as people paste them into a torrent
		{"https://h/a?key=2#x", "https://h/a?key=2&q=1"},
		{"http://h", "http://h/announce?q=1"},
		{"scion://1-ff00:0:110,[127.0.0.1]:8080", "https://scion4-1-ff00-0-110_127-0-0-1:8080/announce?q=1"},
		{"scion://64-2:0:9,[fd00::1]:1/key/announce?a=b", "https://scion6-64-2-0-9_fd00--1:1/key/announce?a=b&q=1"},
		{"scion://tracker.example/key/announce", "https://tracker.example:80/key/announce?q=1"},
		{"scion://tracker.example", "https://tracker.example:80/announce?q=1"},
		{"http://scion4-1-ff00-0-110_127-0-0-1:8080/x", "https://scion4-1-ff00-0-110_127-0-0-1:8080/x?q=1"},
	} {
		u, err := ParseURL(tt.in)
		if err != nil {
			t.Fatal(err)
		}
		if got := u.Request("q=1").String(); got != tt.want {
			t.Errorf("%s: %s; want %s", tt.in, got, tt.want)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("scion://1-ff00:0:110,[127.0.0.1]:8080/announce")
	f.Add("http://scion6-1-ff00-0-110_fd00--1:81/announce")
	f.Add("scion://tracker.example:1/announce")
	f.Add("udp://h:1")
	f.Add("scion://A/%")
	f.Fuzz(func(t *testing.T, s string) {
		u, err := ParseURL(s)
		if err != nil {
			return
		}
		r := u.Request("q=1")
		if again, err := url.Parse(r.String()); err != nil || again.Host != r.Host || again.RequestURI() != r.RequestURI() {
			t.Fatalf("%q is requested at %v, which is read as %v, %v", s, r, again, err)
		}
		a, ok := u.SCION()
		if !ok {
			return
		}
		if r.Scheme != "https" {
			t.Fatalf("%q is requested at %v", s, r)
		}
		if u.Name() != "" {
			if r.Hostname() != u.Name() {
				t.Fatalf("%q is requested at %v", s, r)
			}
			return
		}
		if again, err := ParseURL("http://" + r.Host); err != nil || again.addr != a {
			t.Fatalf("%q is requested at %s", s, r.Host)
		}
		if again, err := ParseURL("scion://" + a.String()); err != nil || again.addr != a {
			t.Fatalf("%q gives %v, which gives %v, %v", s, a, again.addr, err)
		}
	})
}
