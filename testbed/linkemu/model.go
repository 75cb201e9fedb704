package linkemu

import (
	"math/rand/v2"
	"time"
)

// instant is a point in time on the link's own monotonic clock.
type instant = time.Duration

// Counters of one direction since the link was made.
type Counters struct {
	Packets      uint64 `json:"packets"` // forwarded
	Bytes        uint64 `json:"bytes"`   // forwarded, UDP payload
	DroppedQueue uint64 `json:"dropped_queue"`
	DroppedLoss  uint64 `json:"dropped_loss"`
	DroppedDown  uint64 `json:"dropped_down"`
	// Late counts the packets that left more than 2 ms too late: the machine, and not the link, set
	// their delay.
	Late uint64 `json:"late"`
	// QueueBytes is the size of the packets in the queue now, without those in flight.
	QueueBytes int `json:"queue_bytes"`
}

// model is one direction of a link in simulated time. It decides which arriving packets are dropped
// and when the others leave. It owns no socket and reads no clock; the same seed and the same calls
// give the same decisions. Times never go back from call to call.
//
//	arrive -> [ queue, up to a limit ] -> line, at Rate -> [ in flight: Delay + Jitter ] -> due
//
// A policer has a token bucket instead of queue and line: a packet is in flight at once, or
// dropped.
//
// The times of a packet are fixed when it arrives. Only set changes them, for packets that still
// wait.
type model struct {
	cfg        Config
	queueBytes int
	queueTime  time.Duration
	rng        *rand.Rand

	packets fifo[packet] // in flight, then waiting, in the order of arrival and of departure
	waiting int          // how many of packets have not left the queue
	queued  int          // their bytes
	held    int          // bytes of memory that packets stand for

	free     instant // when the line has sent the last packet, rounded up
	credit   int64   // the work that the line could do in the rounding, in rateUnit
	last     instant // when the last packet is due
	Counters         // QueueBytes is filled in by snapshot
}

// packet is an accepted packet until it leaves.
type packet struct {
	sent   instant // when its last bit is on the line
	due    instant // when it arrives at the other end
	size   int
	lost   bool
	data   []byte       // for the loop; nil if lost
	arrive func([]byte) // of a carried packet; nil for a packet to the router
}

// packetCost counts against maxHeld for each packet, beside its bytes, so that empty datagrams
// cannot fill the memory.
const packetCost = 64

// rateUnit is the work of sending a bit: a line of rate r does work of r in a nanosecond. In these
// units the rate is exact in integers, whatever the sizes.
const rateUnit = int64(time.Second)

func newModel(cfg Config, seed1, seed2 uint64) *model {
	m := &model{rng: rand.New(rand.NewPCG(seed1, seed2))}
	m.set(0, cfg)
	return m
}

// arrive decides about a packet of size bytes that arrives now. For an accepted packet that will
// not be lost it returns the packet's place on the link, where the caller keeps the data; otherwise
// nil.
func (m *model) arrive(now instant, size int) *packet {
	m.advance(now)
	if m.cfg.Down {
		m.DroppedDown++
		return nil
	}
	if m.cfg.MTU > 0 && size > m.cfg.MTU {
		m.DroppedLoss++
		return nil
	}
	// A packet that finds the queue empty is always accepted, since it does not wait.
	full := m.waiting > 0 && (m.queueBytes > 0 && m.queued+size > m.queueBytes ||
		m.queueTime > 0 && m.free-now > m.queueTime)
	if m.cfg.Police {
		full = m.exceeds(now, size)
	}
	if full || m.held+size+packetCost > maxHeld {
		m.DroppedQueue++
		return nil
	}
	p := packet{size: size, lost: m.cfg.Loss > 0 && m.rng.Float64() < m.cfg.Loss}
	m.schedule(&p, now, int64(size)*8*rateUnit)
	m.held += size + packetCost
	m.packets.push(p)
	m.waiting++
	m.queued += size
	m.advance(now)
	if p.lost {
		m.DroppedLoss++
		return nil
	}
	return m.packets.at(m.packets.len() - 1)
}

// exceeds tells whether a policer has too few tokens for a packet. Its bucket is full again at
// free.
func (m *model) exceeds(now instant, size int) bool {
	missing := max(0, m.free-now)
	return m.queueBytes > 0 && missing.Seconds()*float64(m.cfg.Rate)/8+float64(size) > float64(m.queueBytes) ||
		m.queueTime > 0 && missing > m.queueTime
}

// schedule puts a packet on the line behind the last one; work is how much of it is still to be
// sent.
func (m *model) schedule(p *packet, now instant, work int64) {
	if m.free < now {
		m.free, m.credit = now, 0
	}
	if rate := m.cfg.Rate; rate > 0 {
		work = max(0, work-m.credit)
		took := (work + rate - 1) / rate
		m.free += instant(took)
		m.credit = took*rate - work
	}
	p.sent = m.free
	if m.cfg.Police {
		p.sent = now
	}
	p.due = p.sent + m.cfg.Delay
	if m.cfg.Jitter > 0 {
		p.due += time.Duration(m.rng.Int64N(int64(m.cfg.Jitter)))
	}
	p.due = max(p.due, m.last)
	m.last = p.due
}

// advance moves packets whose last bit is on the line by now from the queue into flight.
func (m *model) advance(now instant) {
	for m.waiting > 0 {
		p := m.packets.at(m.packets.len() - m.waiting)
		if p.sent > now {
			return
		}
		m.waiting--
		m.queued -= p.size
	}
}

// next returns when the next packet is due; ok is false if the link is empty.
func (m *model) next() (due instant, ok bool) {
	if m.packets.len() == 0 {
		return 0, false
	}
	return m.packets.at(0).due, true
}

// depart removes the first packet, which leaves the link now.
func (m *model) depart(now, grace instant) packet {
	m.advance(now)
	p := m.packets.pop()
	m.held -= p.size + packetCost
	if p.lost {
		return p
	}
	m.Packets++
	m.Bytes += uint64(p.size)
	if now-p.due > grace {
		m.Late++
	}
	return p
}

// set changes the link now. Packets in the queue get the new rate and delay, even if the queue is
// longer than its new bound. Packets in flight arrive as planned, and nothing overtakes them.
func (m *model) set(now instant, cfg Config) {
	m.advance(now)
	old := m.cfg.Rate
	m.cfg = cfg
	m.queueBytes, m.queueTime = cfg.QueueLimit()
	if cfg.Down {
		m.cut()
	}
	first := m.packets.len() - m.waiting
	m.free, m.credit, m.last = now, 0, now
	if first > 0 {
		m.last = m.packets.at(first - 1).due
	}
	for i := first; i < m.packets.len(); i++ {
		p := m.packets.at(i)
		work := int64(p.size) * 8 * rateUnit
		if i == first { // a part of it is on the line already
			work = min(work, int64(p.sent-now)*old)
		}
		m.schedule(p, now, work)
	}
	m.advance(now)
}

// cut drops all packets on the link.
func (m *model) cut() {
	for m.packets.len() > 0 {
		if p := m.packets.pop(); !p.lost {
			m.DroppedDown++
		}
	}
	m.waiting, m.queued, m.held = 0, 0, 0
}

// snapshot returns the counters as they are now.
func (m *model) snapshot(now instant) Counters {
	m.advance(now)
	c := m.Counters
	c.QueueBytes = m.queued
	return c
}
