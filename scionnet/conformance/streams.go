package conformance

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"braid/units/await"
)

// StreamTest is a test for any connection with a stream each way. Both ends have generous
// deadlines. The caller closes them; the test may have done so already.
type StreamTest struct {
	Name string
	Test func(t *testing.T, dialled, accepted net.Conn)
}

// Streams are all stream tests except Exchange.
func Streams() []StreamTest {
	return []StreamTest{
		{"DiallerSpeaksFirst", diallerSpeaksFirst},
		{"AcceptorSpeaksFirst", acceptorSpeaksFirst},
		{"CloseDelivers", closeDelivers},
		{"CloseEndsReadAndWrite", closeEndsReadAndWrite},
		{"Deadlines", deadlines},
	}
}

func write(t *testing.T, w io.Writer, s string) {
	t.Helper()
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, r io.Reader, s string) {
	t.Helper()
	b := make([]byte, len(s))
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatal(err)
	}
	if string(b) != s {
		t.Fatalf("read %q, want %q", b, s)
	}
}

func diallerSpeaksFirst(t *testing.T, d, a net.Conn) {
	write(t, d, "from the dialler")
	want(t, a, "from the dialler")
	write(t, a, "from the acceptor")
	want(t, d, "from the acceptor")
}

func acceptorSpeaksFirst(t *testing.T, d, a net.Conn) {
	write(t, a, "welcome")
	want(t, d, "welcome")
}

// random returns bytes that depend only on the seed.
func random(seed uint64, size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b) // never fails
	return b
}

// Exchange sends random data both ways at once and closes. Each side must read exactly the other's
// data and then io.EOF.
func Exchange(d, a net.Conn, seed uint64, size int) error {
	if err := Swap(d, a, seed, size); err != nil {
		return err
	}
	if err := d.Close(); err != nil {
		return err
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("after the peer's close: want EOF, got: %w", err)
	}
	return a.Close()
}

// Swap is Exchange without closing.
func Swap(d, a net.Conn, seed uint64, size int) error {
	toAcceptor, toDialler := random(2*seed, size), random(2*seed+1, size)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	send := func(i int, c net.Conn, b []byte) {
		wg.Go(func() { _, errs[i] = c.Write(b) })
	}
	receive := func(i int, c net.Conn, b []byte) {
		wg.Go(func() {
			got := make([]byte, len(b))
			if _, err := io.ReadFull(c, got); err != nil {
				errs[i] = err
			} else if sha256.Sum256(got) != sha256.Sum256(b) {
				errs[i] = errors.New("the data are not those that were sent")
			}
		})
	}
	send(0, d, toAcceptor)
	send(1, a, toDialler)
	receive(2, d, toDialler)
	receive(3, a, toAcceptor)
	wg.Wait()
	return errors.Join(errs...)
}

func closeDelivers(t *testing.T, d, a net.Conn) {
	data := random(3, 256<<10)
	var got []byte
	ended := make(chan error, 1)
	go func() {
		var err error
		got, err = io.ReadAll(a)
		ended <- err
	}()
	if _, err := d.Write(data); err != nil {
		t.Fatal(err)
	}
	closing := time.Now()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; gaveUp(err, closing) {
		return
	} else if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, data) {
		t.Fatalf("%d bytes arrived of %d, or other ones", len(got), len(data))
	}
}

func closeEndsReadAndWrite(t *testing.T, d, a net.Conn) {
	failed := make(chan error, 2)
	go func() {
		_, err := d.Read(make([]byte, 1))
		failed <- err
	}()
	go func() {
		b := make([]byte, 1<<20)
		for {
			if _, err := d.Write(b); err != nil { // nobody reads, so it fills the window and waits
				failed <- err
				return
			}
		}
	}()
	want(t, a, "\x00") // both calls are waiting, or will find the connection closed
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-failed; err == nil || errors.Is(err, io.EOF) {
			t.Errorf("error %v after Close", err)
		}
	}
	if _, err := d.Write([]byte("x")); err == nil {
		t.Error("Write after Close works")
	}
}

func deadlines(t *testing.T, d, a net.Conn) {
	if err := d.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err := d.Read(make([]byte, 1))
	wantError(t, err, os.ErrDeadlineExceeded)
	if err := d.SetReadDeadline(await.Deadline(t)); err != nil {
		t.Fatal(err)
	}
	write(t, a, "later")
	want(t, d, "later")

	if err := d.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; { // nobody reads, so the window fills
		_, err = d.Write(make([]byte, 1<<20))
	}
	wantError(t, err, os.ErrDeadlineExceeded)
}
