package node

import (
	"errors"
	"testing"
	"time"

	"braid/client"
)

func TestGoal(t *testing.T) {
	for _, tt := range []struct {
		goal   Goal
		sent   int64
		served time.Duration
		want   string
	}{
		{Goal{}, 1 << 40, 1 << 60, ""},
		{Goal{Ratio: 1.5}, 1499, time.Hour, ""},
		{Goal{Ratio: 1.5}, 1500, 0, "ratio 1.50 is reached"},
		{Goal{Time: time.Hour}, 1 << 40, time.Hour - 1, ""},
		{Goal{Time: time.Hour}, 0, time.Hour, "served for 1h0m0s"},
		{Goal{2, time.Hour}, 0, time.Hour, "served for 1h0m0s"},
		{Goal{2, time.Hour}, 2000, 0, "ratio 2.00 is reached"},
	} {
		if got := tt.goal.reached(client.Progress{Total: 1000, Sent: tt.sent}, tt.served); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
	if got := (Goal{1, 1}).reached(client.Progress{Err: errors.New("lost")}, time.Hour); got != "" {
		t.Errorf("failed: %q", got)
	}
}
