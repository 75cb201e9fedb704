package linkemu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/stat"

	"braid/units"
)

// Load is the traffic that [Measure] sends over a link, in one direction.
type Load struct {
	// Rate in bits per second of UDP payload, evenly paced; 0 sends as fast as the link takes it.
	Rate int64
	// Size of each packet in bytes of UDP payload, from 16.
	Size int
	// Duration of the sending.
	Duration time.Duration
	// Plain sends and receives without segmentation offload, as a stock border router does.
	Plain bool
}

// Accuracy is the result of [Measure], which sees the link from outside, by the kernel's time
// stamps of the packets.
type Accuracy struct {
	Link     string  `json:"link"`
	Load     string  `json:"load"`
	Seconds  float64 `json:"seconds"`
	Sent     uint64  `json:"sent"`
	Received uint64  `json:"received"`
	Missed   uint64  `json:"missed"` // packets that never reached the link, because the machine was too slow
	Late     uint64  `json:"late"`
	MbitS    float64 `json:"mbit_s"`
	// RateError is the deviation from the set rate in percent; nil unless the load exceeded it.
	RateError *float64 `json:"rate_error_percent,omitempty"`
	// DelayError is how much later each packet arrived than it should have.
	DelayError *Percentiles `json:"delay_error_ms,omitempty"`
	// LossPercent is the measured loss, LossError its deviation in percent of the set loss, and
	// LossSigma the standard deviation of LossError that chance causes.
	LossPercent float64  `json:"loss_percent"`
	LossError   *float64 `json:"loss_error_percent,omitempty"`
	LossSigma   *float64 `json:"loss_sigma_percent,omitempty"`
	// CPU time is that of the link's own thread. On loopback, sending includes the kernel's work of
	// receiving.
	CPUSecondsPerGB float64 `json:"cpu_s_per_gb,omitempty"`
	MbitSPerCore    float64 `json:"mbit_s_per_core,omitempty"`
}

// Percentiles of a sample.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

// Case is a link and a load to measure it with.
type Case struct {
	Link Config
	Load Load
}

// Cases returns the measurements that describe the emulator: rate, delay and loss over the range
// that a testbed uses, and the limit of one core. Each takes d.
func Cases(d time.Duration) []Case {
	const packet = 1472 // fills an Ethernet frame
	var cases []Case
	for _, rate := range []int64{10e6, 20e6, 50e6, 100e6, 500e6} {
		link := Config{Rate: rate, Delay: 10 * time.Millisecond}
		cases = append(cases, Case{link, Load{rate * 6 / 5, packet, d, true}})
	}
	for _, rate := range []int64{20e6, 100e6} {
		for _, delay := range []time.Duration{1, 20, 100} {
			link := Config{Rate: rate, Delay: delay * time.Millisecond}
			cases = append(cases, Case{link, Load{rate / 2, packet, d, true}})
		}
	}
	for _, loss := range []float64{0.001, 0.01, 0.05} {
		cases = append(cases, Case{Config{Loss: loss}, Load{0, 100, d, false}})
	}
	for _, delay := range []time.Duration{0, 5} {
		for _, plain := range []bool{true, false} {
			cases = append(cases, Case{Config{Delay: delay * time.Millisecond}, Load{0, packet, d, plain}})
		}
	}
	return cases
}

// window bounds the bytes on the way of a load without a rate. It is smaller than a socket's buffer
// and larger than what a link of a few milliseconds needs at several Gbit/s.
const window = 3 << 19

// Measure sends real packets over a link on loopback and compares the arrivals with the link's
// configuration.
func Measure(ctx context.Context, cfg Config, load Load) (Accuracy, error) {
	a, err := measure(ctx, openWire, cfg, load)
	if err != nil {
		return Accuracy{}, fmt.Errorf("measure link: %w", err)
	}
	return a, nil
}

