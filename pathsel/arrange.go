package pathsel

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// How served peers share links: see ServeUploads.

// phase is a phase of assigning shared links to peers.
type phase int

const (
	watching phase = iota // all connections are open and are measured
	trying                // an arrangement is in force and is measured
	arranged              // the arrangement is kept
	resting               // the arrangement failed; all is open until the next try
)

const (
	// settleTime is the wait after each change before anything is measured. It covers the slow
	// start of new connections and the requests in flight on old ones.
	settleTime = 2 * time.Second
	// shareTime is how long rates are measured, so that one congestion event does not decide.
	shareTime = 5 * time.Second
	// firstRetry and lastRetry bound the time until a failed arrangement is tried again.
	firstRetry = time.Minute
	lastRetry  = 16 * time.Minute
	// shareSlack is the relative difference up to which two rates count as equal.
	shareSlack = 0.1
	// lostShare ends an arrangement when the least served peer falls below this part of its earlier
	// rate.
	lostShare = 0.7
)

// shares are the rates of peers in bytes per second, with their minimum and sum.
type shares struct {
	least, sum float64
	of         map[PeerID]float64
}

func sharesOf(of map[PeerID]float64) shares {
	s := shares{of: of, least: math.Inf(1)}
	for _, p := range slices.Sorted(maps.Keys(of)) { // in order, because rounding depends on it
		s.sum += of[p]
		s.least = min(s.least, of[p])
	}
	return s
}

// arrange goes from one phase to the next. It measures, tries an arrangement, and then keeps it or
// gives it up.
func (m *UploadMemory) arrange(now time.Time, active []Upload) {
	var peers []PeerID
	for _, u := range active {
		peers = append(peers, u.Peer)
	}
	slices.Sort(peers)
	peers = slices.Compact(peers)
	if !slices.Equal(peers, m.peers) || m.strands(active) {
		m.peers, m.backoff = peers, 0
		m.enter(watching, now, nil)
	}
	if len(peers) < 2 || len(peers) > maxArranged {
		return
	}
	if m.marked.IsZero() && now.Sub(m.began) >= settleTime {
		m.marked, m.marks = now, map[string]uint64{}
		for _, u := range active {
			m.marks[u.Conn] = u.Sent
		}
	}
	if m.phase == resting {
		if !now.Before(m.nextTry) {
			m.enter(watching, now, nil)
		}
		return
	}
	if m.marked.IsZero() || now.Sub(m.marked) < shareTime {
		return
	}
	rates := m.rates(now, active)
	got := map[PeerID]float64{}
	for _, u := range active {
		got[u.Peer] += rates[u.Conn]
	}
	is := sharesOf(got)
	m.marked = time.Time{} // start a new measurement
	switch m.phase {
	case watching:
		if barred := distribute(active, rates); barred != nil {
			m.before = is
			m.enter(trying, now, barred)
		} else {
			m.retreat(now)
		}
	case trying:
		if is.least < (1-shareSlack)*m.before.least || is.sum < (1-shareSlack)*m.before.sum {
			m.retreat(now)
			return
		}
		m.before = is
		m.enter(arranged, now, m.barred)
	case arranged:
		if is.least < lostShare*m.before.least {
			m.retreat(now)
		}
	}
}

// maxArranged is the largest number of peers among which links are divided. With more peers, nearly
// all links would be shared anyway.
const maxArranged = 32

func (m *UploadMemory) enter(p phase, now time.Time, barred map[string]bool) {
	m.phase, m.began, m.marked, m.barred = p, now, time.Time{}, barred
}

func (m *UploadMemory) retreat(now time.Time) {
	m.backoff = min(max(firstRetry, 2*m.backoff), lastRetry)
	m.nextTry = now.Add(m.backoff)
	m.enter(resting, now, nil)
}

// strands reports whether the arrangement leaves a peer without a connection, because its open one
// has ended.
func (m *UploadMemory) strands(active []Upload) bool {
	open := map[PeerID]bool{}
	for _, u := range active {
		open[u.Peer] = open[u.Peer] || !m.barred[u.Conn]
	}
	return slices.Contains(slices.Collect(maps.Values(open)), false)
}

// rates returns the rate of each connection since the marks were taken, in bytes per second.
func (m *UploadMemory) rates(now time.Time, active []Upload) map[string]float64 {
	rates := map[string]float64{}
	seconds := now.Sub(m.marked).Seconds()
	for _, u := range active {
		if from, ok := m.marks[u.Conn]; ok && u.Sent >= from {
			rates[u.Conn] = float64(u.Sent-from) / seconds
		}
	}
	return rates
}

