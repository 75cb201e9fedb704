package dht

import (
	"slices"
	"time"
)

const (
	// lookupEvery is the time between searches for a torrent with enough peers. One search finds
	// peers, which then transfer directly.
	lookupEvery = 30 * time.Minute
	// hungryLeast and hungryMost are the pauses between searches for a torrent that lacks peers.
	hungryLeast, hungryMost = 3 * time.Second, 5 * time.Minute
	// renewLeast and renewMost are the pauses between renewals of an announcement at the nodes that
	// have it. The pause is short while these nodes leave, and long while they stay.
	renewLeast, renewFirst, renewMost = time.Minute, 2 * time.Minute, 15 * time.Minute
)

// Torrent is a torrent that a node searches peers for, and announces if it has a port.
type Torrent struct {
	hash   ID
	port   uint16
	seed   bool
	hungry bool

	keepers    []keeper
	wanted     int // keepers after the last search
	lastLookup time.Time
	nextLookup time.Time
	nextRenew  time.Time // zero: nothing is announced
	renewEvery time.Duration
	backoff    time.Duration
	searching  bool
	alone      bool // the last search found no node at all: the next one waits for the first node
}

// keeper is a node that keeps our announcement.
type keeper struct {
	Contact
	token string
	at    time.Time // when the token came
}

// Follow searches for peers of a torrent now and then, and announces the port at which this host
// accepts peers; 0: it accepts none.
func (n *Node) Follow(now time.Time, hash ID, port uint16) (*Torrent, Out) {
	t := &Torrent{hash: hash, port: port, hungry: true, nextLookup: now, backoff: hungryLeast, renewEvery: renewFirst}
	n.torrents = append(n.torrents, t)
	return t, n.Wake(now)
}

// Unfollow ends the searches for a torrent. Other nodes forget the announcement in time.
func (n *Node) Unfollow(t *Torrent) {
	n.torrents = slices.DeleteFunc(n.torrents, func(x *Torrent) bool { return x == t })
	t.keepers = nil // a token that is on its way is not used
	for _, s := range n.searches {
		if s.torrent == t {
			s.torrent = nil
		}
	}
}

// Hungry says whether a torrent lacks peers.
func (n *Node) Hungry(now time.Time, t *Torrent, hungry bool) Out {
	if hungry && !t.hungry {
		t.backoff = hungryLeast
		t.nextLookup = minTime(t.nextLookup, now.Add(t.backoff))
	}
	t.hungry = hungry
	return n.Wake(now)
}

// SearchNow searches for a torrent's peers at once, unless the last search began a moment ago.
func (n *Node) SearchNow(now time.Time, t *Torrent) Out {
	if now.Sub(t.lastLookup) >= hungryLeast {
		t.nextLookup = minTime(t.nextLookup, now)
	}
	return n.Wake(now)
}

// Seeding says that the torrent's data is complete, which nodes tell others (BEP 33).
func (n *Node) Seeding(t *Torrent) { t.seed = true }

// next is when keep has something to do for the torrent.
func (t *Torrent) next(n *Node) time.Time {
	at := t.nextLookup
	if t.alone && n.table.len() > 0 {
		at = t.lastLookup // now
	}
	if at.Before(n.retry) {
		at = n.retry
	}
	if t.searching || n.knowsNobody() {
		at = n.nextSelf // the end of the search, or a first node, wakes it
	}
	if !t.nextRenew.IsZero() {
		at = minTime(at, t.nextRenew)
	}
	return at
}

// keep starts the searches and renewals that are due. If there are more searches than may run at
// once, all torrents take turns.
func (n *Node) keep(now time.Time) {
	from := n.turn
	for i := range n.torrents {
		t := n.torrents[(from+i)%len(n.torrents)]
		due := !now.Before(t.nextLookup) || t.alone && n.table.len() > 0
		switch {
		case t.searching || !due || n.knowsNobody():
		case len(n.searches) >= maxSearches:
			n.retry = now.Add(time.Second)
		default:
			n.turn = from + i + 1
			t.searching, t.alone, t.lastLookup = true, false, now
			n.search(now, &search{target: t.hash, method: GetPeers, torrent: t})
		}
		if !t.nextRenew.IsZero() && !now.Before(t.nextRenew) {
			n.renew(now, t)
		}
	}
}

