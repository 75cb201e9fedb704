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
	// Late counts the packets that left more than 2 ms after they should have: the machine, and not the
	// link, set their delay.
	Late uint64 `json:"late"`
	// QueueBytes is what waits for its turn right now; packets in flight have left the queue.
	QueueBytes int `json:"queue_bytes"`
}

// model is one direction of a link in simulated time: packets arrive, and it decides which are dropped
// and when the others leave. It owns no socket and reads no clock, and with the same seed and the same
// calls it does the same. Times never go back from call to call.
//
//	arrive -> [ queue: waits for the line, at most limit ] -> line, at Rate -> [ in flight: Delay + Jitter ] -> due
//
// A policer has a bucket of tokens in place of queue and line: a packet is in flight at once, or dropped.
//
// The whole course of a packet is fixed when it arrives; only set changes it for those that still wait.
type model struct {
	cfg        Config
	queueBytes int
	queueTime  time.Duration
	rng        *rand.Rand

	packets fifo[packet] // in flight, then waiting, in the order of arrival and of departure
	waiting int          // how many of packets have not left the queue
	queued  int          // their bytes
	held    int          // bytes of memory that packets stand for

	free     instant // when the line has sent the last of packets
	credit   int64   // what the line could have sent between the end of that one and free, in rateUnit
	last     instant // due of the last of packets
	Counters         // QueueBytes is filled in by snapshot
}

// packet is one that was accepted, until it leaves.
type packet struct {
	sent   instant // when its last bit is on the line
	due    instant // when it arrives at the other end
	size   int
	lost   bool
	data   []byte       // the loop's; nil if lost
	arrive func([]byte) // of a carried packet; nil: it goes to the router
}

// packetCost is charged against maxHeld for each packet beside its bytes, so that empty datagrams
// cannot fill the memory either.
const packetCost = 64

// A bit is work of rateUnit; a line of rate r does r of it in a nanosecond. Counting so keeps the rate
// exact in integers, whatever the sizes.
const rateUnit = int64(time.Second)

func newModel(cfg Config, seed1, seed2 uint64) *model {
	m := &model{rng: rand.New(rand.NewPCG(seed1, seed2))}
	m.set(0, cfg)
	return m
}

// arrive decides about a packet of size bytes that arrives now. If it is accepted and not lost, the
// result is its place on the link, for the caller to keep its data in; it is nil otherwise.
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
	// A packet that finds the queue empty is always taken: it does not wait.
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

// exceeds tells whether a policer has no tokens for a packet. free is when its bucket will be full again.
func (m *model) exceeds(now instant, size int) bool {
	missing := max(0, m.free-now)
	return m.queueBytes > 0 && missing.Seconds()*float64(m.cfg.Rate)/8+float64(size) > float64(m.queueBytes) ||
		m.queueTime > 0 && missing > m.queueTime
}

// schedule puts a packet with so much work left behind the last one on the line.
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

// advance takes the packets out of the queue that are on their way by now.
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

// next says when the next packet is due; ok is false if the link is empty.
func (m *model) next() (due instant, ok bool) {
	if m.packets.len() == 0 {
		return 0, false
	}
	return m.packets.at(0).due, true
}

// depart takes the first packet off the link, which left it now.
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

// set changes the link now. What waits in the queue is sent at the new rate and travels with the new
// delay, even if the queue is longer than it may be now; what is in flight arrives when it would have,
// and nothing overtakes it.
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
		if i == first { // partly sent already
			work = min(work, int64(p.sent-now)*old)
		}
		m.schedule(p, now, work)
	}
	m.advance(now)
}

// cut drops all that is on the link.
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
