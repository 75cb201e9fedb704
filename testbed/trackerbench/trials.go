package trackerbench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"braid/testbed/bench"
	"braid/tracker/announce"
	"braid/tracker/wire"
)

// MemoryResult is the memory that peers take.
type MemoryResult struct {
	Peers  int `json:"peers"`
	Swarms int `json:"swarms"`
	// BytesPerPeer is the growth of the process, including the reserve of the garbage collector,
	// for each peer.
	BytesPerPeer float64 `json:"bytes_per_peer"`
}

// Memory fills a tracker with that many swarms of ten peers.
func (b Bench) Memory(ctx context.Context, swarms int) (r MemoryResult, err error) {
	t, err := b.start(ctx, "")
	if err != nil {
		return r, err
	}
	defer t.Stop()
	// A little work first, so that the tracker's buffers do not count as peers.
	warm := Job{Transport: "udp", Addr: t.addrs["udp"], Swarms: 10, Time: 500 * time.Millisecond, Window: 64}
	if _, err := b.generate(ctx, warm); err != nil {
		return r, err
	}
	before := t.Usage().RSS
	if err := b.fill(ctx, t, swarms); err != nil {
		return r, err
	}
	grown := t.Usage().RSS - before
	counts, err := incomplete(ctx, t.addrs["udp"], swarms)
	if err != nil {
		return r, err
	}
	known := 0
	for _, n := range counts {
		known += n
	}
	if known != swarms*perSwarm {
		return r, fmt.Errorf("the tracker knows %d of %d peers", known, swarms*perSwarm)
	}
	return MemoryResult{known, swarms, float64(grown) / float64(known)}, nil
}

// SlowResult is how long clients wait while others do not finish their requests.
type SlowResult struct {
	Slow      int     `json:"slow"`
	AloneP50  float64 `json:"alone_p50_ms"`
	AloneP99  float64 `json:"alone_p99_ms"`
	BesideP50 float64 `json:"beside_p50_ms"`
	BesideP99 float64 `json:"beside_p99_ms"`
	Ratio     float64 `json:"p99_ratio"`
}

const (
	// honest is the number of honest clients beside the slow ones. With more, they would wait for a
	// core, not for the tracker.
	honest = 2
	// arrival is how long the slow clients have to connect before the measurement.
	arrival = 2 * time.Second
)

// Slow measures honest clients over HTTP, in turns alone and beside that many half-open requests;
// the medians count. The tracker cuts slow clients off after five seconds; they connect again.
func (b Bench) Slow(ctx context.Context, slow, rounds int, d time.Duration) (SlowResult, error) {
	t, err := b.start(ctx, "")
	if err != nil {
		return SlowResult{}, err
	}
	defer t.Stop()
	var alone, beside []Result
	for range rounds {
		for _, halves := range []int{0, slow} {
			var others errgroup.Group
			results := &alone
			if halves > 0 {
				results = &beside
				others.Go(func() error {
					j := Job{Transport: "half", Addr: t.addrs["http"], Swarms: 1, Time: d + 2*arrival, Window: halves}
					_, err := b.generate(ctx, j)
					return err
				})
				time.Sleep(arrival)
			}
			j := Job{Transport: "http", Addr: t.addrs["http"], Swarms: 1000, Time: d, Window: honest}
			r, err := b.generate(ctx, j)
			if err = errors.Join(err, others.Wait()); err != nil {
				return SlowResult{}, err
			}
			*results = append(*results, r)
		}
	}
	p50, p99 := func(r Result) float64 { return r.P50 }, func(r Result) float64 { return r.P99 }
	out := SlowResult{
		Slow: slow, AloneP50: bench.Median(alone, p50), AloneP99: bench.Median(alone, p99),
		BesideP50: bench.Median(beside, p50), BesideP99: bench.Median(beside, p99),
	}
	out.Ratio = out.BesideP99 / max(out.AloneP99, 0.001)
	return out, nil
}

// KillResult counts the peers that a tracker has forgotten because it was killed.
type KillResult struct {
	Sync         float64 `json:"sync_s"` // how often the journal is written
	Margin       float64 `json:"margin_s"`
	Acknowledged int     `json:"acknowledged"` // peers that were answered earlier than the margin before the kill
	Lost         int     `json:"lost"`         // of these
	Later        int     `json:"later"`        // acknowledged later
	LaterLost    int     `json:"later_lost"`
	Ready        float64 `json:"ready_s"` // from the new start until it answers
}

