package knowledge

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"braid/pathsel"
)

// path is one path and the votes of hosts in its first AS.
type path struct {
	interfaces  []pathsel.Interface
	fingerprint pathsel.Fingerprint
	back        pathsel.Fingerprint // of the same path in the other direction
	seen        time.Time           // when it was last reported
	votes       []vote              // one of each host, the oldest first
}

// vote is the latest measurement of one host. Unknown figures are 0.
type vote struct {
	host netip.Addr
	at   time.Time
	rtt  float64 // seconds
	rate float64 // bytes per second
	loss float64 // fraction of the packets
}

func newPath(ifs []pathsel.Interface, now time.Time) *path {
	back := slices.Clone(ifs)
	slices.Reverse(back)
	return &path{
		interfaces: slices.Clone(ifs), seen: now,
		fingerprint: pathsel.FingerprintOf(ifs), back: pathsel.FingerprintOf(back),
	}
}

func (p *path) dst() pathsel.IA { return p.interfaces[len(p.interfaces)-1].IA }

// rated is when the newest vote with a rate was measured.
func (p *path) rated() (at time.Time) {
	for _, v := range p.votes { // the newest is the last one
		if v.rate > 0 {
			at = v.at
		}
	}
	return at
}

// voteOf is the index of the host's vote, or -1.
func (p *path) voteOf(host netip.Addr) int {
	return slices.IndexFunc(p.votes, func(v vote) bool { return v.host == host })
}

// vote replaces an older vote of the same host, and reports whether it did. The path keeps the
// newest votes, at most so many.
func (p *path) vote(v vote, most int) bool {
	if i := p.voteOf(v.host); i >= 0 {
		if p.votes[i].at.After(v.at) {
			return false
		}
		p.votes = slices.Delete(p.votes, i, i+1)
	}
	if n := len(p.votes); n >= most {
		if !v.at.After(p.votes[n-most].at) {
			return false
		}
		p.votes = slices.Delete(p.votes, 0, n-most+1)
	}
	i, _ := slices.BinarySearchFunc(p.votes, v, func(a, b vote) int { return a.at.Compare(b.at) })
	p.votes = slices.Insert(p.votes, i, v)
	return true
}

// forget drops votes that are older than life, and those from a time ahead: another tracker's clock
// was wrong, or this one's was before it was set back. They would count for too long.
func (p *path) forget(now time.Time, life time.Duration) {
	p.votes = slices.DeleteFunc(p.votes, func(v vote) bool {
		return v.at.Before(now.Add(-life)) || v.at.After(now.Add(ahead))
	})
}

// estimate has the likely figures of a path. Unknown ones are 0.
type estimate struct{ rtt, rate, loss float64 }

// estimate takes the medians of the votes. A vote has less weight the older it is.
func (p *path) estimate(now time.Time, halfLife time.Duration) estimate {
	return estimate{
		rtt:  p.rtt(now, halfLife),
		rate: p.figure(now, halfLife, func(v vote) (float64, bool) { return v.rate, v.rate > 0 }),
		loss: p.figure(now, halfLife, func(v vote) (float64, bool) { return v.loss, true }),
	}
}

func (p *path) rtt(now time.Time, halfLife time.Duration) float64 {
	return p.figure(now, halfLife, func(v vote) (float64, bool) { return v.rtt, v.rtt > 0 })
}

// figure is the median of one figure over the votes that know it.
func (p *path) figure(now time.Time, halfLife time.Duration, of func(vote) (value float64, known bool)) float64 {
	all := make([]weighed, 0, len(p.votes))
	for _, v := range p.votes {
		if value, known := of(v); known {
			all = append(all, weighed{value, math.Exp2(-max(0, now.Sub(v.at).Seconds()) / halfLife.Seconds())})
		}
	}
	return median(all)
}

type weighed struct{ value, weight float64 }

// median is a value with at most half of the weight below it and at most half above, or 0 if there
// is none. Voters with less than half of the weight cannot move it out of the range of the others.
// It sorts its argument.
func median(of []weighed) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.SortFunc(of, func(a, b weighed) int { return cmp.Compare(a.value, b.value) })
	total := 0.0
	for _, x := range of {
		total += x.weight
	}
	below := 0.0
	for _, x := range of {
		if below += x.weight; below >= total/2 {
			return x.value
		}
	}
	return of[len(of)-1].value
}

// promise ranks paths without a known rate. It is proportional to the rate that congestion control
// allows at that round trip and loss (Mathis et al., "The Macroscopic Behavior of the TCP
// Congestion Avoidance Algorithm", 1997). Loss below one in a thousand counts as that much: a
// download sends only acknowledgements and requests, too few to measure less.
func (e estimate) promise() float64 {
	const floor = 1e-3
	return 1 / (e.rtt * math.Sqrt(max(e.loss, floor)))
}
