// Package trackerbench puts trackers under load and measures what they can take.
//
//	Job      one load on one tracker: the generator                 load.go, udp.go, http.go
//	Bench    trackers and generators in processes of their own      bench.go
//	Memory, Slow, Kill   trials that measure no rate                trials.go
//
// Generator and tracker run on a core each, so that they do not take each other's time. A generator
// keeps a fixed number of requests under way; a response time is from sending a request to its
// answer.
package trackerbench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"braid/tracker/wire"
	"braid/units/lists"
)

// Job is a load on one tracker.
type Job struct {
	// Transport is http (connections are kept), http-close, udp (few clients, each with many
	// announces under way), udp-apart (a client for each announce under way), scion, or half:
	// requests over HTTP that are begun and never finished. A client of half that the tracker cuts
	// off connects again within a second.
	Transport string `json:"transport"`
	Addr      string `json:"addr"` // host:port; on SCION an announce URL
	// ConfigDir has the topology.json of the AS for SCION.
	ConfigDir string `json:"config_dir,omitempty"`
	// Swarms of ten peers each. Announces are of random peers among them, or of each peer once.
	Swarms int           `json:"swarms"`
	Once   bool          `json:"once,omitempty"`
	Time   time.Duration `json:"time,omitempty"` // after which to end, if not once
	Window int           `json:"window"`         // requests under way
}

// Result of a Job.
type Result struct {
	Seconds   float64 `json:"seconds"`
	Announces int     `json:"announces"` // answered
	Lost      int     `json:"lost"`      // UDP: not answered in time, so sent again; half: requests begun
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
}

// perSwarm is the size of a swarm: below the tracker's limit for one host.
const perSwarm = 10

// peer returns the announce of peer n.
func peer(n int) wire.Announce {
	a := wire.Announce{
		Port: uint16(1 + n%60000), Left: 1, NumWant: wire.NoCount, Compact: true,
		Key: fmt.Sprintf("%08X", uint32(n)),
	}
	binary.BigEndian.PutUint32(a.InfoHash[:], uint32(n/perSwarm)*2654435761) // spread, as hashes are
	binary.BigEndian.PutUint32(a.InfoHash[4:], uint32(n/perSwarm))
	copy(a.PeerID[:], "-BENCH-")
	binary.BigEndian.PutUint32(a.PeerID[8:], uint32(n))
	return a
}

// chooser chooses the peers to announce, until the job is done.
type chooser struct {
	Job
	random     *rand.Rand
	next, step int // of a job that announces each peer once
	until      time.Time
}

func (j Job) chooser(worker, workers int) *chooser {
	random := rand.New(rand.NewPCG(1, uint64(worker)))
	return &chooser{Job: j, random: random, next: worker, step: workers, until: time.Now().Add(j.Time)}
}

func (c *chooser) peer() (n int, ok bool) {
	all := c.Swarms * perSwarm
	if c.Once {
		n = c.next
		c.next += c.step
		return n, n < all
	}
	return c.random.IntN(all), time.Now().Before(c.until)
}

// tally holds the response times of the answers in microseconds; four bytes each.
type tally struct {
	latencies []uint32
	lost      int
}

func (t *tally) answered(d time.Duration) {
	t.latencies = append(t.latencies, uint32(min(max(d.Microseconds(), 0), math.MaxUint32)))
}

func (t *tally) add(o *tally) {
	t.latencies = append(t.latencies, o.latencies...)
	t.lost += o.lost
}

// within returns the time in ms within which that part of the answers arrived.
func (t *tally) within(part float64) float64 {
	if len(t.latencies) == 0 {
		return 0
	}
	ms := lists.Map(t.latencies, func(us uint32) float64 { return float64(us) / 1000 })
	slices.Sort(ms)
	return stat.Quantile(part, stat.Empirical, ms, nil)
}

// Run runs the load.
func (j Job) Run(ctx context.Context) (Result, error) {
	run := map[string]func(context.Context, Job) (*tally, error){
		"http": overHTTP, "http-close": overHTTP, "udp": overUDP, "udp-apart": overUDP,
		"scion": overSCION, "half": half,
	}[j.Transport]
	if run == nil {
		return Result{}, fmt.Errorf("transport %q: want http, http-close, udp, udp-apart, scion or half", j.Transport)
	}
	began := time.Now()
	t, err := run(ctx, j)
	if err != nil {
		return Result{}, fmt.Errorf("load over %s on %s: %w", j.Transport, j.Addr, err)
	}
	return Result{
		Seconds: time.Since(began).Seconds(), Announces: len(t.latencies), Lost: t.lost,
		P50: t.within(0.5), P99: t.within(0.99),
	}, nil
}

// Generate is a generator. It runs in a process of its own; see [bench.Work].
func Generate(ctx context.Context, j Job, report func(any) error) error {
	r, err := j.Run(ctx)
	if err != nil {
		return err
	}
	return report(r)
}
