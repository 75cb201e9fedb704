package congestion

import (
	"math"
	"time"
)

// Models of what else is on a link: the kernel's CUBIC and its BBR (version 1), not paced by
// anything but themselves.

func rival(name string) *Flow {
	f := &Flow{packetSize: packetBytes}
	switch name {
	case "cubic":
		f.algorithm = &cubic{cwnd: 10}
	case "bbr1":
		f.algorithm = &bbr1{cwnd: 10 * packetBytes, gain: 2.89}
	case "reno":
		f.algorithm = newReno(packetBytes)
	}
	return f
}

// cubic is RFC 9438, in packets.
type cubic struct {
	cwnd, ssthresh, wmax float64
	epoch                time.Duration
	k, west              float64
	recovery             uint64
	recovering           bool
	srtt, minRTT         time.Duration
	round                uint64
	roundRTT             time.Duration
}

func (c *cubic) onSent(time.Duration, int, bool) {}
func (c *cubic) onAck(e event) {
	if e.rtt > 0 {
		if c.srtt == 0 {
			c.srtt, c.minRTT = e.rtt, e.rtt
		}
		c.srtt += (e.rtt - c.srtt) / 8
		c.minRTT = min(c.minRTT, e.rtt)
		if c.roundRTT == 0 || e.rtt < c.roundRTT {
			c.roundRTT = e.rtt
		}
	}
	if e.lost > 0 && !c.recovering {
		if c.cwnd < c.wmax {
			c.wmax = c.cwnd * 1.7 / 2
		} else {
			c.wmax = c.cwnd
		}
		c.cwnd = max(2, c.cwnd*0.7)
		c.ssthresh, c.epoch = c.cwnd, 0
		c.recovering, c.recovery = true, e.delivered+uint64(e.inflight)
	}
	if c.recovering {
		c.recovering = e.delivered <= c.recovery
		return
	}
	if e.limitedNow {
		return
	}
	n := float64(e.acked) / packetBytes
	if c.ssthresh == 0 || c.cwnd < c.ssthresh {
		c.cwnd += n
		if e.sentDelivered >= c.round {
			if c.ssthresh == 0 && c.roundRTT > c.minRTT+min(max(c.minRTT/8, 4*time.Millisecond), 16*time.Millisecond) {
				c.ssthresh = c.cwnd
			}
			c.round, c.roundRTT = e.delivered, 0
		}
		return
	}
	if c.epoch == 0 {
		c.epoch, c.west = e.now, c.cwnd
		c.k = math.Cbrt(max(0, c.wmax-c.cwnd) / 0.4)
		c.wmax = max(c.wmax, c.cwnd)
	}
	t := (e.now - c.epoch + c.minRTT).Seconds() - c.k
	target := min(max(c.wmax+0.4*t*t*t, c.cwnd), 1.5*c.cwnd)
	c.cwnd += (target - c.cwnd) / c.cwnd * n
	c.west += 0.53 * n / c.cwnd
	c.cwnd = max(c.cwnd, c.west)
}
func (c *cubic) window() int         { return int(c.cwnd * packetBytes) }
func (c *cubic) pacingRate() float64 { return 1e9 }
func (c *cubic) state() string       { return "cubic" }
func (c *cubic) setPacketSize(int)   {}

// bbr1 is the kernel's: maximum of ten rounds, cycles of 1.25, 0.75 and six times 1, window of two
// products, 200 ms of four packets every ten seconds. Losses mean nothing to it.
type bbr1 struct {
	cwnd, gain float64
	bw         [10]float64
	round      int
	roundEnd   uint64
	full       float64
	fullCount  int
	phase      int // 0 startup, 1 drain, 2 probe, 3 probe rtt
	cycle      int
	cycleAt    time.Duration
	minRTT     time.Duration
	minAt      time.Duration
	probeEnd   time.Duration
	inflight   float64
}

func (b *bbr1) max() float64 {
	m := 0.0
	for _, x := range b.bw {
		m = max(m, x)
	}
	return m
}
func (b *bbr1) bdp() float64 { return b.max() * b.minRTT.Seconds() }

func (b *bbr1) onSent(time.Duration, int, bool) {}
func (b *bbr1) onAck(e event) {
	b.inflight = float64(e.inflight)
	expired := b.minAt > 0 && e.now > b.minAt+10*time.Second
	if e.rtt > 0 && (b.minRTT == 0 || e.rtt <= b.minRTT || expired) {
		b.minRTT, b.minAt = e.rtt, e.now
	}
	newRound := e.rtt > 0 && e.sentDelivered >= b.roundEnd
	if newRound {
		b.roundEnd = e.delivered
		b.round++
		b.bw[b.round%10] = 0
	}
	if e.rate > 0 && (!e.appLimited || e.rate > b.max()) {
		b.bw[b.round%10] = max(b.bw[b.round%10], e.rate)
	}
	switch b.phase {
	case 0:
		if newRound && !e.appLimited {
			if b.max() > 1.25*b.full {
				b.full, b.fullCount = b.max(), 0
			} else if b.fullCount++; b.fullCount >= 3 {
				b.phase, b.gain = 1, 1/2.89
			}
		}
	case 1:
		if b.inflight <= b.bdp() {
			b.phase, b.gain, b.cycle, b.cycleAt = 2, 1, 2+int(e.now)%6, e.now
		}
	case 2:
		long := e.now-b.cycleAt > b.minRTT
		next := long
		switch b.cycle {
		case 0:
			next = long && (e.lost > 0 || float64(e.prior) >= 1.25*b.bdp())
		case 1:
			next = long || b.inflight <= b.bdp()
		}
		if next {
			b.cycle, b.cycleAt = (b.cycle+1)%8, e.now
		}
		b.gain = []float64{1.25, 0.75, 1, 1, 1, 1, 1, 1}[b.cycle]
	case 3:
		if b.probeEnd == 0 && e.inflight <= 4*packetBytes {
			b.probeEnd = e.now + 200*time.Millisecond
		}
		if b.probeEnd > 0 && e.now > b.probeEnd {
			b.minAt, b.phase, b.gain, b.cycle, b.cycleAt = e.now, 2, 1, 2, e.now
			b.cwnd = b.target()
		}
	}
	if expired && b.phase != 3 {
		b.phase, b.gain, b.probeEnd = 3, 1, 0
	}
	switch {
	case b.phase == 3:
		b.cwnd = 4 * packetBytes
	case b.phase == 0:
		b.cwnd = max(b.cwnd, min(b.cwnd+float64(e.acked), max(10*packetBytes, b.target())))
	default:
		b.cwnd = min(b.cwnd+float64(e.acked), b.target())
	}
}
func (b *bbr1) target() float64 {
	g := 2.0
	if b.phase < 2 {
		g = 2.89
	}
	return max(4*packetBytes, g*b.bdp()+3*packetBytes)
}
func (b *bbr1) window() int { return int(b.cwnd) }
func (b *bbr1) pacingRate() float64 {
	if b.max() == 0 {
		return 2.89 * 10 * packetBytes / 0.1
	}
	return b.gain * b.max() * 0.99
}
func (b *bbr1) state() string     { return "bbr1" }
func (b *bbr1) setPacketSize(int) {}
