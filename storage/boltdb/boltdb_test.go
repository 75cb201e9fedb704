package boltdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"braid/storage/durable"
)

// A database that another process writes to is in use and not damaged, whatever its pages look like
// meanwhile.
func TestInUse(t *testing.T) {
	name := filepath.Join(t.TempDir(), "db")
	opts := &bbolt.Options{Timeout: time.Millisecond}
	never := func(string, error) { t.Error("it was set aside") }
	d, err := Open(name, 0o600, opts, never)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 1<<14), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(name, 0o600, opts, never); !errors.Is(err, durable.ErrInUse) {
		t.Errorf("error %v", err)
	}
	if err := errors.Join(f.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	asides := 0
	d, err = Open(name, 0o600, opts, func(aside string, err error) {
		asides++
		if b, e := os.ReadFile(aside); e != nil || len(b) < 1<<14 || !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes set aside, %v; %v", len(b), e, err)
		}
	})
	if err != nil || asides != 1 {
		t.Fatalf("set aside %d times, %v", asides, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// A database that was made and not written to yet is sound, and so is one after its first
// transactions.
func TestNewDatabase(t *testing.T) {
	name := filepath.Join(t.TempDir(), "db")
	for i := range 4 {
		db, err := Open(name, 0o600, &bbolt.Options{Timeout: time.Second}, nil)
		if err != nil {
			t.Fatalf("start %d: %v", i, err)
		}
		if i > 0 {
			err = db.Update(func(tx *bbolt.Tx) error {
				_, err := tx.CreateBucketIfNotExists([]byte("b"))
				return err
			})
		}
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever is in a database, to open it and read all of it ends in an error or not, but neither in
// a panic nor a crash.
func FuzzDamagedDatabase(f *testing.F) {
	for _, b := range sampleDatabases(f) {
		f.Add(b, uint32(0), byte(0))
		f.Add(b, uint32(len(b)/2), byte(0xff))
		f.Add(b[:len(b)/2], uint32(100), byte(1))
	}
	f.Add([]byte{}, uint32(0), byte(0))
	f.Fuzz(func(t *testing.T, b []byte, at uint32, with byte) {
		b = append([]byte(nil), b...)
		if len(b) > 0 {
			b[int(at)%len(b)] ^= with
		}
		if err := readAll(t, b); err != nil {
			t.Log(err)
		}
	})
}

// sampleDatabases are right ones: a new one, and one with buckets, branches and large values. Their
// pages are small, so that a fuzzer gets to change what matters.
func sampleDatabases(f *testing.F) (out [][]byte) {
	for _, keys := range []int{0, 150} {
		name := filepath.Join(f.TempDir(), "db")
		db, err := Open(name, 0o600, &bbolt.Options{Timeout: time.Second, PageSize: 1024}, nil)
		if err != nil {
			f.Fatal(err)
		}
		err = db.Update(func(tx *bbolt.Tx) error {
			for k := range keys {
				b, err := tx.CreateBucketIfNotExists(fmt.Appendf(nil, "bucket %d", k%7))
				if err != nil {
					return err
				}
				if err := b.Put(fmt.Appendf(nil, "key %d", k), make([]byte, k/40*k/4)); err != nil {
					return err
				}
			}
			return nil
		})
		if err := errors.Join(err, db.Close()); err != nil {
			f.Fatal(err)
		}
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Logf("a database of %d bytes", len(b))
		out = append(out, b)
	}
	return out
}

func readAll(t *testing.T, b []byte) error {
	name := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := Open(name, 0, &bbolt.Options{ReadOnly: true, Timeout: time.Second, PageSize: 1024}, nil)
	if err != nil {
		return err
	}
	sum := 0
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				for _, x := range slices.Concat(k, v) {
					sum += int(x)
				}
				return nil
			})
		})
	})
	return errors.Join(err, db.Close())
}
