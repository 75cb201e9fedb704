package scionnet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// answerTXT is a DNS server with the TXT records of some names.
func answerTXT(t *testing.T, records map[string][]string) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { c.Close(); <-ended })
	go func() {
		defer close(ended)
		b := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			var m dnsmessage.Message
			if err != nil || m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
			texts, known := records[q.Name.String()]
			if !known {
				m.RCode = dnsmessage.RCodeNameError
			}
			for _, text := range texts {
				if q.Type != dnsmessage.TypeTXT {
					continue
				}
				var parts []string // at most 255 bytes each
				for p := range slices.Chunk([]byte(text), 255) {
					parts = append(parts, string(p))
				}
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}, Body: &dnsmessage.TXTResource{TXT: parts},
				})
			}
			if out, err := m.Pack(); err == nil {
				_, _ = c.WriteTo(out, from)
			}
		}
	}()
	return c.LocalAddr().String()
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "hosts")
	if err := os.WriteFile(file, []byte(`# names of hosts
127.0.0.1 localhost mixed
1-ff00:0:110,[10.0.0.1]	one one.example   # the first
1-ff00:0:110,[fd00::1] six
1-ff00:0:111,10.0.0.2 One mixed
nonsense,[x] one
1-ff00:0:112,[10.0.0.3]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	n := Names{Hosts: []string{filepath.Join(dir, "absent"), file}, DNS: answerTXT(t, map[string][]string{
		"plain.test.":  {"v=spf1 -all", "scion=1-ff00:0:110,10.0.0.1"},
		"both.test.":   {"scion=1-ff00:0:110,[10.0.0.1]", "scion=64-2:0:9,fd00::1"},
		"list.test.":   {"scion=v1;[1-ff00:0:110,10.0.0.1],[64-559,fd00::1]", "scion=v1;[nonsense],[1-ff00:0:111,10.0.0.9]"},
		"wrong.test.":  {"scion=1-ff00:0:110", "scion=0-0,10.0.0.1", "scion=1-ff00:0:110,0.0.0.0", "scion=v2;[1-ff00:0:110,10.0.0.1]", "scion="},
		"no.test.":     {"something else"},
		"crowd.test.":  {"scion=v1;" + strings.Repeat("[1-ff00:0:110,10.0.0.1],", 20)},
		"one.example.": {"scion=1-ff00:0:119,10.0.0.1"}, // the file wins
	})}
	for _, tt := range []struct {
		name string
		want string // without ports; empty: an error
	}{
		{"one", "1-ff00:0:110,[10.0.0.1] 1-ff00:0:111,[10.0.0.2]"},
		{"ONE.example.", "1-ff00:0:110,[10.0.0.1]"},
		{"six", "1-ff00:0:110,[fd00::1]"},
		{"mixed", "1-ff00:0:111,[10.0.0.2]"},
		{"plain.test", "1-ff00:0:110,[10.0.0.1]"},
		{"both.test", "1-ff00:0:110,[10.0.0.1] 64-2:0:9,[fd00::1]"},
		{"list.test", "1-ff00:0:110,[10.0.0.1] 64-559,[fd00::1] 1-ff00:0:111,[10.0.0.9]"},
		{"crowd.test", strings.TrimSpace(strings.Repeat("1-ff00:0:110,[10.0.0.1] ", maxNamed))},
		{"wrong.test", ""}, {"no.test", ""}, {"absent.test", ""}, {"10.0.0.1", ""}, {"", ""}, {"a b", ""}, {"x/y", ""},
		{"-x", ""}, {strings.Repeat("a", 64), ""}, {strings.Repeat("a.", 200), ""},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		got, err := n.Lookup(ctx, tt.name, 80)
		cancel()
		var texts []string
		for _, a := range got {
			texts = append(texts, strings.TrimSuffix(a.String(), ":80"))
		}
		// DNS promises no order.
		slices.Sort(texts)
		want := strings.Fields(tt.want)
		slices.Sort(want)
		if (err == nil) != (tt.want != "") || !slices.Equal(texts, want) {
			t.Errorf("%q: %v, %v; want %s", tt.name, texts, err, tt.want)
		}
	}
	if _, err := (Names{Hosts: []string{dir}}).Lookup(t.Context(), "one", 1); err == nil {
		t.Error("a directory is read as a file of hosts")
	}
}

func TestClientByName(t *testing.T) {
	h := oneAS(t)
	server, err := h.OpenHTTP(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := h.OpenHTTP(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) }), time.Second)
	}()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	// The first address is in an unreachable AS.
	h.cfg.DNS = answerTXT(t, map[string][]string{"tracker.test.": {"scion=v1;[1-ff00:0:999,127.0.0.1],[1-ff00:0:110,127.0.0.1]"}})
	tr := client.ClientOf(Addr{Port: server.Addr().Port}, "tracker.test")
	defer tr.Close()
	if got, err := fetch(ctx, tr, "https://tracker.test/x"); err != nil || got != "tracker.test" {
		t.Errorf("%q, %v", got, err)
	}
	none := client.ClientOf(Addr{Port: 80}, "absent.test")
	defer none.Close()
	if _, err := fetch(ctx, none, "https://tracker.test/x"); err == nil {
		t.Error("a name that is not known is reached")
	}
}

// A name at the end of a long hosts file is found.
func TestLongHostsFile(t *testing.T) {
	text := strings.Repeat("10.0.0.1 other\n", 1<<17) + "1-ff00:0:110,10.0.0.2 name\n"
	if found, err := readHosts(strings.NewReader(text), "name"); err != nil || len(found) != 1 {
		t.Errorf("found %v, %v", found, err)
	}
}

func FuzzNames(f *testing.F) {
	f.Add("scion=v1;[1-ff00:0:110,10.0.0.1],[64-559,fd00::1]")
	f.Add("1-ff00:0:110,[10.0.0.1] x # y")
	f.Fuzz(func(t *testing.T, text string) {
		found := parseTXT(text)
		if more, err := readHosts(strings.NewReader(text), "x"); err == nil {
			found = append(found, more...)
		}
		for _, a := range found {
			if a.Port = 1; a.IA.ISD() == 0 || a.IA.AS() == 0 {
				t.Fatalf("%q gives %v", text, a)
			} else if again, err := ParseAddr(a.String()); err != nil || again != a {
				t.Fatalf("%q gives %v, which gives %v, %v", text, a, again, err)
			}
		}
	})
}
