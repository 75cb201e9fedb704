package announce

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"braid/pathsel"
	"braid/tracker/wire"
	"braid/units/await"
)

// A real tracker on SCION gets the reports with the end of a download. One on IP gets none, even if
// it asks for them.
func TestReports(t *testing.T) {
	h := oneAS(t)
	tr := track(t, h)
	var sent atomic.Int64
	ip := listening(t, "127.0.0.1", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if r.Method != http.MethodGet {
			n++
		}
		sent.Add(n)
		answer := wire.Answer{Interval: time.Hour, Reports: wire.MaxReports}
		_, _ = w.Write(answer.Append(nil, &wire.Announce{Compact: true}))
	})
	asked := make(chan struct{}, 10)
	var answered atomic.Int64 // by the tracker on IP
	p := join(t, 1, func(c *Config) {
		c.Asked = func(a Asked) {
			if a.Answered && strings.HasPrefix(a.URL.String(), ip.URL) {
				answered.Add(1)
			}
		}
		c.SCION, c.Peers, c.Hinted = openHTTP(t, h), wire.Mixed, func(pathsel.Hints) {}
		c.Reports = func() []wire.PathReport {
			asked <- struct{}{}
			ia := h.IA()
			return []wire.PathReport{{Interfaces: []pathsel.Interface{{IA: ia, ID: 1}, {IA: ia + 1, ID: 1}}, RTT: time.Millisecond}}
		}
	}, tr.scion, tr.http, ip.URL+"/announce")
	tr.counts(t, 0, 1, 0)
	await.True(t, "the answers of all trackers", func() bool {
		n, err := tr.store.Totals(t.Context())
		return err == nil && n.SCION == 1 && n.IPv4 == 1 && answered.Load() == 1
	})
	p.Completed()
	<-asked
	passed := func() uint64 {
		s, err := tr.server.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Paths.PassedOver // nobody is in that AS
	}
	// Both trackers have answered, so the goodbye does not have to say again that the download is
	// complete.
	await.True(t, "the reports", func() bool { return passed() > 0 })
	await.True(t, "the second answer on IP", func() bool { return answered.Load() >= 2 })
	p.Close()
	if n := passed(); n > 2 { // the second if the goodbye overtook the answer
		t.Errorf("%d reports have arrived", n)
	}
	if n := ip.requests.Load(); n != 3 || sent.Load() != 0 {
		t.Errorf("%d requests to the tracker on IP, want 3; reports of %d bytes, want none", n, sent.Load())
	}
}

func TestReporting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		some := make([]wire.PathReport, 5)
		a := &Announcer{cfg: Config{Reports: func() []wire.PathReport { return some }}}
		var r reporting
		began := time.Now()
		next := began.Add(time.Hour)
		expect := func(what string, got, want int) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %d reports, want %d", what, got, want)
			}
		}
		expect("before the first answer", len(r.due(a, false)), 0)
		r.sent(nil, wire.Answer{Reports: 3}, nil)
		if got := r.first(a, began, next, wire.Answer{}); !got.Equal(began.Add(reportEvery)) {
			t.Errorf("the first report after %v", got.Sub(began))
		}
		if got := r.first(a, began, next, wire.Answer{}); !got.Equal(next) {
			t.Errorf("planned twice: after %v", got.Sub(began))
		}
		expect("as many as the tracker takes", len(r.due(a, false)), 3)
		r.sent(some, wire.Answer{Reports: 3}, nil)
		expect("too soon", len(r.due(a, false)), 0)
		expect("the end", len(r.due(a, true)), 3)
		time.Sleep(reportEvery)
		expect("a minute later", len(r.due(a, false)), 3)
		r.sent(some, wire.Answer{}, errors.New("lost"))
		expect("after one that was lost", len(r.due(a, false)), 3)
		r.sent(some, wire.Answer{}, &wire.Failure{Reason: "too many requests"})
		expect("after a refusal for another reason", len(r.due(a, false)), 3)
		r.sent(some, wire.Answer{}, &wire.Failure{Reason: wire.ReportsRefused + ": no"})
		expect("after a refusal because of them", len(r.due(a, false)), 0)
		if got := (&reporting{most: 3}).first(&Announcer{}, began, next, wire.Answer{}); !got.Equal(next) {
			t.Error("an announce is planned for nothing")
		}
	})
}