// searched takes the result of a search: its nearest nodes get the announcement.
func (t *Torrent) searched(now time.Time, n *Node, r Result, tokens map[Contact]string) {
	t.searching, t.alone = false, r.Answers == 0 && n.table.len() == 0
	t.nextLookup = now.Add(n.jitter(lookupEvery))
	if t.hungry || r.Answers == 0 {
		t.nextLookup = now.Add(n.jitter(t.backoff))
		t.backoff = min(2*t.backoff, hungryMost)
	}
	if r.Answers == 0 || t.port == 0 {
		return
	}
	t.keepers = t.keepers[:0]
	for _, c := range r.Closest {
		if tokens[c] != "" {
			t.keepers = append(t.keepers, keeper{c, tokens[c], now})
			n.announce(now, t, c, tokens[c])
		}
	}
	t.wanted, t.nextRenew = len(t.keepers), now.Add(n.jitter(t.renewEvery))
}

func (n *Node) announce(now time.Time, t *Torrent, to Contact, token string) {
	m := &Message{Query: AnnouncePeer, Target: t.hash, Port: t.port, Token: token, Seed: t.seed}
	n.ask(now, &query{to: to, m: m, keeps: t})
}

// renew announces again to the nodes that have the announcement.
func (n *Node) renew(now time.Time, t *Torrent) {
	if t.renewEvery = min(2*t.renewEvery, renewMost); len(t.keepers) == 0 {
		t.nextLookup = now
	}
	t.nextRenew = now.Add(n.jitter(t.renewEvery))
	for _, k := range t.keepers {
		if now.Sub(k.at) < tokenLife {
			n.announce(now, t, k.Contact, k.token)
		} else {
			n.askToken(now, t, k.Contact)
		}
	}
}

// askToken asks a node that keeps our announcement for a new token, and so for peers.
func (n *Node) askToken(now time.Time, t *Torrent, of Contact) {
	m := &Message{Query: GetPeers, Target: t.hash, Want: n.want()}
	n.ask(now, &query{to: of, m: m, keeps: t})
}

// keptAnswered handles the answer of a node that keeps our announcement.
func (n *Node) keptAnswered(now time.Time, q *query, m *Message) {
	t := q.keeps
	i := slices.IndexFunc(t.keepers, func(k keeper) bool { return k.Contact == q.to })
	if i < 0 || m.Token == "" {
		return
	}
	t.keepers[i].token, t.keepers[i].at = m.Token, now
	if q.m.Query == GetPeers {
		n.announce(now, t, q.to, m.Token)
		s := &search{target: t.hash, method: GetPeers, peers: map[Addr]struct{}{}, started: now}
		n.found(now, s, &candidate{Contact: q.to}, m)
	}
}

// hasOldToken reports whether a node that keeps our announcement has sent its last token some time
// ago. If it refuses a new token, another one is of no use either: it would refuse that, too, and
// so on without a pause.
func (t *Torrent) hasOldToken(now time.Time, c Contact) bool {
	return slices.ContainsFunc(t.keepers, func(k keeper) bool {
		return k.Contact == c && now.Sub(k.at) >= renewLeast
	})
}

// lost notes that a node which kept our announcement does not answer. Once a quarter of these nodes
// has gone, a search looks for others, and renewals follow more often. The search comes a minute
// after the last one or later, because it may find the same nodes again: some answer everything
// except announcements.
func (t *Torrent) lost(now time.Time, c Contact) {
	t.keepers = slices.DeleteFunc(t.keepers, func(k keeper) bool { return k.Contact == c })
	at := t.lastLookup.Add(renewLeast)
	if at.Before(now) {
		at = now
	}
	if 4*len(t.keepers) < 3*t.wanted && !t.searching && t.nextLookup.After(at) {
		t.renewEvery = max(renewLeast, t.renewEvery/4) // half of what it was before this renewal
		t.nextLookup = at
	}
}
