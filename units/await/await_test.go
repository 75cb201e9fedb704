package await

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// watched notes how a test ends, and ends only the goroutine.
type watched struct {
	testing.TB
	said string
}

func (w *watched) Helper()                      {}
func (w *watched) Failed() bool                 { return w.said != "" }
func (w *watched) Logf(format string, _ ...any) { w.said += format }
func (w *watched) Fatalf(format string, _ ...any) {
	w.said = format
	runtime.Goexit()
}

func ended(t *testing.T, test func(w *watched)) string {
	w := &watched{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(w)
	}()
	<-done
	return w.said
}

func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		happened := func() bool { return time.Since(begin) >= time.Minute }
		if said := ended(t, func(w *watched) { True(w, "a minute", happened) }); said != "" {
			t.Errorf("an event after a minute: %s", said)
		}
		never := func() bool { return false }
		if said := ended(t, func(w *watched) { True(w, "nothing", never) }); !strings.Contains(said, "in vain") {
			t.Errorf("no event at all: %q", said)
		}
		refused := func() error { return errors.New("refused") }
		if said := ended(t, func(w *watched) { Success(w, "it", refused) }); !strings.Contains(said, "in vain") {
			t.Errorf("an error for ever: %q", said)
		}
		c := make(chan int, 1)
		if said := ended(t, func(w *watched) { Value(w, "a value", c) }); !strings.Contains(said, "in vain") {
			t.Errorf("no value: %q", said)
		}
		c <- 3
		if got := Value(&watched{TB: t}, "a value", c); got != 3 {
			t.Errorf("value %d, want 3", got)
		}
	})
}
