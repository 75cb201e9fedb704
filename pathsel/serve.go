package pathsel

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// The seeder's side: which peers are served, and over which of their connections. It must not undo what a leecher chose,
// so it only decides where peers compete: for upload slots, and for links that several of them share.

// Upload is a connection over which a peer may fetch from us. What one peer has may be several.
type Upload struct {
	Peer   PeerID
	Origin Origin      // its Key is not looked at: Peer is
	Conn   string      // names it
	Links  []Interface // of its path, both ends included; unknown is none
	Wants  bool        // the peer is interested
	Sent   uint64      // bytes so far
}

// UploadView is what ServeUploads decides about.
type UploadView struct {
	Now     time.Time
	Uploads []Upload
	// MaxUploads is the number of peers served at a time; 0 is all.
	MaxUploads int
	// Received is the rate at which each peer serves us, in bytes per second; nil when we need nothing.
	Received map[PeerID]float64
	Memory   UploadMemory
}

// UploadPlan is what to do: Barred connections are choked, all others are not.
type UploadPlan struct {
	Barred map[string]string // connection to reason
	Memory UploadMemory
}

// UploadMemory is what a plan has to be reminded of the next time. It is a value; the zero one is for the first time.
type UploadMemory struct {
	turns   map[PeerID]turn
	tallies map[string]tally // of networks and hosts, and of all together under ""
	ranked  time.Time        // when the reciprocating peers were last chosen
	favored []PeerID         // they

	peers   []PeerID // who the arrangement is for, in order
	barred  map[string]bool
	phase   phase
	began   time.Time
	marked  time.Time // when Sent was noted; zero before
	marks   map[string]uint64
	before  shares // while all was open
	nextTry time.Time
	backoff time.Duration
}

// turn is a peer's place in the round of those that are served.
type turn struct {
	since time.Time // it has a slot; zero: it waits
	left  time.Time // it last had one
}

// tally counts the turns that a network or a host was given. A newcomer begins where the others are.
type tally struct {
	turns int
	clock int       // turns before the last one that was given below it
	at    time.Time // it was last given one
}

// phase of the arrangement of peers over shared links.
type phase int

const (
	watching phase = iota // all is open and measured
	trying                // an arrangement is measured
	arranged              // it was good
	resting               // it was not; all is open until it is tried again
)

const (
	// turnTime is how long a peer is served while others wait: long enough to get up to speed and some pieces.
	turnTime = 30 * time.Second
	// rankTime is between two choices of those who serve us best, as in BEP 3.
	rankTime = 10 * time.Second
	// settleTime passes after each change before anything is measured: the new connections' slow start, the old
	// ones' requests on their way.
	settleTime = 2 * time.Second
	// shareTime is measured: long enough that one congestion event of one connection does not decide.
	shareTime = 5 * time.Second
	// firstRetry and lastRetry bound the time until an arrangement that did no good is tried again.
	firstRetry = time.Minute
	lastRetry  = 16 * time.Minute
	// shareSlack is what a peer's rate may differ by and count as equal.
	shareSlack = 0.1
	// lostShare of what the least served peer had when the arrangement was found good says that it is not any longer.
	lostShare = 0.7
)

// ServeUploads decides for each connection, of which each has its own name, whether the peer may fetch over it. It gives upload slots to peers, not to their connections, and balances paths over the peers that are served.
//
// Slots: a peer that serves us keeps its slot while it is among the best (BEP 3), of each host one before any has two.
// All others take turns: networks first, then in each network its hosts, and then the peers on a host, always the one that
// has waited longest (see Origin).
//
// Balance: where connections of several peers share links, each link's rate goes to connections, so that a peer with many
// paths crowds out one that has a single path, and all fetch over each link what one could fetch and pass on. An
// arrangement in which the least served peer gets more, or in which each link serves fewer peers and nobody gets less,
// is computed from measured rates, tried, and kept if it is true. Whenever a peer comes or goes all is open again.
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
			plan.Barred[u.Conn] = fmt.Sprintf("%d other peers are served", v.MaxUploads)
		}
	}
	m.arrange(v.Now, active)
	for _, u := range active {
		if m.barred[u.Conn] {
			plan.Barred[u.Conn] = "other peers are served over its links"
		}
	}
	plan.Memory = m
	return plan
}

// giveSlots tells who is served; nil is everybody.
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
	if v.Received == nil {
		m.favored = nil
	} else if m.ranked.IsZero() || v.Now.Sub(m.ranked) >= rankTime {
		m.ranked = v.Now
		m.favored = favor(wanting, v.Received, from)
		m.favored = m.favored[:min(len(m.favored), v.MaxUploads-1)]
	}
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
	slices.SortStableFunc(holding, func(a, b PeerID) int { return turns[b].since.Compare(turns[a].since) })
	for i, p := range holding { // if there are fewer slots than before, the longest served lose theirs
		if len(served) >= v.MaxUploads {
			rest = append(rest, holding[i:]...)
			break
		}
		give(p)
	}
	tallies := m.recent(v.Now)
	turnsOf := func(name, above string) int { return max(tallies[name].turns, tallies[above].clock) }
	contested := len(rest) > v.MaxUploads-len(served)
	for len(served) < v.MaxUploads && len(rest) > 0 {
		next := slices.MinFunc(rest, func(a, b PeerID) int {
			x, y := from[a], from[b]
			return cmp.Or(
				slots[x.Net]-slots[y.Net], turnsOf(x.Net, "")-turnsOf(y.Net, ""),
				slots[x.Host]-slots[y.Host], turnsOf(x.Host, x.Net)-turnsOf(y.Host, y.Net),
				turns[a].since.Compare(turns[b].since), turns[a].left.Compare(turns[b].left),
			)
		})
		rest = slices.DeleteFunc(rest, func(p PeerID) bool { return p == next })
		give(next)
		// Who wins against others that wait begins a new turn; without others it just goes on.
		if contested || turns[next].since.IsZero() {
			turns[next] = turn{since: v.Now}
			above := ""
			for _, name := range []string{from[next].Net, from[next].Host} {
				x, up := tallies[name], tallies[above]
				x.turns, x.at = turnsOf(name, above), v.Now
				up.clock = x.turns
				x.turns++
				tallies[above], tallies[name] = up, x
				above = name
			}
		}
	}
	for _, p := range rest {
		if !turns[p].since.IsZero() {
			turns[p] = turn{left: v.Now}
		}
	}
	for p := range served {
		if turns[p].since.IsZero() {
			turns[p] = turn{since: v.Now}
		}
	}
	m.tallies = tallies
	return served
}

