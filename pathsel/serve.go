package pathsel

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// The seeder's side: which peers are served, and over which of their connections. It should not
// undo a leecher's choice of paths, so it only decides where peers compete: for upload slots and
// shared links.

// Upload is a connection over which a peer may download from us. A peer may have several.
type Upload struct {
	Peer   PeerID
	Origin Origin      // its Key is ignored; Peer identifies the peer
	Conn   string      // unique name
	Links  []Interface // of its path, including both ends; empty if unknown
	Wants  bool        // the peer is interested
	Sent   uint64      // bytes so far
}

// UploadView is the input of ServeUploads.
type UploadView struct {
	Now     time.Time
	Uploads []Upload
	// MaxUploads is the number of peers served at a time; 0 means all.
	MaxUploads int
	// Received is the rate at which each peer serves us, in bytes per second. It is nil when we
	// need no data.
	Received map[PeerID]float64
	Memory   UploadMemory
}

// UploadPlan is the output of ServeUploads: Barred connections are choked, all others are not.
type UploadPlan struct {
	Barred map[string]string // connection to reason
	Memory UploadMemory
}

// UploadMemory is passed from one plan to the next view. The zero value is the initial one.
type UploadMemory struct {
	turns   map[PeerID]turn
	tallies map[string]tally // of networks and hosts; "" is the tally of everything
	ranked  time.Time        // when the reciprocating peers were last chosen
	favored []PeerID         // those peers

	peers   []PeerID // the peers of the current arrangement, sorted
	barred  map[string]bool
	phase   phase
	began   time.Time
	marked  time.Time         // when marks were taken; zero before
	marks   map[string]uint64 // Sent by connection
	before  shares            // rates while all connections were open
	nextTry time.Time
	backoff time.Duration
}

// turn is a peer's place in the rotation of served peers.
type turn struct {
	since   time.Time // when its turn began; zero while it waits
	changed time.Time // when it last got or lost its slot
}

// served is how long the peer has had its slot or, as a negative time, has waited for one.
func (t turn) served(now time.Time) time.Duration {
	d := now.Sub(t.changed)
	if t.since.IsZero() {
		d = -d
	}
	return d
}

// tally counts the turns of a network or a host. A newcomer starts at the current count of the
// others.
type tally struct {
	turns int
	clock int       // the count of its last served member, before that turn
	at    time.Time // when it last got a turn
}

// phase is a phase of assigning shared links to peers.
type phase int

const (
	watching phase = iota // all connections are open and are measured
	trying                // an arrangement is in force and is measured
	arranged              // the arrangement is kept
	resting               // the arrangement failed; all is open until the next try
)

