package client

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"braid/pathsel"
)

// peerSet owns the peers of a transfer: the address-level peers that it knows, the path-level peers
// of those that it dials, and the connections that others have opened.
//
// Anybody can name addresses: a tracker, a magnet link. So a transfer knows more peers than it
// dials. The others are spares. Peers that cannot be reached make room for spares, again and again,
// so that a live peer gets its turn in any list of dead addresses.
//
// The zero value is empty.
type peerSet struct {
	dialled  []*peerState // in the order in which they were chosen
	spares   []*peerState
	accepted []*row // open and ended ones; also the rows of peers that are spares again
	byID     map[pathsel.PeerID]*peerState
	most     int // dialled peers; 0: MaxPeers
}

// peerState is an address-level peer. The fields from paths on are for peers that are dialled.
type peerState struct {
	peer           Peer
	from           PeerSource
	transport      dialler
	acquaintance                         // of a dialled peer: from the time before; see now
	paths          []*pathState          // in the mapping's order, then unlisted ones
	lookupFailures int                   // lookups in a row that have found no path
	err            error                 // of the last path lookup, or the policy's
	listed         []pathsel.Path        // by the last lookup; nil: none has ended yet
	refused        []pathsel.Refusal     // those of them that a policy forbids
	missing        []pathsel.Fingerprint // chosen by the user, and not found by the last lookup
	endLookups     context.CancelFunc
	complete       bool // it had all pieces when a connection with it ended
}

// pathState is a path-level peer: what pathsel decides about.
type pathState struct {
	row
	of        *peerState
	candidate pathsel.Candidate
	meter     pathsel.Meter
	silence   pathsel.Silence
	offer     *offer        // nil: the engine may not dial it
	obfuscate bool          // the next connection is obfuscated, since the one before was refused
	then      pathsel.State // the state after Opening
	unlisted  bool          // no path to choose any more: not listed, or forbidden
	delivered bool          // it has sent useful data
}

func newPathState(p *peerState, c pathsel.Candidate) *pathState {
	return &pathState{
		row: row{peer: p.peer, from: p.from, path: c.Path, transport: p.transport.Name()},
		of:  p, candidate: c,
	}
}

func (s *peerSet) paths() iter.Seq[*pathState] {
	return func(yield func(*pathState) bool) {
		for _, p := range s.dialled {
			for _, x := range p.paths {
				if !yield(x) {
					return
				}
			}
		}
	}
}

func (s *peerSet) rows() iter.Seq[*row] {
	return func(yield func(*row) bool) {
		for x := range s.paths() {
			if !yield(&x.row) {
				return
			}
		}
		for _, r := range s.accepted {
			if !yield(r) {
				return
			}
		}
	}
}

// connected are the rows with a connection whose handshake is done, whichever side has opened it.
func (s *peerSet) connected() iter.Seq[*row] {
	return func(yield func(*row) bool) {
		for r := range s.rows() {
			if r.isConnected() && !yield(r) {
				return
			}
		}
	}
}

// connectedPeers are the connected rows, those of one peer together.
func (s *peerSet) connectedPeers() (out [][]*row) {
	at := map[pathsel.PeerID]int{} // in out
	for r := range s.connected() {
		i, known := at[r.remoteID()]
		if !known {
			i = len(out)
			at[r.remoteID()], out = i, append(out, nil)
		}
		out[i] = append(out[i], r)
	}
	return out
}

// find is the first path-level peer for which f is true; nil if there is none.
func (s *peerSet) find(f func(*pathState) bool) *pathState {
	for x := range s.paths() {
		if f(x) {
			return x
		}
	}
	return nil
}

// peer is the dialled peer with that address; nil if there is none.
func (s *peerSet) peer(p Peer) *peerState {
	if x := s.byID[p.ID()]; x != nil && x.isDialled {
		return x
	}
	return nil
}

// path is the path-level peer with that key; nil if there is none.
func (s *peerSet) path(k pathsel.Key) *pathState {
	if p := s.byID[k.Peer]; p != nil {
		return p.path(k)
	}
	return nil
}

