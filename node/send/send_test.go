package send

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"braid/client"
)

func peers(t testing.TB, names ...string) (out []client.Peer) {
	t.Helper()
	for _, n := range names {
		p, err := client.ParseListen(n)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

func example(t testing.TB) Line {
	l := Line{Key: Key{1, 2, 3}, Peers: peers(t, "1-ff00:0:111,[10.0.0.1]:31000", "2-64500,[2001:db8::1]:40000", "192.0.2.1:80", "[2001:db8::2]:65535", "host.example:1")}
	l.InfoHash[19] = 7
	return l
}

// A line survives what mail and chats do to it, and every wrong character is found.
func TestLine(t *testing.T) {
	want := example(t)
	text := want.String()
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		t.Errorf("%s is more than one word", text)
	}
	for _, same := range []string{text, strings.ToUpper(text), " \"" + text + "\"\n", text[:40] + "\r\n  " + text[40:]} {
		if got, err := ParseLine(same); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", same, got, err)
		}
	}
	for i := range text {
		for _, c := range "a7q9" {
			if byte(c) == text[i] {
				continue
			}
			if _, err := ParseLine(text[:i] + string(c) + text[i+1:]); err == nil {
				t.Errorf("character %d can be %c", i, c)
			}
		}
		if _, err := ParseLine(text[:i]); err == nil {
			t.Errorf("the first %d characters are a line", i)
		}
	}
	if _, err := ParseLine(strings.Repeat("a", maxLine+1)); err == nil {
		t.Error("a line of any length is read")
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add(example(f).String())
	f.Add(Prefix + "a")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseLine(text)
		if err != nil {
			return
		}
		if again, err := ParseLine(l.String()); err != nil || !reflect.DeepEqual(again, l) {
			t.Errorf("%+v became %+v, %v", l, again, err)
		}
	})
}

// The checksum must not keep the fuzzer from what is behind it.
func FuzzCutPeer(f *testing.F) {
	for _, p := range example(f).Peers {
		f.Add(appendPeer(nil, p))
	}
	f.Add([]byte("\x03\x070.0.0.0\x00\x01"))
	f.Add([]byte("\x03\x02::\x00\x01"))
	f.Add(append([]byte{kindName, 255}, bytes.Repeat([]byte("a"), 257)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		p, rest, err := cutPeer(b)
		if err != nil {
			return
		}
		if len(rest) >= len(b) {
			t.Fatal("no byte was read")
		}
		if again, _, err := cutPeer(appendPeer(nil, p)); err != nil || again != p {
			t.Errorf("%s became %s, %v", p, again, err)
		}
	})
}

func TestKeyOf(t *testing.T) {
	if _, err := KeyOf("short"); err == nil {
		t.Error("a phrase that can be guessed is accepted")
	}
	a, err := KeyOf("correct horse battery")
	b, _ := KeyOf("correct horse batterz")
	again, _ := KeyOf("correct horse battery")
	if err != nil || a == b || a != again || a == (Key{}) {
		t.Errorf("%x, %x, %x, %v", a, b, again, err)
	}
}

func TestReach(t *testing.T) {
	var own []netip.Addr
	for _, a := range []string{"127.0.0.1", "::1", "fe80::1", "10.0.0.2", "198.51.100.3", "fd00::5"} {
		own = append(own, netip.MustParseAddr(a))
	}
	many := []netip.Addr{netip.MustParseAddr("192.168.1.5")}
	for a := netip.MustParseAddr("2001:db8::1"); len(many) < 10; a = a.Next() {
		many = append(many, a)
	}
	for _, c := range []struct {
		named, listening []string
		own              []netip.Addr
		want             string
	}{
		{nil, []string{":7"}, own, "198.51.100.3:7 10.0.0.2:7 [fd00::5]:7"},
		{nil, []string{"[::]:7", "1-ff00:0:111,[10.0.0.1]:31000"}, own[:4], "1-ff00:0:111,[10.0.0.1]:31000 10.0.0.2:7"},
		{[]string{"name.example:9"}, []string{"10.0.0.2:7"}, own, "name.example:9 10.0.0.2:7"},
		{nil, []string{":7"}, own[:2], "127.0.0.1:7"},
		{nil, []string{":7"}, nil, "127.0.0.1:7"},
		// A week of temporary addresses (RFC 8981) does not displace the one of IPv4.
		{nil, []string{":7"}, many, "[2001:db8::1]:7 [2001:db8::2]:7 [2001:db8::3]:7 [2001:db8::4]:7 [2001:db8::5]:7 192.168.1.5:7"},
	} {
		var got []string
		for _, p := range Reach(peers(t, c.named...), peers(t, c.listening...), c.own) {
			got = append(got, p.String())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v, listening at %v: %v, want %s", c.named, c.listening, got, c.want)
		}
	}
}

