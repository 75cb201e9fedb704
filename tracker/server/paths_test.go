package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"braid/pathsel"
	"braid/tracker/server"
	"braid/tracker/swarm"
	"braid/tracker/wire"
)

func as(n int) pathsel.IA { return pathsel.IA(1<<48 | 0xff00_0000_0000 | uint64(n)) }

// over is the path through interface id between two ASes that are neighbours.
func over(id uint64, src, dst int) []pathsel.Interface {
	return []pathsel.Interface{{IA: as(src), ID: id}, {IA: as(dst), ID: id}}
}

// onSCION is a tracker that is asked by hosts of a SCION network that is not there.
type onSCION struct {
	*server.Server
	t *testing.T
}

func newOnSCION(t *testing.T, change func(*server.Config)) onSCION {
	cfg := server.Default()
	if change != nil {
		change(&cfg)
	}
	s, err := server.New(cfg, swarm.NewMemory(cfg.Limits()), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	return onSCION{s, t}
}

func addrOf(ia, n int) wire.Addr {
	return wire.Addr{IA: as(ia), Host: netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})}
}

// ask announces peer n of an AS, with reports if there are any.
func (s onSCION) ask(ia, n int, change func(*wire.Announce), reports ...wire.PathReport) (wire.Answer, error) {
	a := announceOf(byte(n))
	a.Key, a.Port = fmt.Sprintf("%08X", n), 1000
	a.Compact = true
	if change != nil {
		change(&a)
	}
	var body []byte
	if len(reports) > 0 {
		body = wire.AppendReports(nil, reports)
	}
	return wire.ParseAnswer(server.AskFrom(s.Server, addrOf(ia, n), a.Query(), body))
}

