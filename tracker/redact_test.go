package tracker

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for _, tt := range [][2]string{
		{"no URL", "no URL"}, {"at http://t.example/announce: refused (udp://t.example:1/k3y).", "at http://t.example/announce: refused (udp://t.example:1/…)."}, {"udp://t.example:80", "udp://t.example:80"},
		{"http://t.example:80/announce and https://t.example/announce.php", "http://t.example:80/announce and https://t.example/announce.php"},
		{"scion://1-ff00:0:110,[127.0.0.1]:8080/announce", "scion://1-ff00:0:110,[127.0.0.1]:8080/announce"},
		{"scion://1-ff00:0:110,[127.0.0.1]:8080/k3y", "scion://1-ff00:0:110,[127.0.0.1]:8080/…"},
		{"http://t.example/announce?passkey=k3y: refused", "http://t.example/announce?…: refused"},
		{`Get "http://t.example/k3y/announce?a=b%20&c": EOF`, `Get "http://t.example/…?…": EOF`},
		{`error="Get \"http://t.example/k3y\": EOF"`, `error="Get \"http://t.example/…\": EOF"`},
		{`"http://t.example/\x01k3y"`, `"http://t.example/…"`},
		{"HTTPS://me:k3y@t.example/", "HTTPS://…@t.example/"}, {"http://k3y@@t.example", "http://…@t.example"},
		{"redis://me:k3y@h:6379/0", "redis://…@h:6379/0"}, {"rediss://me:k3y@h:6379/0", "rediss://…@h:6379/0"}, {"http://t.example?k3y", "http://t.example?…"}, {"http://t.example/#k3y", "http://t.example/#…"},
		{"magnet:?xt=urn:btih:00&dn=x&tr=http%3A%2F%2Ft%2Fk3y", "magnet:?xt=urn:btih:00&dn=x&…"}, {"magnet:?xt=urn:btih:00", "magnet:?xt=urn:btih:00"},
		{"magnet:?tr=http://t/k3y", "magnet:?&…"}, {"://", "://"}, {"magnet:?", "magnet:?"},
	} {
		if got := Redact(tt[0]); got != tt[1] {
			t.Errorf("%s: %s, want %s", tt[0], got, tt[1])
		}
		if got := Redact(tt[1]); got != tt[1] {
			t.Errorf("%s becomes %s", tt[1], got)
		}
	}
}

// The key shows neither in what is logged of a URL nor in the error of one that is wrong.
func TestURLHidesKey(t *testing.T) {
	for _, s := range []string{"http://t.example/k3y/announce", "udp://t.example:1/announce?x=a b k3y", "scion://1-ff00:0:110,[127.0.0.1]:8080/k3y/announce"} {
		u, err := ParseURL(s)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		slog.New(slog.NewTextHandler(&b, nil)).Info("asked", "tracker", u)
		if got := b.String(); strings.Contains(got, "k3y") || !strings.Contains(got, "tracker=") {
			t.Error(got)
		}
	}
	for _, s := range []string{"http://t.example:x/k3y", "gopher://t/k3y", "http://me:k3y@", "udp://t.example/k3y", "scion://t.example:0/k3y", "scion://1-ff00:0:110,[127.0.0.1]:8080/k3y#", "http://t/k3y/" + strings.Repeat("x", maxURL)} {
		if _, err := ParseURL(s); err == nil || strings.Contains(err.Error(), "k3y") {
			t.Errorf("%v", err)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("Get \"http://me:x@t.example/k/announce?passkey=x\": magnet:?xt=urn:btih:00&tr=http%3A%2F%2Ft")
	f.Fuzz(func(t *testing.T, s string) {
		got := Redact(s)
		if again := Redact(got); again != got {
			t.Errorf("%q becomes %q and then %q", s, got, again)
		}
	})
}

// A tracker quotes the key back.
func TestHide(t *testing.T) {
	for _, tt := range [][2]string{
		{"http://t.example/s3cret/announce", "unknown key …, announce again"},
		{"http://t.example/announce?passkey=s3cret", "unknown key …, announce again"},
		{"http://t.example/announce?s3cret", "unknown key …, announce again"},
		{"udp://t.example:1/s3cret", "unknown key …, announce again"},
		{"https://me:s3cret@t.example/announce", "unknown key …, announce again"},
		{"scion://1-ff00:0:110,[127.0.0.1]:8080/announce?key=s3cret", "unknown key …, announce again"},
		{"http://t.example/announce?key=s3", "unknown key s3cret, announce again"},
		{"http://t.example/announce", "unknown key s3cret, announce again"},
	} {
		u, err := ParseURL(tt[0])
		if err != nil {
			t.Fatal(err)
		}
		if got := u.Hide("unknown key s3cret, announce again"); got != tt[1] {
			t.Errorf("%s: %q", tt[0], got)
		}
	}
}