func (p *peerState) path(k pathsel.Key) *pathState {
	for _, x := range p.paths {
		if x.candidate.Key == k {
			return x
		}
	}
	return nil
}

func (s *peerSet) knows(p Peer) bool { return s.byID[p.ID()] != nil }

// add makes a peer a spare. It returns true if choose should be called, to forget some spares.
func (s *peerSet) add(p Peer, t dialler, from PeerSource) (many bool) {
	if s.byID == nil {
		s.byID = map[pathsel.PeerID]*peerState{}
	}
	a := acquaintance{origin: p.origin()}
	s.putSpare(&peerState{peer: p, from: from, transport: t, acquaintance: a})
	return len(s.spares) >= 2*maxKnown
}

func (s *peerSet) putSpare(p *peerState) {
	s.byID[p.peer.ID()] = p
	s.spares = append(s.spares, p)
}

// sourceOf tells who has named the address of a peer that has connected to us.
func (s *peerSet) sourceOf(p Peer) PeerSource {
	if x := s.byID[p.ID()]; x != nil {
		return x.from
	}
	return FromItself
}

// remember notes that a spare has delivered data before.
func (s *peerSet) remember(p Peer) {
	if x := s.byID[p.ID()]; x != nil && !x.isDialled {
		x.delivered = true
	}
}

// deliverers are the peers that have delivered data and can be dialled: see Transfer.Deliverers.
func (s *peerSet) deliverers(most int) (out []Peer) {
	for _, p := range slices.Concat(s.dialled, s.spares) {
		has := p.delivered ||
			slices.ContainsFunc(p.paths, func(x *pathState) bool { return x.delivered })
		if len(out) < most && has && !p.banned && p.peer.Dialable() {
			out = append(out, p.peer)
		}
	}
	return out
}

func (s *peerSet) limit() int {
	if s.most > 0 {
		return min(s.most, MaxPeers)
	}
	return MaxPeers
}

// choose lets peers that fail make room for spares. It returns the peers that are dialled from now
// on, and those that have become spares.
func (s *peerSet) choose(now time.Time) (dial, aside []*peerState) {
	if len(s.spares) == 0 && len(s.dialled) <= s.limit() {
		return nil, nil
	}
	peers := slices.Concat(s.dialled, s.spares)
	var all []acquaintance
	for _, p := range peers {
		all = append(all, p.now(now))
	}
	chosen, forget := choosePeers(all, s.limit(), now)
	s.dialled, s.spares = nil, nil
	for i, p := range peers {
		switch {
		case chosen[i]:
			if !p.isDialled {
				p.isDialled = true
				dial = append(dial, p)
			}
			s.dialled = append(s.dialled, p)
			continue
		case p.isDialled:
			aside = append(aside, p)
			all[i].isDialled = false
			p = &peerState{peer: p.peer, from: p.from, transport: p.transport, acquaintance: all[i]}
		}
		if forget[i] {
			delete(s.byID, p.peer.ID())
		} else {
			s.putSpare(p)
		}
	}
	return dial, aside
}

// now is the peer as choosePeers sees it at present.
func (p *peerState) now(now time.Time) acquaintance {
	if !p.isDialled {
		return p.acquaintance
	}
	a := p.acquaintance
	a.connected, a.failures, a.retry = false, p.lookupFailures, time.Time{}
	for _, s := range p.paths {
		a.connected = a.connected || s.isConnected()
		a.delivered = a.delivered || s.delivered
		a.failures = max(a.failures, s.candidate.Failures)
	}
	if a.failures += p.failures; a.failures > 0 {
		a.retry = now.Add(pathsel.RetryDelay(a.failures))
	}
	return a
}

// keep keeps the rows of a dialled peer that has become a spare, for the final report.
func (s *peerSet) keep(p *peerState) {
	for _, x := range p.paths {
		if read, written := x.bytes(); read+written > 0 {
			r := x.row
			s.accepted = append(s.accepted, &r)
		}
	}
}