const (
	// turnTime is how long a peer is served while others wait: enough to get up to speed and
	// receive some pieces.
	turnTime = 30 * time.Second
	// rankTime is the time between two choices of the peers that serve us best, as in BEP 3.
	rankTime = 10 * time.Second
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

// ServeUploads decides for each connection whether the peer may download over it. It gives upload
// slots to peers, not to connections, and balances shared links over the served peers. Connections
// must have different names.
//
// Slots: a peer that serves us keeps its slot while it is among the best (BEP 3). Each host gets
// one such slot before any host gets two. All other peers take turns: first networks, then hosts in
// each network, then peers on each host (see Origin). The one that has waited longest is next; if
// nobody waits, the one that was served for the shortest time goes on.
//
// Balance: a link divides its rate among connections. So a peer with many paths crowds out a peer
// with one path, and all peers fetch the same data over each link, although one could fetch it and
// pass it on. ServeUploads computes an arrangement from measured rates. It must give the least
// served peer more, or let each link serve fewer peers without making any peer slower. The
// arrangement is tried, and kept if measurements confirm it. When a peer comes or goes, all
// connections are opened again.
func ServeUploads(v UploadView) UploadPlan {
	m := v.Memory
	wanting := map[PeerID]bool{}
	for _, u := range v.Uploads {
		if u.Wants {
			wanting[u.Peer] = true
		}
	}
	peers := slices.Sorted(maps.Keys(wanting))
	served := m.giveSlots(v, peers)
	plan := UploadPlan{Barred: map[string]string{}}
	var active []Upload
	for _, u := range v.Uploads {
		switch {
		case served == nil || served[u.Peer]:
			if u.Wants && len(u.Links) > 0 {
				active = append(active, u)
			}
		default:
			plan.Barred[u.Conn] = fmt.Sprintf("other peers have all %d upload slots", v.MaxUploads)
		}
	}
	m.arrange(v.Now, active)
	for _, u := range active {
		if m.barred[u.Conn] {
			plan.Barred[u.Conn] = "its links are assigned to other peers"
		}
	}
	plan.Memory = m
	return plan
}

// giveSlots returns the peers that are served; nil means all.
func (m *UploadMemory) giveSlots(v UploadView, wanting []PeerID) map[PeerID]bool {
	if v.MaxUploads <= 0 {
		m.turns, m.tallies, m.favored = nil, nil, nil
		return nil
	}
	from := map[PeerID]Origin{}
	for _, u := range v.Uploads {
		if o, known := from[u.Peer]; !known || o.Net == Unproven {
			from[u.Peer] = u.Origin
		}
	}
	turns := map[PeerID]turn{}
	for _, p := range wanting {
		turns[p] = m.turns[p]
	}
	m.turns = turns
	m.rank(v, wanting, from)
	served := map[PeerID]bool{}
	slots := map[string]int{} // of networks and hosts
	give := func(p PeerID) {
		served[p] = true
		slots[from[p].Net]++
		slots[from[p].Host]++
	}
	for _, p := range m.favored {
		if _, ok := turns[p]; ok {
			give(p)
		}
	}
	var holding, rest []PeerID
	for _, p := range wanting {
		switch t := turns[p]; {
		case served[p]:
		case !t.since.IsZero() && v.Now.Sub(t.since) < turnTime:
			holding = append(holding, p)
		default:
			rest = append(rest, p)
		}
	}
	slices.SortStableFunc(holding, func(a, b PeerID) int {
		return turns[b].since.Compare(turns[a].since)
	})
	for i, p := range holding { // with fewer slots than before, the longest served lose theirs
		if len(served) >= v.MaxUploads {
			rest = append(rest, holding[i:]...)
			break
		}
		give(p)
	}
	m.tallies = m.recentTallies(v.Now)
	contested := len(rest) > v.MaxUploads-len(served)
	for len(served) < v.MaxUploads && len(rest) > 0 {
		next := slices.MinFunc(rest, func(a, b PeerID) int {
			x, y := from[a], from[b]
			return cmp.Or(
				slots[x.Net]-slots[y.Net], m.turnsOf(x.Net, "")-m.turnsOf(y.Net, ""),
				slots[x.Host]-slots[y.Host], m.turnsOf(x.Host, x.Net)-m.turnsOf(y.Host, y.Net),
				cmp.Compare(turns[a].served(v.Now), turns[b].served(v.Now)),
			)
		})
		rest = slices.DeleteFunc(rest, func(p PeerID) bool { return p == next })
		give(next)
		// A peer that wins against waiting peers begins a new turn. Without competition its turn
		// continues.
		t := turns[next]
		if t.since.IsZero() {
			t.changed = v.Now
		}
		if contested || t.since.IsZero() {
			turns[next] = turn{since: v.Now, changed: t.changed}
			m.count(from[next], v.Now)
		}
	}
	for _, p := range rest {
		if !turns[p].since.IsZero() {
			turns[p] = turn{changed: v.Now}
		}
	}
	for p := range served {
		if turns[p].since.IsZero() {
			turns[p] = turn{since: v.Now, changed: v.Now}
		}
	}
	return served
}

// rank chooses the peers that keep their slots because they serve us best, if it is time for that.
func (m *UploadMemory) rank(v UploadView, wanting []PeerID, from map[PeerID]Origin) {
	if v.Received == nil {
		m.favored = nil
	} else if m.ranked.IsZero() || v.Now.Sub(m.ranked) >= rankTime {
		m.ranked = v.Now
		m.favored = favor(wanting, v.Received, from)
		m.favored = m.favored[:min(len(m.favored), v.MaxUploads-1)]
	}
}

// turnsOf counts the turns of a network or host. above is the network of a host; "" for a network.
func (m *UploadMemory) turnsOf(name, above string) int {
	return max(m.tallies[name].turns, m.tallies[above].clock)
}

// count counts one more turn of a network and a host in it.
func (m *UploadMemory) count(o Origin, now time.Time) {
	above := ""
	for _, name := range []string{o.Net, o.Host} {
		x, up := m.tallies[name], m.tallies[above]
		x.turns, x.at = m.turnsOf(name, above), now
		up.clock = x.turns
		x.turns++
		m.tallies[above], m.tallies[name] = up, x
		above = name
	}
}

// favor orders the peers that serve us, best first, with one peer of each host before any host's
// second. So nobody gets more slots by serving us under many keys.
func favor(wanting []PeerID, received map[PeerID]float64, from map[PeerID]Origin) []PeerID {
	out := slices.DeleteFunc(slices.Clone(wanting), func(p PeerID) bool { return received[p] <= 0 })
	best := func(a, b PeerID) int { return cmp.Compare(received[b], received[a]) }
	slices.SortStableFunc(out, best)
	ofHost, nth := map[string]int{}, map[PeerID]int{}
	for _, p := range out {
		nth[p] = ofHost[from[p].Host]
		ofHost[from[p].Host]++
	}
	slices.SortStableFunc(out, func(a, b PeerID) int { return cmp.Or(nth[a]-nth[b], best(a, b)) })
	return out
}

// tallyTime is how long the turns of a network or a host are remembered, even if no peer there
// wants more: a peer that returns under another key is not new. maxTallies limits this memory when
// many hosts come and go.
const (
	tallyTime  = 20 * turnTime
	maxTallies = 2048
)

// recentTallies returns the tallies that are not yet forgotten.
func (m *UploadMemory) recentTallies(now time.Time) map[string]tally {
	out := map[string]tally{"": m.tallies[""]}
	for name, x := range m.tallies {
		if now.Sub(x.at) < tallyTime {
			out[name] = x
		}
	}
	if len(out) > maxTallies {
		oldest := slices.SortedFunc(maps.Keys(out), func(a, b string) int {
			return cmp.Or(out[a].at.Compare(out[b].at), cmp.Compare(a, b))
		})
		for _, name := range oldest[:len(out)/2] {
			if name != "" {
				delete(out, name)
			}
		}
	}
	return out
}

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

// arrange moves from phase to phase: it measures, tries an arrangement, and keeps it or gives it
// up.
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

// maxArranged is the number of peers beyond which links are no longer divided, since nearly all
// links would be shared anyway.
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