func measure(
	ctx context.Context, open func([2]Endpoint, clock) (wire, error), cfg Config, load Load,
) (Accuracy, error) {
	switch {
	case load.Size < stampSize || load.Size > 65000:
		return Accuracy{}, fmt.Errorf("packets of %d bytes: must be from %d to 65000",
			load.Size, stampSize)
	case load.Rate < 0 || load.Duration <= 0:
		return Accuracy{}, errors.New("the load needs a duration, and no negative rate")
	case cfg.Jitter > 0:
		return Accuracy{}, errors.New("jitter hides the error of the delay, leave it out")
	case cfg.Loss > 0 && cfg.Rate > 0 && (load.Rate == 0 || load.Rate > cfg.Rate):
		return Accuracy{}, errors.New("on an overloaded link, loss and a full queue look the same; " +
			"lower the load's rate")
	}
	l, ends, err := openBench(open, cfg)
	if err != nil {
		return Accuracy{}, err
	}
	var cpu time.Duration
	var running errgroup.Group
	running.Go(func() error {
		// Only the link's loop runs on this thread, so that its CPU time is known.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		before := threadCPU()
		defer func() { cpu = threadCPU() - before }()
		return l.Run(ctx)
	})
	r, err := drive(ctx, l, ends, load)
	if err := errors.Join(err, l.Close(), ends.close(), running.Wait()); err != nil {
		return Accuracy{}, err
	}
	counters, _ := l.Counters()
	return r.accuracy(cfg, load, counters, cpu), nil
}

// openBench makes a link, and a wire that takes the place of the routers at both ends.
func openBench(open func([2]Endpoint, clock) (wire, error), cfg Config) (*Link, wire, error) {
	for attempt := 0; ; attempt++ {
		a, err := freeAddrs("127.0.0.1", 4)
		if err != nil {
			return nil, nil, err
		}
		l, err := newLink(open, Endpoint{a[0], a[1]}, Endpoint{a[2], a[3]}, cfg)
		if err == nil {
			var ends wire
			if ends, err = open([2]Endpoint{{a[1], a[0]}, {a[3], a[2]}}, l.clock); err == nil {
				return l, ends, nil
			}
			l.Close()
		}
		// Another process may take an address before it is bound here.
		if !errors.Is(err, syscall.EADDRINUSE) || attempt == 10 {
			return nil, nil, err
		}
	}
}

// freeAddrs returns n different UDP addresses of a host that are free. The system gives their ports
// to no other program, so they stay free until they are used.
func freeAddrs(host string, n int) (addrs []netip.AddrPort, err error) {
	for range 100 * n {
		at := &net.UDPAddr{IP: net.ParseIP(host), Port: 10_000 + rand.IntN(20_000)}
		var conn *net.UDPConn
		if conn, err = net.ListenUDP("udp", at); err != nil {
			continue
		}
		defer conn.Close() // after all are chosen, so that they differ
		if addrs = append(addrs, conn.LocalAddr().(*net.UDPAddr).AddrPort()); len(addrs) == n {
			return addrs, nil
		}
	}
	return nil, err
}

// stampSize is the size of the packet number that each packet carries.
const stampSize = 8

// record holds when each packet was sent and received; 0 means that it was not received.
type record struct {
	sent, received []instant
}

// drive sends the load from end A and receives it at end B, until the fate of each packet is
// known.
func drive(ctx context.Context, l *Link, ends wire, load Load) (record, error) {
	if w, ok := ends.(interface{ plain() }); ok && load.Plain {
		w.plain()
	}
	var r record
	batch := make([][]byte, 0, 256)
	for range cap(batch) {
		batch = append(batch, make([]byte, load.Size))
	}
	came := uint64(0)
	take := func() (fresh bool, err error) {
		err = ends.receive(1, func(p []byte, at instant) {
			fresh = true
			came++
			if len(p) == load.Size {
				if n := binary.BigEndian.Uint64(p); n < uint64(len(r.received)) {
					r.received[n] = at
				}
			}
		})
		return fresh, err
	}
	start := l.clock.now()
	for ctx.Err() == nil {
		now := l.clock.now()
		if now-start > load.Duration {
			break
		}
		n, wake := r.quota(l, load, now, now-start)
		n = min(n, len(batch))
		for _, p := range batch[:n] {
			binary.BigEndian.PutUint64(p, uint64(len(r.sent)))
			r.sent, r.received = append(r.sent, now), append(r.received, 0)
		}
		for taken := 0; taken < n; {
			taken += ends.send(0, batch[taken:n])
		}
		if _, err := take(); err != nil {
			return r, err
		}
		ends.wait(wake, load.Rate == 0)
	}
	// The remaining packets are on the link or in a buffer, unless the machine lost them. The link
	// counts a packet before it sends it.
	for quiet := l.clock.now() + time.Second; l.clock.now() < quiet && ctx.Err() == nil; {
		c, _ := l.Counters()
		fresh, err := take()
		if err != nil {
			return r, err
		}
		if fresh || l.holds() {
			quiet = l.clock.now() + time.Second/5
		} else if c.seen() == uint64(len(r.sent)) && came >= c.Packets {
			break
		}
		ends.wait(l.clock.now()+time.Millisecond, false)
	}
	return r, ctx.Err()
}