func tree(t *testing.T, names ...string) (dir string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		name := filepath.Join(dir, n)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(n), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSelect(t *testing.T) {
	dir := tree(t, "a/1", "a/2", "a/b/3", "ab", "c/4")
	for _, c := range []struct{ paths, root, only string }{
		{"a", "a", ""},
		{"a/1", "a/1", ""},
		{"a/1 a/1", "a/1", ""},
		{"a/1 a/b", "a", "1 b"},
		{"a a/b", ".", "a"},
		{"a ab", ".", "a ab"},
		{"c/4 a/b/3", ".", "a/b/3 c/4"},
	} {
		var paths []string
		for _, p := range strings.Fields(c.paths) {
			paths = append(paths, filepath.Join(dir, p))
		}
		f, err := Select(paths)
		if err != nil || f.Root != filepath.Join(dir, c.root) || strings.Join(f.Only, " ") != c.only {
			t.Errorf("%s: %+v, %v", c.paths, f, err)
		}
	}
	for _, wrong := range [][]string{{""}, {filepath.Join(dir, "none")}, {"/"}, {dir, "/etc"}} {
		if f, err := Select(wrong); err == nil {
			t.Errorf("%v: %+v", wrong, f)
		}
	}
	if _, err := Select([]string{"none"}); err == nil || err.Error() != "cannot send none: no such file or directory; check the path and your rights" {
		t.Error(err)
	}
}

// Files that are not sent have no part in the stamp: a log that grows all the time holds up
// nothing.
func TestStamp(t *testing.T) {
	dir := tree(t, "d/1", "d/log/x", "d/y.tmp", "d/.braid/lock")
	f := Files{Root: filepath.Join(dir, "d"), Exclude: []string{"log", "*.tmp"}}
	stamp := func() string {
		s, err := f.Stamp(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := stamp()
	for _, other := range []string{"log/x", "log/z", "y.tmp", ".braid/lock"} {
		if err := os.WriteFile(filepath.Join(f.Root, other), []byte("changed"), 0o600); err != nil {
			t.Fatal(err)
		}
		if stamp() != first {
			t.Errorf("%s has changed the stamp", other)
		}
	}
	if err := os.WriteFile(filepath.Join(f.Root, "1"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	second := stamp()
	if second == first {
		t.Error("a changed file has not changed the stamp")
	}
	// A file that could not be read may be readable now.
	if err := os.Chmod(filepath.Join(f.Root, "1"), 0o640); err != nil {
		t.Fatal(err)
	}
	if stamp() == second {
		t.Error("other permissions have not changed the stamp")
	}
}

// A sender finds its key and its torrent again, but not the torrent of files that have changed.
func TestStash(t *testing.T) {
	dir, at := tree(t, "d/1", "d/2"), filepath.Join(t.TempDir(), "sends")
	f := Files{Root: filepath.Join(dir, "d")}
	stamp, err := f.Stamp(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenStash(at, f)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Create(t.Context(), f.Root, client.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Stamp, s.Torrent, s.IPPort = stamp, c.Torrent, 77
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	again, err := OpenStash(at, f)
	if err != nil || again.Key != s.Key || again.IPPort != 77 {
		t.Errorf("%+v, %v", again, err)
	}
	if src, ok := again.Source(stamp); !ok || src.InfoHash != c.Source.InfoHash {
		t.Error("the torrent is forgotten")
	}
	if other, err := OpenStash(at, Files{Root: f.Root, Only: []string{"1"}}); err != nil || other.Key == s.Key {
		t.Errorf("other files have the same key, %v", err)
	}
	if st, err := os.Stat(at); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("others can read the keys: %v, %v", st.Mode(), err)
	}
	name := filepath.Join(f.Root, "1")
	if err := os.Chtimes(name, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if changed, err := f.Stamp(t.Context()); err != nil || changed == stamp {
		t.Errorf("a file has changed, and the stamp has not: %v", err)
	}
	// A damaged file costs the key, not the sender.
	files, _ := filepath.Glob(filepath.Join(at, "*.json"))
	if err := os.WriteFile(files[0], []byte("{"), 0o600); err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if fresh, err := OpenStash(at, f); err != nil || fresh.Key == s.Key || fresh.Key == (Key{}) {
		t.Errorf("%+v, %v", fresh, err)
	}
}
