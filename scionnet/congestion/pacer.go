package congestion

import "time"

// Packets wait for each other: one batch of packets in one system call costs a fraction of the CPU
// time of as many calls, and a timer is not more exact than pacingInterval anyway. More than
// batchBytes do not fit into one call.
const (
	pacingInterval = time.Millisecond
	batchBytes     = 64 << 10
)

// What a sender that comes late may send at once: the timers and the scheduler of a busy machine
// are late by milliseconds, and what is not made up for is lost throughput. More would overflow the
// queues of slow links.
const (
	burstTime    = 4 * time.Millisecond
	burstPackets = 10
)

// Rates in bytes a second stay within bounds that keep the arithmetic finite: a packet leaves
// within a second or two, and no clock is fine enough for more than 100 Gbit/s.
const (
	minRate = 1e3
	maxRate = 12.5e9
)

// pacer spreads packets over time. It keeps a schedule: each packet moves the next one by its size
// at the rate. A sender that is late may catch up with the schedule, but not by more than a burst.
type pacer struct {
	next time.Duration // when the schedule has the next packet
	open time.Duration // when the next packet may go
	look time.Duration // when the sender should look again if none may
}

func (p *pacer) sent(now time.Duration, size int, rate float64, packetSize int) {
	p.next = max(p.next, now-p.burst(rate, packetSize)) + duration(float64(size), rate)
	p.open, p.look = p.next, max(p.next, now+min(pacingInterval, duration(batchBytes, rate)))
	if p.next > now && duration(float64(burstPackets*packetSize), rate) < pacingInterval {
		p.open = p.look // else each acknowledgement would let a packet or two go, each with its own system call
	}
}

// burst is how late the schedule may be, as time at the rate.
func (p *pacer) burst(rate float64, packetSize int) time.Duration {
	return max(burstTime, duration(float64(burstPackets*packetSize), rate))
}

// duration is how long the bytes take at the rate.
func duration(bytes, rate float64) time.Duration {
	return time.Duration(bytes / max(rate, minRate) * float64(time.Second))
}
