package durable

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// read opens a log and returns its batches.
func read(t *testing.T, name string) (l *Log, batches []string, damage error) {
	t.Helper()
	l, damage, err := OpenLog(name, 0, func(b []byte) error {
		batches = append(batches, string(b))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l, batches, damage
}

func closeLog(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// Wherever a crash cuts a log off, and whichever byte is damaged, the batches before that place are
// read, and then written to.
func TestDamagedLog(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "braid-test-") // hundreds of syncs are long on a disk
	if err != nil {
		dir = t.TempDir()
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "log")
	l, _, _ := read(t, name)
	var all []string
	ends := []int64{l.size}
	for i := range 5 {
		all = append(all, fmt.Sprint("batch ", i))
		if err := l.Append([]byte(all[i])); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, l.size)
	}
	closeLog(t, l)
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, b []byte, at int) {
		t.Helper()
		if err := errors.Join(os.WriteFile(name, b, 0o600), os.RemoveAll(name+AsideSuffix)); err != nil {
			t.Fatal(err)
		}
		want := 0
		for want < len(all) && ends[want+1] <= int64(at) {
			want++
		}
		l, got, damage := read(t, name)
		if !slices.Equal(got, all[:want]) {
			t.Errorf("%s at %d: %q, want %d batches", what, at, got, want)
		}
		if isWhole := what == "cut" && slices.Contains(ends, int64(at)); isWhole != (damage == nil) {
			t.Errorf("%s at %d: %v", what, at, damage)
		}
		if _, err := os.Stat(name + AsideSuffix); (err == nil) != (damage != nil) {
			t.Errorf("%s at %d: %v, set aside: %v", what, at, damage, err)
		}
		if err := l.Append([]byte("one more")); err != nil {
			t.Fatal(err)
		}
		closeLog(t, l)
		l, again, damage := read(t, name)
		if len(again) == 0 || again[len(again)-1] != "one more" || damage != nil {
			t.Errorf("%s at %d, then written to: %q, %v", what, at, again, damage)
		}
		closeLog(t, l)
	}
	for at := range whole {
		check("cut", whole[:at], at)
		b := bytes.Clone(whole)
		b[at] ^= 0x10
		check("flipped", b, at)
	}
}

// What a failed write has left behind the end is never read.
func TestLeftoverOfAFailedWrite(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	l, _, _ := read(t, name)
	if err := l.Append([]byte("first"), []byte("second"), []byte("third")); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	if err := os.WriteFile(name, whole[:len(logMagic)], 0o600); err != nil {
		t.Fatal(err)
	}
	l, _, _ = read(t, name)
	if err := l.Append([]byte("FIRST")); err != nil { // of the same length, so that the leftover begins with a batch
		t.Fatal(err)
	}
	if _, err := l.file.WriteAt(whole[l.size:], l.size); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	l, got, damage := read(t, name)
	if !slices.Equal(got, []string{"FIRST"}) || !errors.Is(damage, ErrDamaged) {
		t.Errorf("%q, %v", got, damage)
	}
	closeLog(t, l)
}

// A rewritten log holds what was added, and goes on; one whose rewriting fails holds what it did.
func TestRewrite(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	l, _, _ := read(t, name)
	big := make([]byte, slack)
	for !l.IsLong() {
		if err := l.Append(big); err != nil {
			t.Fatal(err)
		}
	}
	full := errors.New("no space")
	err := l.Rewrite(func(add func([]byte) error) error { return errors.Join(add([]byte("lost")), full) })
	if !errors.Is(err, full) || l.IsLong() {
		t.Errorf("error %v, long %v", err, l.IsLong())
	}
	if _, err := os.Stat(name + newSuffix); err == nil {
		t.Error("the unfinished file stays")
	}
	closeLog(t, l)
	l, got, _ := read(t, name)
	if len(got) < 1 || len(got[0]) != slack {
		t.Errorf("%d batches", len(got))
	}
	if err := errors.Join(l.Rewrite(func(add func([]byte) error) error { return add([]byte("few")) }), l.Append([]byte("more"))); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	l, got, damage := read(t, name)
	if !slices.Equal(got, []string{"few", "more"}) || damage != nil {
		t.Errorf("%q, %v", got, damage)
	}
	closeLog(t, l)
}

// A log belongs to one process. The next one may wait for it.
func TestLogInUse(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	l, _, _ := read(t, name)
	none := func([]byte) error { return nil }
	if _, _, err := OpenLog(name, time.Millisecond, none); !errors.Is(err, ErrInUse) {
		t.Errorf("error %v", err)
	}
	time.AfterFunc(100*time.Millisecond, func() { l.Close() })
	next, _, err := OpenLog(name, time.Minute, none)
	if err != nil {
		t.Fatal(err)
	}
	closeLog(t, next)
}

func TestSeal(t *testing.T) {
	const magic = "kind 1\n"
	b := Seal(magic, []byte("body"))
	if got, err := Unseal(magic, b); err != nil || string(got) != "body" {
		t.Errorf("%q, %v", got, err)
	}
	for at := range b {
		bad := bytes.Clone(b)
		bad[at] ^= 1
		for _, bad := range [][]byte{bad, b[:at]} {
			if _, err := Unseal(magic, bad); !errors.Is(err, ErrDamaged) {
				t.Errorf("damage at %d: %v", at, err)
			}
		}
	}
}