// distribute returns which connections to bar so that the links' measured rates are divided better
// among the peers, or nil if no better division is found. It assumes that a link divides its rate
// evenly among its connections. The measured rate is a link's capacity only if that link is the
// bottleneck. A link that merely leads to a more crowded bottleneck may carry more, so its capacity
// counts as unlimited.
func distribute(active []Upload, rates map[string]float64) map[string]bool {
	d := division{
		active: active, open: make([]bool, len(active)),
		users: map[Interface]int{}, capacity: map[Interface]float64{},
	}
	peerOn, contested := map[Interface]PeerID{}, false
	for i, u := range active {
		d.open[i] = true
		for _, l := range u.Links {
			d.users[l]++
			d.capacity[l] += rates[u.Conn]
			other, used := peerOn[l]
			contested = contested || used && other != u.Peer
			peerOn[l] = u.Peer
		}
	}
	if !contested {
		return nil
	}
	for l := range d.capacity {
		if d.leadsOn(l, rates) {
			d.capacity[l] = math.Inf(1)
		}
	}
	all, overlaps := sharesOf(d.shares()), d.overlaps()
	d.deal()
	dealt := sharesOf(d.shares())
	noWorse := dealt.least >= (1-shareSlack)*all.least && dealt.sum >= (1-shareSlack)*all.sum
	better := dealt.least > (1+shareSlack)*all.least || noWorse && d.overlaps() < overlaps
	if !better || dealt.least <= 0 {
		return nil
	}
	barred := map[string]bool{}
	for i, u := range active {
		if !d.open[i] {
			barred[u.Conn] = true
		}
	}
	if len(barred) == 0 {
		return nil
	}
	return barred
}

// deal closes all connections, and deals them again one at a time, to the peer with the lowest rate
// (on a tie, with the fewest connections). It gets the connection that helps it most, provided that
// the lowest rate of all does not fall.
func (d *division) deal() {
	active := d.active
	ways := map[PeerID]int{}
	for _, u := range active {
		ways[u.Peer]++
	}
	for i := range d.open {
		d.close(i)
	}
	done := map[PeerID]bool{}
	for {
		has := d.shares()
		compare := func(p, q PeerID) int {
			return cmp.Or(cmp.Compare(has[p], has[q]), ways[p]-ways[q], cmp.Compare(p, q))
		}
		var who PeerID
		for _, u := range active {
			if !done[u.Peer] && (who == "" || compare(u.Peer, who) < 0) {
				who = u.Peer
			}
		}
		if who == "" {
			return
		}
		now := sharesOf(has)
		best, gets := -1, has[who]
		for i, u := range active {
			if u.Peer != who || d.open[i] {
				continue
			}
			d.reopen(i)
			next := sharesOf(d.shares())
			d.close(i)
			if next.of[who] > gets && next.least >= now.least {
				best, gets = i, next.of[who]
			}
		}
		if best < 0 {
			done[who] = true
			continue
		}
		d.reopen(best)
	}
}

// division is a state of distribute: which connections are open.
type division struct {
	active   []Upload
	open     []bool
	users    map[Interface]int // open connections on each link
	capacity map[Interface]float64
}

// leadsOn reports whether all connections of a link meet more connections on one common further
// link that seems to be the bottleneck: the rates there are alike, within a factor of two.
func (d *division) leadsOn(l Interface, rates map[string]float64) bool {
	var further []Interface
	first := true
	for _, u := range d.active {
		switch {
		case !slices.Contains(u.Links, l):
		case first:
			first, further = false, slices.Clone(u.Links)
		default:
			further = slices.DeleteFunc(further, func(o Interface) bool {
				return !slices.Contains(u.Links, o)
			})
		}
	}
	return slices.ContainsFunc(further, func(o Interface) bool {
		if d.users[o] <= d.users[l] {
			return false
		}
		least, most := math.Inf(1), 0.0
		for _, u := range d.active {
			if slices.Contains(u.Links, o) {
				least, most = min(least, rates[u.Conn]), max(most, rates[u.Conn])
			}
		}
		return most <= 2*least
	})
}

func (d *division) close(i int) {
	d.open[i] = false
	for _, l := range d.active[i].Links {
		d.users[l]--
	}
}

func (d *division) reopen(i int) {
	d.open[i] = true
	for _, l := range d.active[i].Links {
		d.users[l]++
	}
}

// shares returns the rate that each peer would get.
func (d *division) shares() map[PeerID]float64 {
	of := map[PeerID]float64{}
	for i, u := range d.active {
		share := 0.0
		if d.open[i] {
			share = math.Inf(1)
			for _, l := range u.Links {
				share = min(share, d.capacity[l]/float64(d.users[l]))
			}
		}
		of[u.Peer] += share
	}
	return of
}

// overlaps counts, for each link, the open connections beyond the first, and returns the sum.
func (d *division) overlaps() (n int) {
	for _, k := range d.users {
		n += max(0, k-1)
	}
	return n
}