// Kill fills a tracker and lets peers arrive for a time d at a rate per second. It kills the
// tracker without warning, starts it again, and asks it for every peer. The tracker must know each
// that it answered before the margin.
func (b Bench) Kill(ctx context.Context, k KillTrial) (KillResult, error) {
	args := []string{"--data", filepath.Join(b.Dir, "data"), "--sync", k.Sync.String()}
	t, err := b.start(ctx, "", args...)
	if err != nil {
		return KillResult{}, err
	}
	defer func() { t.Stop() }() // the one that runs then
	if err := b.fill(ctx, t, k.Swarms); err != nil {
		return KillResult{}, err
	}
	filled := time.Now()
	answered, err := pace(ctx, t.addrs["udp"], k.Swarms*perSwarm, k.Rate, k.For)
	killed := time.Now()
	t.Stop()
	if err != nil {
		return KillResult{}, err
	}
	began := time.Now()
	again, err := b.start(ctx, "", args...)
	if err != nil {
		return KillResult{}, err
	}
	t = again
	out := KillResult{Sync: k.Sync.Seconds(), Margin: k.Margin.Seconds(), Ready: time.Since(began).Seconds()}
	early, later := make([]int, k.Swarms+len(answered)/perSwarm+1), make([]int, k.Swarms+len(answered)/perSwarm+1)
	if killed.Sub(filled) > k.Margin {
		for s := range k.Swarms {
			early[s] = perSwarm
		}
	}
	for n, at := range answered {
		if s := k.Swarms + n/perSwarm; killed.Sub(at) > k.Margin {
			early[s]++
		} else {
			later[s]++
		}
	}
	known, err := incomplete(ctx, t.addrs["udp"], len(early))
	if err != nil {
		return KillResult{}, err
	}
	for s := range early {
		out.Acknowledged += early[s]
		out.Later += later[s]
		out.Lost += max(0, early[s]-known[s])
		out.LaterLost += max(0, later[s]-max(0, known[s]-early[s]))
	}
	return out, nil
}

// KillTrial says how a tracker is killed.
type KillTrial struct {
	Swarms int           // of ten peers, which are there before
	Rate   float64       // of further peers, per second
	For    time.Duration // until the kill
	Sync   time.Duration // between two writes of the journal
	Margin time.Duration // before the kill: later answers do not count
}

// pace announces new peers one after another at a rate per second, and returns when each was
// answered.
func pace(
	ctx context.Context, addr string, first int, rate float64, d time.Duration,
) (answered []time.Time, err error) {
	c, id, err := dialUDP(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	began := time.Now()
	for n := 0; time.Since(began) < d && ctx.Err() == nil; n++ {
		time.Sleep(time.Until(began.Add(time.Duration(float64(n) / rate * float64(time.Second)))))
		r := wire.UDPRequest{Action: wire.AnnounceUDP, Connection: id, Announce: peer(first + n)}
		if _, err := announce.AskUDP(ctx, c, &r); err != nil {
			return nil, err
		}
		answered = append(answered, time.Now())
	}
	return answered, ctx.Err()
}

// dialUDP returns a socket, which is closed when ctx ends, and the ID of its connection (BEP 15).
func dialUDP(ctx context.Context, addr string) (*net.UDPConn, uint64, error) {
	c, err := net.Dial("udp", addr)
	if err != nil {
		return nil, 0, err
	}
	context.AfterFunc(ctx, func() { c.Close() })
	a, err := announce.AskUDP(ctx, c, &wire.UDPRequest{Action: wire.Connect})
	if err != nil {
		c.Close()
	}
	return c.(*net.UDPConn), a.Connection, err
}

// incomplete returns how many peers the tracker knows in each of the first swarms.
func incomplete(ctx context.Context, addr string, swarms int) ([]int, error) {
	c, id, err := dialUDP(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	const atOnce = 60
	var out []int
	for len(out) < swarms {
		r := wire.UDPRequest{Action: wire.ScrapeUDP, Connection: id}
		for s := len(out); s < min(swarms, len(out)+atOnce); s++ {
			r.Hashes = append(r.Hashes, peer(s*perSwarm).InfoHash)
		}
		a, err := announce.AskUDP(ctx, c, &r)
		if err != nil {
			return nil, fmt.Errorf("scrape: %w", err)
		}
		if len(a.Counts) != len(r.Hashes) {
			return nil, fmt.Errorf("scrape: %d counts of %d", len(a.Counts), len(r.Hashes))
		}
		for _, n := range a.Counts {
			out = append(out, int(n.Incomplete))
		}
	}
	return out, nil
}
