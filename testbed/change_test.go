package testbed

import (
	"testing"
	"time"

	"braid/testbed/linkemu"
)

// A change of all properties leaves nothing of the old configuration. Undo restores all of it.
func TestEveryProperty(t *testing.T) {
	before := linkemu.Config{
		Rate: 1, Delay: 2, Jitter: 3, Loss: .4, QueueTime: 5, MTU: 6,
	}
	after := linkemu.Config{
		Rate: 20e6, Delay: time.Second, Jitter: time.Millisecond, Loss: .5, QueueBytes: 7000,
		Police: true, MTU: 1300, TooBig: true, Down: true,
	}
	var c LinkChange
	for name, value := range map[string]string{
		"rate": "20mbit", "delay": "1s", "jitter": "1ms", "loss": "50%", "queue": "7kB",
		"police": "on", "mtu": "1300", "too-big": "yes", "down": "true",
	} {
		if err := c.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	x := before
	c.Apply(&x)
	if x != after {
		t.Errorf("applied: %+v, want %+v", x, after)
	}
	c.Undo(before).Apply(&x)
	if x != before {
		t.Errorf("undone: %+v, want %+v", x, before)
	}
	LinkChange{MTU: new(9)}.Apply(&x)
	if before.MTU = 9; x != before {
		t.Errorf("a change of one property: %+v, want %+v", x, before)
	}
}