// quota says how many packets to send now, and when to send the next ones.
func (r *record) quota(l *Link, load Load, now, elapsed instant) (n int, wake instant) {
	if load.Rate == 0 {
		c, _ := l.Counters()
		onTheWay := (uint64(len(r.sent)) - c.seen()) * uint64(load.Size)
		return max(0, int(window-int64(onTheWay))/load.Size), now + time.Millisecond
	}
	interval := float64(load.Size) * 8 / float64(load.Rate) * float64(time.Second)
	want := int(float64(elapsed)/interval) + 1
	return want - len(r.sent), now - elapsed + instant(float64(want)*interval)
}

func (c Counters) seen() uint64 { return c.Packets + c.DroppedQueue + c.DroppedLoss + c.DroppedDown }

func (l *Link) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines[0].packets.len() > 0
}

// accuracy compares the record with what the link should have done.
func (r *record) accuracy(cfg Config, load Load, c Counters, cpu time.Duration) Accuracy {
	a := Accuracy{Link: cfg.String(), Load: load.String(), Sent: uint64(len(r.sent)), Late: c.Late}
	a.Missed = a.Sent - min(a.Sent, c.seen())
	var first, last instant
	var late []float64
	var free float64 // when the line is free, in nanoseconds
	for i, at := range r.received {
		if at == 0 && cfg.Loss == 0 {
			continue // dropped before the line
		}
		free = max(free, float64(r.sent[i]))
		if cfg.Rate > 0 {
			free += float64(load.Size) * 8e9 / float64(cfg.Rate)
		}
		if at == 0 {
			continue // lost on the line
		}
		late = append(late, (float64(at)-free-float64(cfg.Delay))/1e6)
		if a.Received == 0 {
			first = at
		}
		a.Received++
		last = at
	}
	if a.Received < 2 {
		return a
	}
	bytes := float64(a.Received) * float64(load.Size)
	a.Seconds = (last - first).Seconds()
	a.MbitS = float64(a.Received-1) * float64(load.Size) * 8 / 1e6 / a.Seconds
	if cfg.Rate > 0 && load.Rate > cfg.Rate {
		a.RateError = new(100 * (a.MbitS*1e6/float64(cfg.Rate) - 1))
	}
	if load.Rate > 0 { // without a rate, packets also wait at the socket
		slices.Sort(late)
		at := func(q float64) float64 { return stat.Quantile(q, stat.Empirical, late, nil) }
		a.DelayError = &Percentiles{at(.5), at(.9), at(.99)}
	}
	a.LossPercent = 100 * float64(a.Sent-a.Received) / float64(a.Sent)
	if cfg.Loss > 0 {
		a.LossError = new(100 * (a.LossPercent/100/cfg.Loss - 1))
		a.LossSigma = new(100 * math.Sqrt((1-cfg.Loss)/(cfg.Loss*float64(a.Sent))))
	}
	if cpu > 0 {
		a.CPUSecondsPerGB = cpu.Seconds() / bytes * 1e9
		a.MbitSPerCore = 8000 / a.CPUSecondsPerGB
	}
	return a
}

// String is a short form of the load: "12mbit in 1472 B, plain".
func (l Load) String() string {
	rate, plain := "all it takes", ""
	if l.Rate > 0 {
		rate = units.FormatRate(l.Rate)
	}
	if l.Plain {
		plain = ", plain"
	}
	return fmt.Sprintf("%s in %d B%s", rate, l.Size, plain)
}
