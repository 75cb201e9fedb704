package sim

import (
	"context"
	"testing"
	"time"

	"braid/dht"
)

func run(t *testing.T, cfg Config) Result {
	t.Helper()
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	return r
}

func TestSearches(t *testing.T) {
	t.Parallel()
	r := run(t, Default(200))
	if r.Searches < 490 || r.Found < 1 || r.HopsP95 > 4 || r.P95 > 3 {
		t.Errorf("of 200 nodes: %+v", r)
	}
	if r.LoadMean > 200 {
		t.Errorf("an idle node sends and receives %.0f B/s, want at most 200", r.LoadMean)
	}
}

// A fifth of all nodes is replaced each minute, for four minutes after the announcements.
func TestChurn(t *testing.T) {
	t.Parallel()
	cfg := Default(400)
	cfg.Churn, cfg.Keeping = 0.2, 4*time.Minute
	if r := run(t, cfg); r.Searches < 490 || r.Found < 0.98 || r.P95 > 3 {
		t.Errorf("with churn: %+v", r)
	}
}

// The load is counted before the searches, so it does not depend on how long they last: nodes that
// come later do not count as idle ones.
func TestLoadWithChurn(t *testing.T) {
	t.Parallel()
	cfg := Default(200)
	cfg.Churn, cfg.Torrents, cfg.Searches = 0.2, 10, 20
	short := run(t, cfg)
	cfg.Searching *= 5
	if long := run(t, cfg); long.LoadMean != short.LoadMean || long.Table != short.Table {
		t.Errorf("a node has %.0f B/s with short searches, %.0f B/s with long ones", short.LoadMean, long.LoadMean)
	}
}

// Half of all nodes are in one AS, with IDs next to the torrents' info hashes. What the limits are
// worth shows without them.
func TestOneASHasHalf(t *testing.T) {
	t.Parallel()
	cfg := Default(300)
	cfg.Attackers, cfg.Torrents = 0.5, 10
	cfg.Limits.Bound = false // the attackers' IDs count as allowed
	if r := run(t, cfg); r.Searches < 400 || r.Found < 0.95 {
		t.Errorf("with limits: %+v", r)
	}
	cfg.Limits = dht.Limits{Branches: 1}
	if r := run(t, cfg); r.Found > 0.5 {
		t.Errorf("without limits the attack should succeed: %+v", r)
	}
}

// A percentile is the least value that so many of the values do not exceed (nearest rank).
func TestPercentiles(t *testing.T) {
	var searches []Search
	for i := range 20 {
		searches = append(searches, Search{Found: time.Duration(20-i) * time.Second, Hops: 1 + i, Queries: 1})
	}
	if r := Summarize(20, searches, []NodeLoad{{Bytes: 3}, {Bytes: 5}}); r.P50 != 10 || r.P95 != 19 || r.HopsP95 != 19 || r.LoadP99 != 5 {
		t.Errorf("%+v", r)
	}
	if r := Summarize(20, nil, nil); r != (Result{Nodes: 20}) {
		t.Errorf("of nothing: %+v", r)
	}
}

func TestSameSeedSameRun(t *testing.T) {
	t.Parallel()
	cfg := Default(50)
	cfg.Churn = 0.1
	if a, b := run(t, cfg), run(t, cfg); a != b {
		t.Errorf("two runs differ:\n%+v\n%+v", a, b)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Default(50)); err != context.Canceled {
		t.Errorf("error %v", err)
	}
}
