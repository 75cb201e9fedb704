package congestion

import "time"

// reno is NewReno (RFC 9002, section 7): one more packet a round trip, and 0.7 of the window after
// a loss. It serves as a baseline.
type reno struct {
	packetSize int
	cwnd       float64
	threshold  float64       // of slow start; 0: none yet
	recovery   uint64        // bytes delivered at which the losses of the last reduction are over
	srtt       time.Duration // smoothed
	minRTT     time.Duration
	round      uint64        // bytes delivered at which this round trip ends
	roundRTT   time.Duration // least of this round trip
	recovering bool
}

const (
	renoBeta       = 0.7  // quic-go's; RFC 9002 has 0.5
	renoPacingGain = 1.25 // lets the window, not the pacing, set the rate
)

func newReno(packetSize int) *reno {
	return &reno{packetSize: packetSize, cwnd: float64(initialWindow * packetSize)}
}

func (r *reno) onSent(time.Duration, int, bool) {}

func (r *reno) onAck(e event) {
	if e.rtt > 0 {
		if r.srtt == 0 {
			r.srtt, r.minRTT = e.rtt, e.rtt
		}
		r.srtt += (e.rtt - r.srtt) / 8
		r.minRTT = min(r.minRTT, e.rtt)
		if r.roundRTT == 0 || e.rtt < r.roundRTT {
			r.roundRTT = e.rtt
		}
	}
	if e.lost > 0 && !r.recovering {
		r.cwnd = max(r.cwnd*renoBeta, float64(minWindow*r.packetSize))
		r.threshold = r.cwnd
		r.recovering, r.recovery = true, e.delivered+uint64(e.inflight)
	}
	if r.recovering {
		r.recovering = e.delivered <= r.recovery
		return
	}
	if e.acked == 0 || e.limitedNow {
		return
	}
	if r.threshold == 0 || r.cwnd < r.threshold {
		r.cwnd = min(r.cwnd+float64(e.acked), maxWindow)
	} else {
		r.cwnd = min(r.cwnd+float64(e.acked)*float64(r.packetSize)/r.cwnd, maxWindow)
	}
	if e.sentDelivered >= r.round { // HyStart (RFC 9406): a queue ends slow start before it overflows
		if r.threshold == 0 && r.roundRTT > r.minRTT+min(max(r.minRTT/8, 4*time.Millisecond), 16*time.Millisecond) {
			r.threshold = r.cwnd
		}
		r.round, r.roundRTT = e.delivered, 0
	}
}

func (r *reno) window() int { return int(r.cwnd) }

func (r *reno) pacingRate() float64 {
	rtt := r.srtt
	if rtt == 0 {
		rtt = firstRTT
	}
	return renoPacingGain * r.cwnd / rtt.Seconds()
}

func (r *reno) state() string {
	switch {
	case r.recovering:
		return "recovery"
	case r.threshold == 0 || r.cwnd < r.threshold:
		return "slow start"
	}
	return "avoidance"
}

func (r *reno) setPacketSize(bytes int) { r.packetSize = bytes }
