package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"braid/pathsel"
	"braid/tracker/server"
	"braid/tracker/swarm"
	"braid/tracker/wire"
)

// Whoever only claims to be in an AS is answered, but is told to nobody, takes nobody out, has no
// vote, and costs the AS nothing of its quotas.
func TestClaimedAS(t *testing.T) {
	s := newOnSCION(t, func(c *server.Config) { c.PerHostRate, c.PerASRate = 0.1, 1 })
	claim := func(n int, event wire.Event, reports ...wire.PathReport) (wire.Answer, error) {
		a := announceOf(byte(n))
		a.Key, a.Port, a.Event, a.Hints = fmt.Sprintf("%08X", n), 1000, event, true
		var body []byte
		if len(reports) > 0 {
			body = wire.AppendReports(nil, reports)
		}
		return wire.ParseAnswer(server.AskClaimed(s.Server, addrOf(1, n), a.Query(), body))
	}
	if _, err := s.ask(1, 1, nil); err != nil {
		t.Fatal(err)
	}
	answer, err := claim(2, wire.Started, wire.PathReport{Interfaces: over(1, 1, 2), RTT: time.Millisecond})
	if err != nil || len(answer.Peers) != 1 || answer.Incomplete != 1 || answer.Reports != 0 {
		t.Errorf("a claimed address is answered %+v, %v", answer, err)
	}
	if !strings.Contains(answer.Warning, "your AS") || answer.Interval > 30*time.Second || answer.MinInterval > answer.Interval {
		t.Errorf("it is told %q and to come back after %v, %v at the least", answer.Warning, answer.Interval, answer.MinInterval)
	}
	if st := s.stats(); st.Reports+st.PassedOver != 0 || st.Sizes.Pairs != 0 {
		t.Errorf("its reports count: %+v", st)
	}
	// The key and address of peer 1, but not its AS.
	if _, err := claim(1, wire.Stopped); err != nil {
		t.Error(err)
	}
	refused := false
	for n := 0; n < 10_000 && !refused; n++ { // on a busy machine 1100 take longer than a second
		_, err := claim(3, wire.Periodic)
		refused = err != nil
	}
	if !refused {
		t.Error("claims are answered without bound")
	}
	answer, err = s.ask(1, 4, nil)
	if err != nil || len(answer.Peers) != 1 || answer.Peers[0].Addr.IA != pathsel.IA(as(1)) {
		t.Errorf("a peer that is in the AS is answered %+v, %v", answer, err)
	}
}

// visited is a store that remembers the last visit.
type visited struct {
	swarm.Store
	last swarm.Visit
}

func (v *visited) Announce(ctx context.Context, x swarm.Visit) (swarm.View, error) {
	v.last = x
	return v.Store.Announce(ctx, x)
}

// A store charges nothing to an AS that is only claimed, such as room in the cache of a gateway.
func TestClaimedASIsNotCharged(t *testing.T) {
	cfg := server.Default()
	store := &visited{Store: swarm.NewMemory(cfg.Limits())}
	s, err := server.New(cfg, store, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a := announceOf(1)
	if server.AskClaimed(s, addrOf(1, 1), a.Query(), nil); store.last.Addr != (wire.Addr{}) {
		t.Errorf("the store hears of %s", store.last.Addr)
	}
	if server.AskFrom(s, addrOf(1, 1), a.Query(), nil); store.last.Addr.IA != as(1) {
		t.Errorf("once it is proven, the store hears of %s", store.last.Addr)
	}
}
