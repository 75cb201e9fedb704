package testbed

import (
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"braid/pathsel"
	"braid/testbed/linkemu"
)

// Two commands that change different properties of a link at the same time both have an effect.
func TestChangesAtOnce(t *testing.T) {
	at := pathsel.Interface{IA: 1<<48 | 1, ID: 1}
	link := Link{A: LinkEnd{Interface: at}, B: LinkEnd{Interface: pathsel.Interface{IA: 1<<48 | 2, ID: 1}}, Type: Core}
	p, claim, err := claimPlan(Topology{ASes: []AS{{IA: at.IA}, {IA: link.B.Interface.IA}}, Links: []Link{link}}, t.Name(), netip.Prefix{})
	if err != nil {
		t.Fatal(err)
	}
	defer claim.release()
	l, err := linkemu.New(p.links[0].a, p.links[0].b, linkemu.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := &Network{log: slog.New(slog.DiscardHandler), links: []*linkemu.Link{l}}
	n.opts.Topology.Links = []Link{link}
	var work sync.WaitGroup
	for range 2 {
		work.Go(func() {
			for i := range int64(5000) {
				rate := 1000 + i
				if err := n.Change(LinkChange{Interface: at, Rate: &rate}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 5000 {
		delay := time.Duration(i+1) * time.Microsecond
		if err := n.Change(LinkChange{Interface: at, Delay: &delay}); err != nil {
			t.Fatal(err)
		}
		if c, _ := l.Config(); c.Delay != delay {
			t.Errorf("the delay is %v, want %v", c.Delay, delay)
			break
		}
	}
	work.Wait()
}
