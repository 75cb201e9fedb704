package linkemu

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Endpoint is one end of a link: where the emulator listens for that end's router, and where the
// router is.
type Endpoint struct {
	Local  netip.AddrPort // what the emulator binds: the `remote` of the router's interface
	Router netip.AddrPort // the router's own underlay address; packets from elsewhere are ignored
}

// quantum is how long a busy link gathers packets before it sends them together. Compared with
// sending each packet when it is due, 1 ms halves the CPU time of a whole transfer, because
// everything behind the link handles batches too; it adds 0.5 ms to the delay on average. A packet
// that comes alone leaves on time, and a link that only passes packets on does not wait at all.
const quantum = time.Millisecond

// lateAfter is how late a packet must leave to count as late.
const lateAfter = time.Millisecond + quantum

// Settings are the constants of the emulator, for the record of an experiment.
type Settings struct {
	// Quantum is how long a busy link gathers packets. A packet that leaves more than LateAfter too
	// late counts as late.
	Quantum   time.Duration `json:"quantum_ns"`
	LateAfter time.Duration `json:"late_after_ns"`
	// MaxHeld bounds the bytes in the queue and on the way, of each direction.
	MaxHeld int `json:"max_held_bytes"`
}

// CurrentSettings returns the settings of this build.
func CurrentSettings() Settings { return Settings{quantum, lateAfter, maxHeld} }

// sendBatch is how many packets the link gives to the system at a time.
const sendBatch = 1024

// Link connects two routers. Its methods may be called at any time from any goroutine.
type Link struct {
	ends  [2]Endpoint
	wire  wire
	clock clock

	mu     sync.Mutex
	lines  [2]*line // by the end that sends
	state  state
	loop   sync.WaitGroup // of Run
	asleep bool           // the loop waits until a packet is due or comes in

	arrivals []packet // carried packets that have arrived; only the loop uses it
}

type state int

const (
	ready state = iota
	running
	ended // Run is over
	closed
)

// line is one direction: what it does, and the bytes that are on it.
type line struct {
	*model
	store store
	out   [][]byte // packets that have left the line and wait for the socket
	// take receives a packet for the line. It is made once, since every packet goes through it.
	take     func(p []byte, at instant)
	received bool // set by take and admit
	// answer makes the reply to a packet that exceeds the MTU; the reply takes the line back.
	answer  func(p []byte, mtu int) []byte
	back    *line
	carried []carried // packets of Carry, in the order of time
}

func newLine(cfg Config, seed1, seed2 uint64) *line {
	l := &line{model: newModel(cfg, seed1, seed2), out: make([][]byte, 0, sendBatch)}
	l.take = func(p []byte, at instant) {
		l.received = true
		l.admit(at)
		if l.back != nil && l.cfg.TooBig && l.cfg.MTU > 0 && len(p) > l.cfg.MTU && !l.cfg.Down {
			if answer := l.answer(p, l.cfg.MTU); answer != nil {
				l.back.put(answer, at)
			}
		}
		l.put(p, at)
	}
	return l
}

// put puts a packet onto the line.
func (l *line) put(p []byte, at instant) {
	if place := l.arrive(at, len(p)); place != nil {
		place.data = l.store.keep(p)
	}
}

// New binds both ends at once and returns a link, which passes packets once Run is called. cfg
// applies to each direction. The caller closes the link.
func New(a, b Endpoint, cfg Config) (*Link, error) { return newLink(openWire, a, b, cfg) }

func newLink(open func([2]Endpoint, clock) (wire, error), a, b Endpoint, cfg Config) (*Link, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	l := &Link{ends: [2]Endpoint{a, b}, clock: clock{time.Now()}}
	for s := range l.lines {
		// The addresses are the seed: directions and links differ, but the same testbed has the
		// same losses each time.
		l.lines[s] = newLine(cfg, seed(l.ends[s].Local), seed(l.ends[1-s].Local))
	}
	var err error
	if l.wire, err = open(l.ends, l.clock); err != nil {
		return nil, err
	}
	return l, nil
}

func seed(a netip.AddrPort) uint64 {
	h := fnv.New64a()
	h.Write([]byte(a.String()))
	return h.Sum64()
}

// Answer sets the replies to packets that exceed the MTU, for links with [Config.TooBig]: ab makes
// the reply to a, ba the one to b; nil is no reply. The reply takes the link back. Answer is called
// before Run.
func (l *Link) Answer(ab, ba func(packet []byte, mtu int) []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines[0].answer, l.lines[0].back = ab, l.lines[1]
	l.lines[1].answer, l.lines[1].back = ba, l.lines[0]
}

