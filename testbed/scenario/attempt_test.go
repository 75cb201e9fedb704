package scenario

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"braid/pathsel"
	"braid/testbed"
)

// A competing flow that breaks is a result of the run, like a peer that fails.
func TestBrokenFlow(t *testing.T) {
	a := &attempt{
		Scenario: Scenario{Lasts: Duration(time.Millisecond), Timeout: Duration(time.Minute)},
		fixtures: &fixtures{network: &testbed.Network{}}, dir: t.TempDir(),
		done: make(chan struct{}), paused: map[pathsel.Interface]bool{},
		flows: []*flow{{Traffic: Traffic{Name: "rival"}, stop: func() {}, err: errors.New("idle for too long")}},
	}
	res, err := a.run(context.Background())
	if err != nil || !strings.Contains(res.Failed, "idle for too long") {
		t.Errorf("the result %+v, %v", res, err)
	}
}