// forget removes a dialled peer.
func (s *peerSet) forget(p *peerState) {
	s.dialled = slices.DeleteFunc(s.dialled, func(x *peerState) bool { return x == p })
	delete(s.byID, p.peer.ID())
}

// maxFinished is how many ended accepted connections are kept for the final report.
const maxFinished = 256

// trim forgets ended accepted connections: those that have carried nothing, and the oldest of the
// others beyond maxFinished. Of each dialled peer, it forgets the oldest unlisted paths.
func (s *peerSet) trim() {
	for _, p := range s.dialled {
		p.trim()
	}
	finished := 0
	for _, r := range s.accepted {
		if r.link == nil && r.past.read+r.past.written > 0 {
			finished++
		}
	}
	s.accepted = slices.DeleteFunc(s.accepted, func(r *row) bool {
		if r.link != nil {
			return false
		}
		if r.past.read+r.past.written == 0 {
			return true
		}
		finished--
		return finished >= maxFinished
	})
}

// maxUnlisted bounds the paths of a peer that are kept although lookups no longer list them. They
// may come back soon, and belong to the final report. Without a limit, they would fill the memory.
const maxUnlisted = 64

// trim forgets the oldest unlisted paths, which are the last ones.
func (p *peerState) trim() {
	kept := 0
	p.paths = slices.DeleteFunc(p.paths, func(x *pathState) bool {
		if !x.unlisted || x.link != nil || x.candidate.State == pathsel.Opening {
			return false
		}
		if kept++; kept <= maxUnlisted {
			return false
		}
		if x.offer != nil {
			x.offer.withdraw()
		}
		p.delivered = p.delivered || x.delivered
		return true
	})
}

const (
	// MaxPeers is the number of address-level peers that one torrent dials at a time. A swarm is
	// well connected with a tenth of it. Each dialled peer takes memory and path lookups.
	MaxPeers = 256
	// maxKnown is the number of peers that it knows, spares included.
	maxKnown = 1024
	// maxPeersPerNet and maxPeersPerHost bound the dialled peers in one network and at one host.
	// Otherwise somebody who names addresses could aim all handshakes of a transfer at one victim.
	maxPeersPerNet  = MaxPeers / 2
	maxPeersPerHost = MaxPeers / 4
	// deliveredPatience is how many attempts in a row may fail with a peer that has delivered data
	// before it counts as failing. That takes a minute or two: the time of a restart.
	deliveredPatience = 5
)

// acquaintance is a known peer as choosePeers sees it.
type acquaintance struct {
	origin    pathsel.Origin
	isDialled bool // otherwise it is a spare
	connected bool
	delivered bool // it has sent useful data
	banned    bool
	failures  int       // attempts in a row that have failed
	retry     time.Time // a spare is not dialled before this time
}

// standing orders peers, the best first: connected ones, those that have delivered data, new ones,
// then by the number of failures.
func (a acquaintance) standing() int {
	switch {
	case a.banned:
		return 1 << 20
	case a.connected:
		return 0
	case a.delivered && a.failures < deliveredPatience:
		return 1
	}
	return 2 + a.failures
}

// choosePeers chooses up to most peers to dial, and says which peers to forget. Peers of better
// standing come first. Among peers of the same standing, every network gets one peer before any
// network gets a second, and within a network every host. Among peers that are
// still equal, dialled peers come first, then the peers that were named first.
func choosePeers(all []acquaintance, most int, now time.Time) (dial, forget []bool) {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := all[i], all[j]
		if c := a.standing() - b.standing(); c != 0 || a.isDialled == b.isDialled {
			return c
		}
		if a.isDialled {
			return -1
		}
		return 1
	})
	rankBy := func(of func(acquaintance) string) {
		seen, nth := map[string]int{}, make([]int, len(all))
		for _, i := range order {
			nth[i] = seen[of(all[i])]
			seen[of(all[i])]++
		}
		slices.SortStableFunc(order, func(i, j int) int {
			return cmp.Or(all[i].standing()-all[j].standing(), nth[i]-nth[j])
		})
	}
	rankBy(func(a acquaintance) string { return a.origin.Host })
	rankBy(func(a acquaintance) string { return a.origin.Net })
	dial, forget = make([]bool, len(all)), make([]bool, len(all))
	nets, hosts, n := map[string]int{}, map[string]int{}, 0
	for _, i := range order {
		a := all[i]
		full := n >= most ||
			nets[a.origin.Net] >= maxPeersPerNet || hosts[a.origin.Host] >= maxPeersPerHost
		if full || !a.isDialled && (a.banned || now.Before(a.retry)) {
			continue
		}
		dial[i] = true
		n++
		nets[a.origin.Net]++
		hosts[a.origin.Host]++
	}
	over := len(all) - maxKnown
	for _, i := range slices.Backward(order) {
		if over > 0 && !dial[i] {
			forget[i] = true
			over--
		}
	}
	return dial, forget
}