func (s onSCION) stats() server.PathStats {
	s.t.Helper()
	st, err := s.Stats(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return st.Paths
}

func guided(o wire.Order) func(*wire.Announce) {
	return func(a *wire.Announce) { a.Peers, a.Hints = o, true }
}

func TestPathKnowledge(t *testing.T) {
	s := newOnSCION(t, nil)
	// Nothing is known; who does not ask for hints gets none, and is told that reports are welcome.
	if a, err := s.ask(1, 1, guided(wire.Mixed)); err != nil || a.Hints != nil || a.Reports != wire.MaxReports {
		t.Fatalf("%+v, %v", a, err)
	}
	for n := 2; n <= 9; n++ {
		if _, err := s.ask(n, n, nil); err != nil {
			t.Fatal(err)
		}
	}
	var reports []wire.PathReport
	for n := 2; n <= 9; n++ {
		for id := range uint64(3) {
			reports = append(reports, wire.PathReport{Interfaces: over(id+1, 1, n), RTT: time.Duration(n*10) * time.Millisecond, Rate: 1e6 << (4 * id)})
		}
	}
	foreign := wire.PathReport{Interfaces: over(1, 3, 4), RTT: time.Millisecond}
	if _, err := s.ask(1, 1, nil, append(reports, foreign)...); err != nil {
		t.Fatal(err)
	}
	server.RefreshPaths(s.Server)
	if st := s.stats(); !st.Enabled || st.Pairs != 8 || st.Paths != 24 || st.Links != 24 || st.Reports != 24 || st.PassedOver != 1 {
		t.Errorf("%+v", st)
	}
	// Another host of the AS is told what is near, and which path to try.
	a, err := s.ask(1, 20, func(a *wire.Announce) { guided(wire.Nearest)(a); a.NumWant = 3 })
	if err != nil {
		t.Fatal(err)
	}
	var near []pathsel.IA
	for _, p := range a.Peers {
		near = append(near, p.Addr.IA)
	}
	if !slices.Equal(near, []pathsel.IA{as(1), as(2), as(3)}) { // the first is the one that has reported
		t.Errorf("near peers: %v", near)
	}
	if h, best := a.Hints[as(2)], pathsel.FingerprintOf(over(3, 1, 2)); len(h) != 3 || h[0].Path != best || h[0].Rate == 0 || len(a.Hints) != 2 {
		t.Errorf("%v, want %s first", a.Hints, best)
	}
	// From the other side the same links lead back, and it is as far.
	if a, err := s.ask(2, 21, func(a *wire.Announce) { guided(wire.Nearest)(a); a.NumWant = 2 }); err != nil || len(a.Hints[as(1)]) != 3 {
		t.Errorf("%+v, %v", a, err)
	}
	// Ordinary peers see nothing of this: neither on IP, nor those that ask for nothing.
	if a, err := s.ask(1, 22, nil); err != nil || a.Hints != nil || len(a.Peers) != 11 {
		t.Errorf("%+v, %v", a, err)
	}
	plain := announceOf(30)
	guided(wire.Nearest)(&plain)
	if got := server.Ask(s.Server, plain.Query()); bytes.Contains(got, []byte("path")) {
		t.Errorf("%q", got)
	}
}

func TestPathReportsAreBounded(t *testing.T) {
	s := newOnSCION(t, nil)
	good := wire.PathReport{Interfaces: over(1, 1, 2), RTT: time.Millisecond}
	for _, n := range []int{1, 2} {
		if _, err := s.ask(n, n, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		if _, err := s.ask(1, 1, nil, good); err != nil {
			t.Fatal(err)
		}
	}
	if st := s.stats(); st.Reports < 1 || st.Reports > 5 || st.Reports+st.PassedOver != 20 {
		t.Errorf("20 reports at once: %+v", st)
	}
	for _, body := range []string{"x", "d5:pathsld2:if3:abceee", "d5:paths" + strings.Repeat("l", wire.MaxReportBody)} {
		a := announceOf(3)
		_, err := wire.ParseAnswer(server.AskFrom(s.Server, addrOf(3, 3), a.Query(), []byte(body)))
		var f *wire.Failure
		if !errors.As(err, &f) || !strings.HasPrefix(f.Reason, wire.ReportsRefused) {
			t.Errorf("%.40q: %v", body, err)
		}
	}
	// Over IP nobody vouches for an AS.
	r := start(t, nil, 10)
	a := announceOf(1)
	res, err := http.Post(r.http+"/announce?"+a.Query(), "", bytes.NewReader(wire.AppendReports(nil, []wire.PathReport{good})))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed {
		t.Error(res.Status)
	}
}

// Switched off it neither learns nor tells, also while it runs.
func TestPathKnowledgeOff(t *testing.T) {
	s := newOnSCION(t, nil)
	report := wire.PathReport{Interfaces: over(1, 1, 2), RTT: time.Millisecond, Rate: 1}
	for _, n := range []int{1, 2} {
		if _, err := s.ask(n, n, nil, report); err != nil {
			t.Fatal(err)
		}
	}
	if a, err := s.ask(1, 1, guided(wire.Mixed), report); err != nil || s.stats().Paths != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	off := server.Default()
	off.Paths = false
	if err := s.Reload(off); err != nil {
		t.Fatal(err)
	}
	before := s.stats()
	a, err := s.ask(1, 3, guided(wire.Nearest), report)
	if err != nil || a.Hints != nil || a.Reports != 0 || len(a.Peers) != 2 {
		t.Errorf("%+v, %v", a, err)
	}
	if after := s.stats(); before.Enabled || after.Reports != before.Reports || after.PassedOver != before.PassedOver {
		t.Errorf("%+v, then %+v", before, after)
	}
}

// Peers of one AS cannot crowd out the others, however near it says that it is.
func TestNearestIsFair(t *testing.T) {
	s := newOnSCION(t, nil)
	for n := range 100 {
		if _, err := s.ask(66, 1000+n, nil); err != nil {
			t.Fatal(err)
		}
	}
	for n := 2; n < 12; n++ {
		if _, err := s.ask(n, n, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.ask(1, 1, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ask(66, 1000, nil, wire.PathReport{Interfaces: over(1, 66, 1), RTT: time.Microsecond}); err != nil {
		t.Fatal(err)
	}
	for _, order := range []wire.Order{wire.Nearest, wire.Mixed} {
		a, err := s.ask(1, 1, func(a *wire.Announce) { guided(order)(a); a.NumWant = 10 })
		if err != nil {
			t.Fatal(err)
		}
		crowd := 0
		for _, p := range a.Peers {
			if p.Addr.IA == as(66) {
				crowd++
			}
		}
		if len(a.Peers) != 10 || crowd > 8 {
			t.Errorf("%s: %d of %d peers are of one AS", order, crowd, len(a.Peers))
		}
	}
}
