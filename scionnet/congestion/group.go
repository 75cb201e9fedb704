package congestion

import (
	"slices"
	"time"
)

// Link names an inter-domain link that paths of this host cross. Two flows with the same Link share
// it.
type Link string

// Group couples the flows of one host that cross the same links, so that on each link they behave
// like one flow; the package comment says how. NewReno flows are not coupled.
//
// All members use one clock. Of all members together, only one call of OnAck, Join or Leave may run
// at a time. The other methods of a Flow are not restricted.
type Group struct {
	links  map[Link]*sharedLink
	passes uint64 // loops over siblings
}

type sharedLink struct {
	group   *Group
	members []*member
}

// member is what a flow of a group tells the others. OnAck alone reads and writes it.
type member struct {
	links       []*sharedLink
	waits       bool          // to jump with its first data
	pass        uint64        // the last loop over siblings that has come to it
	queue       time.Duration // in its round trip
	probing     bool
	rate        float64 // delivered in its last round
	bandwidth   float64
	trip        time.Duration // its least round trip
	heard       time.Duration // when something of it was last acknowledged
	lost, total int           // bytes of its present round
	lossy       float64       // part of its recent rounds that lost packets
	begun       time.Duration // when a probe behind the same queue last began,
	ended       time.Duration // ended because of a queue,
	failed      time.Duration // and ended in losses
	drains      time.Duration // when a flow last began to look for the least round trip; 0: this one has, too
}

// company is what a flow has gathered of the flows behind the same queue, itself among them, when
// its round began.
type company struct {
	sends int     // members with a common link that are not silent
	uses  float64 // their bandwidth
	part  float64 // 1 divided by the number of flows behind the queue
	lossy float64 // the largest part of rounds with lost packets that one of them has
	probe float64 // size of this flow's probe, as a factor: smaller flows ask for more than larger ones
	scale float64 // factor for its bandwidth: the sum of all maxima is more than was ever delivered together
}

// probeSpan bounds the factor of a probe's size, in both directions.
const probeSpan = 2

// NewGroup returns a group without flows.
func NewGroup() *Group { return &Group{links: map[Link]*sharedLink{}} }

// Join makes the flow a member that crosses these links, in place of those of an earlier Join.
func (g *Group) Join(f *Flow, links []Link) {
	g.Leave(f)
	b, ok := f.algorithm.(*bbr)
	if !ok {
		return
	}
	for _, name := range links {
		l := g.links[name]
		if l == nil {
			l = &sharedLink{group: g}
			g.links[name] = l
		}
		if !slices.Contains(l.members, b.member) {
			l.members = append(l.members, b.member)
			b.member.links = append(b.member.links, l)
		}
	}
}

// Leave ends the membership.
func (g *Group) Leave(f *Flow) {
	b, ok := f.algorithm.(*bbr)
	if !ok {
		return
	}
	for name, l := range g.links {
		l.members = slices.DeleteFunc(l.members, func(m *member) bool { return m == b.member })
		if len(l.members) == 0 {
			delete(g.links, name)
		}
	}
	b.member = &member{}
}

// publish updates what the siblings may read of this flow.
func (b *bbr) publish(e event) {
	m := b.member
	m.queue = b.rounds.minRTT - b.minRTT.rtt
	m.probing, m.lossy = b.phase == refill || b.phase == up, b.lossy
	m.lost, m.total = b.rounds.lost, max(b.rounds.delivered+b.rounds.lost, e.prior)
	m.rate, m.bandwidth = b.last.rate(), b.bandwidth.now()
	m.trip = b.minRTT.rtt
	m.waits = b.start.resume.waits && !b.start.filled
	if e.acked > 0 {
		m.heard = e.now
	}
}

// silence is how much longer than a round trip a flow that sends may wait for acknowledgements: its
// receiver may be busy.
const silence = 20 * time.Millisecond

// silent says that another member has nothing to send.
func (b *bbr) silent(m *member) bool {
	return m != b.member && (m.rate == 0 || b.now > m.heard+m.trip+silence)
}

// noticeVacated starts a probe at once if a sibling that used much of a common link has left or
// fallen silent. The remaining flows probe for its part, each in proportion to its own bandwidth.
// If the link was not the bottleneck, the probe ends soon.
func (b *bbr) noticeVacated() {
	sends, uses := 0, 0.0
	for m := range b.member.siblings {
		if !b.silent(m) {
			sends, uses = sends+1, uses+m.bandwidth
		}
	}
	before := b.company.uses
	if b.start.filled && sends < b.company.sends && uses > 0 && before > (1+upGrowth)*uses {
		b.probe.vacated = b.bandwidth.now() * before / uses
		b.probe.noticed, b.probe.at = b.now, b.now
	}
	b.company.sends, b.company.uses = sends, uses
}

// behindQueue says whether siblings have a queue now, perhaps on a common link.
func (b *bbr) behindQueue() bool {
	for m := range b.member.siblings {
		if m != b.member && !b.silent(m) && m.queue > queueMargin(m.trip) {
			return true
		}
	}
	return false
}

// crowd is the number of flows, with this one, that share the link that most of them share.
func (m *member) crowd() int {
	n := 1
	for _, l := range m.links {
		n = max(n, len(l.members))
	}
	return n
}

// compare looks at the flows behind the same queue.
func (b *bbr) compare() {
	count, rate, bandwidth := 0, 0.0, 0.0
	b.company.lossy, b.company.scale = 0, 1
	for m := range b.member.together {
		if b.silent(m) {
			continue
		}
		count++
		rate, bandwidth = rate+m.rate, bandwidth+m.bandwidth
		b.company.lossy = max(b.company.lossy, m.lossy)
	}
	b.company.part = 1 / float64(max(1, count))
	b.company.probe = 1
	if own := b.bandwidth.now(); own > 0 {
		b.company.probe = min(max(bandwidth*b.company.part/own, 1/probeSpan), probeSpan)
	}
	if b.start.filled && b.probed() {
		b.total.add(rate)
	}
	if most := b.total.max(); count > 1 && most > 0 && bandwidth > most && b.queued() {
		b.company.scale = most / bandwidth
	}
}

// probeLosses are the losses of all probes behind the same queue, and what was sent with them.
func (m *member) probeLosses() (lost, total int) {
	for other := range m.together {
		if other.probing {
			lost, total = lost+other.lost, total+other.total
		}
	}
	return lost, total
}

// together yields the siblings that seem to wait in the same queue, since both see about the same
// delay. The bottleneck of all other siblings is on a link that is not common.
func (m *member) together(yield func(*member) bool) {
	for other := range m.siblings {
		apart := max(m.queue-other.queue, other.queue-m.queue)
		if apart <= 10*time.Millisecond+max(m.queue, other.queue)/2 && !yield(other) {
			return
		}
	}
}

// siblings yields the members with a common link, and m itself, each once. Loops over siblings must
// not nest, since each loop marks the members that it has visited. To search a list of visited
// members instead would cost a tenth of a millisecond for each acknowledgement if a thousand flows
// share links.
func (m *member) siblings(yield func(*member) bool) {
	if !yield(m) || len(m.links) == 0 {
		return
	}
	g := m.links[0].group
	g.passes++
	pass := g.passes
	m.pass = pass
	for _, l := range m.links {
		for _, other := range l.members {
			if other.pass == pass {
				continue
			}
			if other.pass = pass; !yield(other) {
				return
			}
		}
	}
}