// favor orders the peers that serve us, the best first: of each host one before any has two, so that nobody gets more
// slots by serving us under many keys.
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

// tallyTime is how long it is remembered that a network or a host had a turn, whether anybody there still wants one:
// coming back under another key is not coming for the first time. maxTallies bounds the memory of it, should hosts come
// and go in crowds.
const (
	tallyTime  = 20 * turnTime
	maxTallies = 2048
)

func (m *UploadMemory) recent(now time.Time) map[string]tally {
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

// shares are the rates of peers in bytes per second, and their sum.
type shares struct {
	least, sum float64
	of         map[PeerID]float64
}

func sharesOf(of map[PeerID]float64) shares {
	s := shares{of: of, least: math.Inf(1)}
	for _, p := range slices.Sorted(maps.Keys(of)) { // in order, for the same sum each time
		s.sum += of[p]
		s.least = min(s.least, of[p])
	}
	return s
}

// arrange goes through the phases.
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
	m.marked = time.Time{} // measure anew
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

// maxArranged is the number of peers beyond which links are not divided any more: nearly all of them would be shared
// however it is done.
const maxArranged = 32

func (m *UploadMemory) enter(p phase, now time.Time, barred map[string]bool) {
	m.phase, m.began, m.marked, m.barred = p, now, time.Time{}, barred
}

func (m *UploadMemory) retreat(now time.Time) {
	m.backoff = min(max(firstRetry, 2*m.backoff), lastRetry)
	m.nextTry = now.Add(m.backoff)
	m.enter(resting, now, nil)
}

// strands tells whether the arrangement leaves a peer without a connection, since the one that it had has ended.
func (m *UploadMemory) strands(active []Upload) bool {
	if m.barred == nil {
		return false
	}
	open := map[PeerID]bool{}
	for _, u := range active {
		open[u.Peer] = open[u.Peer] || !m.barred[u.Conn]
	}
	for _, ok := range open {
		if !ok {
			return true
		}
	}
	return false
}

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

// distribute says which connections to bar, so that the links' measured rates are divided better among the peers; nil if
// that cannot be. A link's rate is taken to be divided evenly among the connections on it. What a link can carry is known where
// most connections meet: of one that is only on the way there of some of them it is not, since they are held up behind it.
func distribute(active []Upload, rates map[string]float64) map[string]bool {
	d := division{active: active, open: make([]bool, len(active)), users: map[Interface]int{}, capacity: map[Interface]float64{}}
	peersOn := map[Interface]map[PeerID]bool{}
	for i, u := range active {
		d.open[i] = true
		for _, l := range u.Links {
			d.users[l]++
			d.capacity[l] += rates[u.Conn]
			if peersOn[l] == nil {
				peersOn[l] = map[PeerID]bool{}
			}
			peersOn[l][u.Peer] = true
		}
	}
	for l := range d.capacity {
		if d.leadsOn(l, rates) {
			d.capacity[l] = math.Inf(1)
		}
	}
	contested := false
	for _, on := range peersOn {
		contested = contested || len(on) > 1
	}
	if !contested {
		return nil
	}
	all, overlaps := sharesOf(d.shares()), d.overlaps()

	// Deal: always to the one that has least (first who has the fewest ways), what gives it most, as long as the one that has
	// least does not lose.
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
		var who PeerID
		for _, u := range active {
			if !done[u.Peer] && (who == "" || cmp.Or(cmp.Compare(has[u.Peer], has[who]), ways[u.Peer]-ways[who], cmp.Compare(u.Peer, who)) < 0) {
				who = u.Peer
			}
		}
		if who == "" {
			break
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
	dealt := sharesOf(d.shares())
	better := dealt.least > (1+shareSlack)*all.least ||
		dealt.least >= (1-shareSlack)*all.least && dealt.sum >= (1-shareSlack)*all.sum && d.overlaps() < overlaps
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

// division is who uses what.
type division struct {
	active   []Upload
	open     []bool
	users    map[Interface]int // open connections on each link
	capacity map[Interface]float64
}

// leadsOn tells whether all connections on a link meet others on one and the same further link, which may be what limits
// them: their rates there are alike, none above twice another.
func (d *division) leadsOn(l Interface, rates map[string]float64) bool {
	var further []Interface
	first := true
	for _, u := range d.active {
		switch {
		case !slices.Contains(u.Links, l):
		case first:
			first, further = false, slices.Clone(u.Links)
		default:
			further = slices.DeleteFunc(further, func(o Interface) bool { return !slices.Contains(u.Links, o) })
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

// overlaps counts, for each link, the open connections beside the first.
func (d *division) overlaps() (n int) {
	for _, k := range d.users {
		n += max(0, k-1)
	}
	return n
}
