package scenario

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"braid/testbed"
)

// A competing flow that breaks is a result of the run, like a peer that fails.
func TestBrokenFlow(t *testing.T) {
	a := &attempt{
		Scenario: Scenario{Lasts: Duration(time.Millisecond), Timeout: Duration(time.Minute)},
		fixtures: &fixtures{network: &testbed.Network{}}, dir: t.TempDir(),
		done:  make(chan struct{}),
		flows: []*flow{{Traffic: Traffic{Name: "rival"}, stop: func() {}, err: errors.New("idle for too long")}},
	}
	res, err := a.run(context.Background())
	if err != nil || !strings.Contains(res.Failed, "idle for too long") {
		t.Errorf("the result %+v, %v", res, err)
	}
}

// Events happen on time, also while the run waits for a peer that is starting.
func TestEventWhileAPeerStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a, starting := &attempt{zero: time.Now()}, &process{}
		a.at(When{After: 100 * time.Millisecond}, 0, func() error { starting.ready = true; return nil })
		if err := a.awaitReady(ctx, starting); err != nil {
			t.Error(err)
		}
	})
}
