package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"braid/tracker/wire"
)

// MemoryResult is the memory that peers take.
type MemoryResult struct {
	Peers  int `json:"peers"`
	Swarms int `json:"swarms"`
	// BytesPerPeer is by how much the memory of the process has grown, by each peer, with the collector's reserve.
	BytesPerPeer float64 `json:"bytes_per_peer"`
}

// Memory fills a tracker with that many swarms of ten peers.
func (b Bench) Memory(ctx context.Context, swarms int) (MemoryResult, error) {
	p, err := b.start(ctx, "")
	if err != nil {
		return MemoryResult{}, err
	}
	defer p.stop()
	// The buffers that work takes are no peers'.
	if _, err := b.generate(ctx, Job{Transport: "udp", Addr: p.addrs["udp"], Swarms: 10, Time: 500 * time.Millisecond, Window: 64}); err != nil {
		return MemoryResult{}, err
	}
	before, err := resident(p.cmd.Process.Pid)
	if err != nil {
		return MemoryResult{}, err
	}
	if _, err := b.generate(ctx, Job{Transport: "udp", Addr: p.addrs["udp"], Swarms: swarms, Once: true, Window: 64}); err != nil {
		return MemoryResult{}, err
	}
	after, err := resident(p.cmd.Process.Pid)
	if err != nil {
		return MemoryResult{}, err
	}
	var s struct{ Totals struct{ Members, Swarms int } }
	if err := p.stats(ctx, &s); err != nil {
		return MemoryResult{}, err
	}
	if s.Totals.Members != swarms*perSwarm {
		return MemoryResult{}, fmt.Errorf("the tracker knows %d of %d peers", s.Totals.Members, swarms*perSwarm)
	}
	return MemoryResult{s.Totals.Members, s.Totals.Swarms, float64(after-before) / float64(s.Totals.Members)}, nil
}

// SlowResult is what clients wait for while others do not finish their requests.
type SlowResult struct {
	Slow      int     `json:"slow"`
	AloneP50  float64 `json:"alone_p50_ms"`
	AloneP99  float64 `json:"alone_p99_ms"`
	BesideP50 float64 `json:"beside_p50_ms"`
	BesideP99 float64 `json:"beside_p99_ms"`
	Ratio     float64 `json:"p99_ratio"`
}

// honest is how many honest clients there are beside the slow ones: few enough that nobody waits for a core that is taken.
const honest = 2

// settle is how long the slow ones have to come.
const settle = 2 * time.Second

// Slow measures honest clients over HTTP alone and beside that many half-open requests, in turns; the medians count. From
// five seconds on the tracker cuts the slow ones off, who come again.
func (b Bench) Slow(ctx context.Context, slow, rounds int, d time.Duration) (SlowResult, error) {
	p, err := b.start(ctx, "")
	if err != nil {
		return SlowResult{}, err
	}
	defer p.stop()
	var p50, p99 [2][]float64
	for range rounds {
		for i, halves := range []int{0, slow} {
			var beside errgroup.Group
			if halves > 0 {
				beside.Go(func() error {
					_, err := b.generate(ctx, Job{Transport: "half", Addr: p.addrs["http"], Swarms: 1, Time: d + 2*settle, Window: halves})
					return err
				})
				time.Sleep(settle)
			}
			r, err := b.generate(ctx, Job{Transport: "http", Addr: p.addrs["http"], Swarms: 1000, Time: d, Window: honest})
			if err = errors.Join(err, beside.Wait()); err != nil {
				return SlowResult{}, err
			}
			p50[i], p99[i] = append(p50[i], r.P50), append(p99[i], r.P99)
		}
	}
	out := SlowResult{Slow: slow, AloneP50: Median(p50[0]), AloneP99: Median(p99[0]), BesideP50: Median(p50[1]), BesideP99: Median(p99[1])}
	out.Ratio = out.BesideP99 / max(out.AloneP99, 0.001)
	return out, nil
}

// Median of the values.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// KillResult is what a tracker knows after it was killed.
type KillResult struct {
	Sync         float64 `json:"sync_s"` // how often the journal is written
	Margin       float64 `json:"margin_s"`
	Acknowledged int     `json:"acknowledged"` // peers that were answered more than the margin before the end
	Lost         int     `json:"lost"`         // of these
	Later        int     `json:"later"`        // acknowledged later
	LaterLost    int     `json:"later_lost"`
	Ready        float64 `json:"ready_s"` // from the new start until it answers
}

