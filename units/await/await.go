// Package await lets tests wait for real events: sockets, disks and other processes. It is the only
// place that decides how long such a wait may take.
//
// Where no real socket, disk or process is involved, use testing/synctest instead. A test in a bubble
// needs no deadline, and go test panics if it asks for one.
package await

import (
	"testing"
	"time"
)

const (
	// longest bounds one wait. A machine that others use can stop a process for some seconds, again
	// and again; only a defect takes this long.
	longest = 2 * time.Minute
	// spare is left of the time limit of go test, so that a failure names the event and not only
	// the goroutines.
	spare = 10 * time.Second
	// interval lies between two looks at a condition.
	interval = 5 * time.Millisecond
)

// Deadline returns the time at which a wait that begins now has failed.
func Deadline(t testing.TB) time.Time {
	end := time.Now().Add(longest)
	if limited, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if last, set := limited.Deadline(); set && last.Add(-spare).Before(end) {
			end = last.Add(-spare)
		}
	}
	return end
}

// True calls is again and again until it returns true. It ends the test if that takes too long, or if
// the test's context has ended. The argument what completes the sentence "waited for".
func True(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := Deadline(t); !is(); time.Sleep(interval) {
		switch {
		case t.Context().Err() != nil:
			t.Fatalf("the test ended while it waited for %s", what)
		case time.Now().After(end):
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// Success waits until try returns no error. It ends the test with the last error otherwise.
func Success(t testing.TB, what string, try func() error) {
	t.Helper()
	var err error
	defer func() {
		if t.Failed() && err != nil {
			t.Logf("%s: %v", what, err)
		}
	}()
	True(t, what, func() bool {
		err = try()
		return err == nil
	})
}

// Value waits until c delivers a value or is closed, and returns the value.
func Value[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	late := time.NewTimer(time.Until(Deadline(t)))
	defer late.Stop()
	select {
	case v := <-c:
		return v
	case <-t.Context().Done():
		t.Fatalf("the test ended while it waited for %s", what)
	case <-late.C:
		t.Fatalf("waited in vain for %s", what)
	}
	panic("unreachable: Fatalf ends the goroutine")
}
