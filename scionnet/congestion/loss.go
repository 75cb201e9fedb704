package congestion

import (
	"math"
	"time"
)

// Which losses mean congestion.
//
// BBRv3 takes more than 2 % of loss in a round trip for its own fault, and so stays far below a
// link that loses 5 % by itself. Here each path has an ambient loss, which is found by experiment:
// when much is lost, the flow lowers its rate to what was delivered and looks again. A queue that
// overflows and a policer lose nothing then. A link that loses by itself loses as much as before:
// this is its ambient loss, and the rate goes back.
//
// Only losses clearly above the ambient loss are congestion, and they count in full: an overflowing
// queue or a policer drops all that is above its rate, which in a probe with a quarter more is a
// fifth.

const (
	lossMargin = 0.02 // BBRv3's threshold, above the ambient loss
	// Losses within this number of standard deviations are chance. With two, every fortieth round
	// of 100 packets on a path that loses 5 % would count as congested. A finished trial is judged
	// once and needs fewer than a trial that is judged again with each packet.
	sigmas, finalSigmas = 3, 2
	// A trial can end after the first number of packets if too many of them are lost, and ends
	// after the second.
	earlyPackets, trialPackets = 100, 400
	// trialTime is the least of a trial: in less, a receiver that does not run for a moment looks
	// like a full path.
	trialTime  = 20 * time.Millisecond
	maxAmbient = 0.15 // a path that loses more is not worth filling
	// If a lower rate leaves this part of the losses, they do not come from the rate.
	sameLoss = 0.6
)

// ambient estimates the loss that does not depend on the flow.
type ambient struct {
	rate            float64
	trials          int
	delivered, lost int     // bytes of this trial
	before          float64 // loss rate of the trial before this one, which had a higher rate; 0: there was none
}

// verdict is what a trial has shown.
type verdict int

const (
	unfinished verdict = iota
	quiet              // no more is lost than by the path itself
	congestion         // more is lost: lower the rate and look again
	byItself           // the losses do not depend on the rate: it may go back
)

// add looks at further packets. compensated says that the flow sends more to make up for the
// ambient loss; from such rounds nothing can be learned of it.
func (a *ambient) add(delivered, lost, packetSize int, lasted time.Duration, compensated bool) verdict {
	a.delivered += delivered
	a.lost += lost
	total := a.delivered + a.lost
	over := total >= trialPackets*packetSize
	exceeded := total >= earlyPackets*packetSize && a.exceeded(a.lost, total, packetSize, sigmas) ||
		over && a.exceeded(a.lost, total, packetSize, finalSigmas)
	if lasted < trialTime || !over && !exceeded {
		return unfinished
	}
	gone, sent := float64(a.lost)/float64(packetSize), float64(total)/float64(packetSize)
	before := a.before
	a.delivered, a.lost, a.before = 0, 0, 0
	switch {
	case exceeded && (before == 0 || gone/sent < sameLoss*before):
		a.before = gone / sent
		return congestion
	case exceeded:
		a.rate = min(max(a.rate, (before+gone/sent)/2), maxAmbient)
		return byItself
	case !compensated:
		a.trials++
		a.rate += max(0.125, 1/float64(a.trials)) * (gone/sent - a.rate)
		// A path that loses more would hardly have lost so few.
		a.rate = min(a.rate, (gone+2*math.Sqrt(gone)+2)/sent, maxAmbient)
	}
	return quiet
}

// restart forgets the present trial: its packets left at another rate.
func (a *ambient) restart() { a.delivered, a.lost = 0, 0 }

// exceeded says whether so many bytes lost of all that were sent mean congestion.
func (a *ambient) exceeded(lost, total, packetSize int, sigmas float64) bool {
	n := float64(total) / float64(packetSize)
	if lost < 3*packetSize || n == 0 {
		return false
	}
	p := max(a.rate, 0.01)
	return float64(lost)/float64(total) > a.rate+lossMargin+sigmas*math.Sqrt(p*(1-p)/n)
}

// outage says whether the lost packets left while the path carried nothing or a host did not run:
// the flow heard nothing for longer than a round trip. Such losses say nothing about the rate.
func (e event) outage() bool { return e.pause > e.rtt+silence }

// drops is the part of the bytes sent that was lost in the last few rounds.
type drops struct{ sent, lost float64 }

// dropsFading lets a round count for about four. A single one has few packets.
const dropsFading = 0.75

func (d *drops) add(last rounds) {
	d.sent = dropsFading*d.sent + float64(last.delivered+last.lost)
	d.lost = dropsFading*d.lost + float64(last.lost)
}

func (d *drops) part() float64 { return d.lost / max(d.sent, 1) }