// Kill fills a tracker, lets peers come at that rate (per second) for a while, kills it without warning, starts it again, and asks it
// for every peer. None is to be lost that was answered more than the margin before.
func (b Bench) Kill(ctx context.Context, swarms int, rate float64, d, sync, margin time.Duration) (KillResult, error) {
	args := []string{"--data", filepath.Join(b.Dir, "data"), "--sync", sync.String()}
	p, err := b.start(ctx, "", args...)
	if err != nil {
		return KillResult{}, err
	}
	if _, err := b.generate(ctx, Job{Transport: "udp", Addr: p.addrs["udp"], Swarms: swarms, Once: true, Window: 64}); err != nil {
		p.stop()
		return KillResult{}, err
	}
	filled := time.Now()
	answered, err := pace(ctx, p.addrs["udp"], swarms*perSwarm, rate, d)
	killed := time.Now()
	if err = errors.Join(err, p.kill()); err != nil {
		return KillResult{}, err
	}
	began := time.Now()
	if p, err = b.start(ctx, "", args...); err != nil {
		return KillResult{}, err
	}
	defer p.stop()
	out := KillResult{Sync: sync.Seconds(), Margin: margin.Seconds(), Ready: time.Since(began).Seconds()}
	early, later := make([]int, swarms+len(answered)/perSwarm+1), make([]int, swarms+len(answered)/perSwarm+1)
	for n := range swarms * perSwarm {
		if killed.Sub(filled) > margin {
			early[n/perSwarm]++
		}
	}
	for n, at := range answered {
		if s := swarms + n/perSwarm; killed.Sub(at) > margin {
			early[s]++
		} else {
			later[s]++
		}
	}
	known, err := incomplete(p.addrs["udp"], len(early))
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

// pace announces new peers one after the other, at that rate, and says when each was answered.
func pace(ctx context.Context, addr string, first int, rate float64, d time.Duration) (answered []time.Time, err error) {
	c, id, err := dialUDP(addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	began := time.Now()
	b := make([]byte, wire.MaxUDP)
	for n := 0; time.Since(began) < d && ctx.Err() == nil; n++ {
		time.Sleep(time.Until(began.Add(time.Duration(float64(n) / rate * float64(time.Second)))))
		r := wire.UDPRequest{Action: wire.AnnounceUDP, Connection: id, Transaction: uint32(n), Announce: peer(first + n)}
		if _, err := exchange(c, &r, b); err != nil {
			return nil, err
		}
		answered = append(answered, time.Now())
	}
	return answered, ctx.Err()
}

func dialUDP(addr string) (*net.UDPConn, uint64, error) {
	c, err := net.Dial("udp", addr)
	if err != nil {
		return nil, 0, err
	}
	id, err := connect(c.(*net.UDPConn))
	if err != nil {
		c.Close()
	}
	return c.(*net.UDPConn), id, err
}

// exchange sends a request until it is answered.
func exchange(c *net.UDPConn, r *wire.UDPRequest, b []byte) (wire.UDPAnswer, error) {
	for range 10 {
		if _, err := c.Write(r.Append(nil)); err != nil {
			return wire.UDPAnswer{}, err
		}
		if err := c.SetReadDeadline(time.Now().Add(answerPatience)); err != nil {
			return wire.UDPAnswer{}, err
		}
		for {
			n, err := c.Read(b)
			if err != nil {
				break
			}
			if a, err := wire.ParseUDPAnswer(b[:n], false); err == nil && a.Transaction == r.Transaction {
				if a.Failure != nil {
					return a, a.Failure
				}
				return a, nil
			}
		}
	}
	return wire.UDPAnswer{}, errors.New("the tracker does not answer")
}

// incomplete is how many peers the tracker knows in each of the first swarms.
func incomplete(addr string, swarms int) ([]int, error) {
	c, id, err := dialUDP(addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	const atOnce = 60
	b := make([]byte, wire.MaxUDP)
	var out []int
	for len(out) < swarms {
		r := wire.UDPRequest{Action: wire.ScrapeUDP, Connection: id, Transaction: uint32(len(out))}
		for s := len(out); s < min(swarms, len(out)+atOnce); s++ {
			r.Hashes = append(r.Hashes, peer(s*perSwarm).InfoHash)
		}
		a, err := exchange(c, &r, b)
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