// sample measures a path-level peer for the selector.
func (s *pathState) sample(now time.Time) {
	c := &s.candidate
	c.BytesRead, _ = s.bytes()
	c.Outstanding = 0
	x := pathsel.Sample{At: now, State: c.State, Choked: true, BytesRead: c.BytesRead}
	if s.link != nil {
		s.seen = s.link.Measure()
		c.RTT = s.seen.RTT
		x.RTT, x.RTTVar = s.seen.RTT, s.seen.RTTVar
		x.PacketsSent, x.PacketsLost = s.seen.PacketsSent, s.seen.PacketsLost
		x.PacketsReceived = s.seen.PacketsReceived
		if g := s.link.gauge.Load(); g != nil {
			st := g.conn.Stats()
			s.delivered = s.delivered || st.BytesReadUsefulData.Int64() > 0
			x.Wasted = uint64(max(0, st.BytesReadData.Int64()-st.BytesReadUsefulData.Int64()))
			x.Choked = !g.unchoked.Load()
			x.Outstanding = g.pending()
			c.Outstanding = x.Outstanding
		}
	}
	s.meter, s.silence = s.meter.Add(x), s.silence.Add(x)
	c.Slots, c.Silent, c.Quiet = s.meter.Slots, s.silence.Silent(), s.silence.Quiet()
}

// noteData notes which accepted connections have carried data, either way, since the last call.
// Such connections keep their places: see link.place.
func (s *peerSet) noteData(now time.Time) {
	for _, r := range s.accepted {
		if !r.isConnected() {
			continue
		}
		st := r.link.gauge.Load().conn.Stats()
		if n := st.BytesWrittenData.Int64() + st.BytesReadUsefulData.Int64(); n > r.link.data {
			r.link.data = n
			r.link.carried.Store(now.UnixNano())
		}
	}
}

// rates are those of all connections together.
type rates struct {
	in, out rateMeter
	since   time.Time // the last measurement
}

// measure takes the samples of the time since the last call.
func (r *rates) measure(peers *peerSet, now time.Time) {
	elapsed := now.Sub(r.since)
	r.since = now
	read, written := r.in.bytes, r.out.bytes
	for x := range peers.rows() { // adds only its growth: rows are forgotten, with all their bytes
		read, written = read-x.in.bytes, written-x.out.bytes
		x.measure(elapsed)
		read, written = read+x.in.bytes, written+x.out.bytes
	}
	r.in.update(read, elapsed)
	r.out.update(written, elapsed)
}

// progress is that of all path-level peers and accepted connections.
func (s *peerSet) progress() (out []PathProgress) {
	for _, p := range s.dialled {
		if len(p.paths) == 0 {
			out = append(out, PathProgress{
				Peer: p.peer.String(), Source: p.from, Transport: p.transport.Name(), Err: p.err,
			})
		}
		for _, x := range p.paths {
			q := x.progress()
			q.State, q.Failures = x.candidate.State, x.candidate.Failures
			q.Carried, q.CarriedUntil = pathsel.Latest(x.candidate.Slots)
			out = append(out, q)
		}
	}
	for _, r := range s.accepted {
		out = append(out, r.progress())
	}
	return out
}
