package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestOutcome(t *testing.T) {
	lost, bad := syscall.ENOSPC, WithCode(errors.New("bad data"), Data)
	interrupted := WithCode(errors.New("interrupted at 5%"), Interrupted)
	for _, tt := range []struct {
		err, lost error
		code      int
		says      string
	}{
		{nil, nil, 0, ""},
		{bad, nil, Data, "bad data"},
		{context.Canceled, nil, Interrupted, "interrupted"},
		{errors.Join(fmt.Errorf("check file: %w", context.Canceled), bad), nil, Data, "check file: interrupted\nbad data"},
		{fmt.Errorf("ask: %w", context.DeadlineExceeded), nil, Failed, "ask: no answer in time"},
		{nil, lost, Failed, "standard output is lost: no space left on device"},
		{bad, lost, Failed, "bad data\nstandard output is lost: no space left on device"},
		{interrupted, lost, Failed, "standard output is lost: no space left on device"},
		{fmt.Errorf("write paths: %w", lost), lost, Failed, "standard output is lost: no space left on device"},
	} {
		code, err := outcome(tt.err, tt.lost)
		if says := fmt.Sprint(err); code != tt.code || err != nil && says != tt.says || (err == nil) != (tt.says == "") {
			t.Errorf("%v, %v: exit code %d, %q", tt.err, tt.lost, code, says)
		}
	}
}

// Signals that come together are one Ctrl-C; a later one is the second.
func TestSignalsTogether(t *testing.T) {
	for _, tt := range []struct {
		after []time.Duration // between the signals
		exits bool
	}{
		{nil, false},
		{[]time.Duration{0}, false},
		{[]time.Duration{100 * time.Millisecond, 100 * time.Millisecond}, false},
		{[]time.Duration{time.Second}, true},
		{[]time.Duration{0, time.Second}, true},
		{[]time.Duration{200 * time.Millisecond, 200 * time.Millisecond}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			signals := make(chan os.Signal, 1)
			stopped, exited := false, false
			go obeySignals(signals, func() { stopped = true }, func() { exited = true })
			signals <- os.Interrupt
			for _, d := range tt.after {
				synctest.Wait()
				if !stopped || exited {
					t.Errorf("%v: stopped %v, exited %v before the last signal", tt.after, stopped, exited)
				}
				time.Sleep(d)
				signals <- syscall.SIGTERM
			}
			synctest.Wait()
			if !stopped || exited != tt.exits {
				t.Errorf("%v: stopped %v, exited %v", tt.after, stopped, exited)
			}
			if !exited { // the goroutine ends with the test
				time.Sleep(time.Second)
				signals <- os.Interrupt
			}
		})
	}
}