// Run passes packets until ctx ends or Close is called, and then returns nil. It runs only once. An
// error means that a socket is broken.
func (l *Link) Run(ctx context.Context) error {
	l.mu.Lock()
	switch l.state {
	case closed:
		l.mu.Unlock()
		return nil
	case ready:
	default:
		l.mu.Unlock()
		return errors.New("link emulator: Run was called before")
	}
	l.state = running
	l.loop.Add(1)
	l.mu.Unlock()
	defer l.loop.Done()

	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.state == running {
			l.state = ended
			l.wire.wake()
		}
	})
	defer stop()
	return l.pass()
}

// pass waits until a packet comes in or is due, and then handles all such packets. On a busy link
// it does so once in a quantum.
func (l *Link) pass() error {
	for {
		busy, err := l.serve()
		if err != nil {
			return err
		}
		l.deliverCarried()
		next, gather, on := l.plan(busy)
		if !on {
			return nil
		}
		l.wire.wait(next, !gather)
	}
}

// plan says until when to wait, and whether to gather packets that come in meanwhile. on is false
// once Run is over.
func (l *Link) plan(busy bool) (until instant, gather, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != running {
		return 0, false, false
	}
	l.asleep = false
	if busy || len(l.lines[A].carried)+len(l.lines[B].carried) > 0 {
		return l.clock.now() + l.quantum(), true, true
	}
	until = -1
	for s := range l.lines {
		if due, ok := l.lines[s].next(); ok && (until < 0 || due < until) {
			until = due
		}
	}
	l.asleep = true
	return until, false, true
}

// quantum returns how long the link gathers packets: 0 if it only passes them on.
func (l *Link) quantum() time.Duration {
	for s := range l.lines {
		if c := &l.lines[s].cfg; c.Rate > 0 || c.Delay > 0 || c.Jitter > 0 {
			return quantum
		}
	}
	return 0
}

// serve receives all packets that came in and sends those that are due. busy tells whether there
// were any.
func (l *Link) serve() (busy bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asleep = false
	for s := range End(len(l.lines)) {
		line := l.lines[s]
		line.received = false
		if err := l.wire.receive(s, line.take); err != nil && l.state == running {
			return false, fmt.Errorf("receive at link end %s: %w", l.ends[s].Local, err)
		}
		line.admit(l.clock.now())
		busy = busy || line.received
	}
	for s := range End(len(l.lines)) {
		busy = l.deliver(s) || busy
	}
	return busy, nil
}

// deliver sends the packets that are due in the direction from s.
func (l *Link) deliver(s End) (sent bool) {
	line := l.lines[s]
	for {
		now := l.clock.now()
		for len(line.out) < sendBatch && line.packets.len() > 0 && line.packets.at(0).due <= now {
			p := line.depart(now, lateAfter)
			sent = true
			switch {
			case p.lost:
			case p.arrive != nil:
				l.arrivals = append(l.arrivals, p)
			default:
				line.out = append(line.out, p.data)
			}
		}
		if len(line.out) == 0 {
			return sent
		}
		taken := l.wire.send(s.other(), line.out)
		for _, p := range line.out[:taken] {
			line.store.release(p)
		}
		line.out = slices.Delete(line.out, 0, taken)
		if len(line.out) > 0 {
			return true // the rest goes out a quantum later
		}
	}
}

// Set changes both directions at once; ab is the direction from a to b. Packets in flight arrive as
// planned, those in the queue get the new rate and delay. A link that goes down loses both.
func (l *Link) Set(ab, ba Config) error {
	for _, c := range []Config{ab, ba} {
		if err := c.Validate(); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.now()
	for s, c := range []Config{ab, ba} {
		l.lines[s].set(now, c)
		if c.Down {
			l.lines[s].out = l.lines[s].out[:0]
		}
	}
	if l.state == running {
		l.wire.wake()
	}
	return nil
}

// Config returns the configuration of each direction.
func (l *Link) Config() (ab, ba Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines[0].cfg, l.lines[1].cfg
}

// Counters returns the counters of each direction.
func (l *Link) Counters() (ab, ba Counters) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.now()
	return l.lines[0].snapshot(now), l.lines[1].snapshot(now)
}

// Close ends Run, waits for it, and closes both sockets. Packets on the link are lost. Closing
// twice is no error.
func (l *Link) Close() error {
	l.mu.Lock()
	if l.state == closed {
		l.mu.Unlock()
		return nil
	}
	if l.state == running {
		l.wire.wake()
	}
	l.state = closed
	l.mu.Unlock()
	l.loop.Wait()
	if err := l.wire.close(); err != nil {
		return fmt.Errorf("close link %s to %s: %w", l.ends[0].Local, l.ends[1].Local, err)
	}
	return nil
}
