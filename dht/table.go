package dht

import (
	"slices"
	"time"
)

// Limits keep one network (an AS, an IPv4 /24 or an IPv6 /48) from standing for many nodes. The
// zero value sets none, which serves to show their worth.
type Limits struct {
	PerBucket int  // nodes of one network in a bucket, and among the nodes that an answer or a lookup picks first
	PerTable  int  // nodes of one network in the table
	Branches  int  // disjoint branches of a lookup
	Bound     bool // on SCION only nodes whose ID follows from their address count
}

// DefaultLimits are those of every node. The table has room for 160 nodes in a DHT of a million, of
// which one network has at most a tenth.
var DefaultLimits = Limits{PerBucket: 2, PerTable: tableRoom / 10, Branches: 3, Bound: true}

const (
	// bucketSize is Kademlia's k: nodes in a bucket, in an answer, and nodes that keep a value.
	bucketSize = 8
	tableRoom  = 160
	// maxFails is the number of queries in a row without an answer after which a node is dropped.
	maxFails = 2
)

// entry is a node in the table. Each has answered a query with an unpredictable transaction, so it
// receives at its address.
type entry struct {
	Contact
	seen  time.Time // when it last answered
	asked time.Time // when it was last asked only to see whether it answers
	fails int
	token string // the last one from it, over SCION
}

// table is the nodes that a node knows, in buckets by the length of the prefix that they share with
// it: few that are far, all that are near.
type table struct {
	self    ID
	limits  Limits
	buckets [][]entry
}

func (t *table) bucketOf(id ID) int { return min(t.self.commonBits(id), 159) }

// find returns the entry with that ID or with that address.
func (t *table) find(c Contact) (byID, byAddr *entry) {
	for b, at := 0, t.bucketOf(c.ID); b < len(t.buckets); b++ {
		for i := range t.buckets[b] {
			e := &t.buckets[b][i]
			if b == at && e.ID == c.ID {
				byID = e
			}
			if e.Addr.IA == c.Addr.IA && e.Addr == c.Addr { // most differ in the first part, which is quick
				byAddr = e
			}
		}
	}
	return byID, byAddr
}

func (t *table) len() (n int) {
	for _, b := range t.buckets {
		n += len(b)
	}
	return n
}

// wants decides whether a node that is not in the table would get a place in it.
func (t *table) wants(c Contact) bool {
	byID, byAddr := t.find(c)
	return byID == nil && byAddr == nil && t.place(c) >= 0
}

// place returns the position in its bucket at which a newcomer would stand: behind the others, or
// in the place of one that has stopped answering; -1: there is none.
func (t *table) place(c Contact) int {
	if c.ID == t.self || t.limits.Bound && c.Addr.IsSCION() && !IsBound(c.ID, c.Addr) {
		return -1
	}
	at := t.bucketOf(c.ID)
	var bucket []entry
	if at < len(t.buckets) {
		bucket = t.buckets[at]
	}
	free := len(bucket)
	if free == bucketSize {
		if free = slices.IndexFunc(bucket, func(e entry) bool { return e.fails > 0 }); free < 0 {
			return -1
		}
	}
	g := c.group()
	if !g.limited() {
		return free
	}
	inBucket, inTable := 0, 0
	for b := range t.buckets {
		for i := range t.buckets[b] {
			if groupOf(t.buckets[b][i].Addr) != g || b == at && i == free {
				continue
			}
			if inTable++; b == at {
				inBucket++
			}
		}
	}
	full := func(count, limit int) bool { return limit > 0 && count >= limit }
	if full(inBucket, t.limits.PerBucket) || full(inTable, t.limits.PerTable) {
		return -1
	}
	return free
}

// answered notes that a node has answered, and gives it a place if it has none and there is one.
func (t *table) answered(now time.Time, c Contact) {
	byID, byAddr := t.find(c)
	if byID != nil && byID == byAddr {
		byID.seen, byID.fails = now, 0
		return
	}
	if byID != nil && byID.fails == 0 {
		return // somebody else has that ID, and answers
	}
	isOld := func(e entry) bool { return e.ID == c.ID || e.Addr == c.Addr }
	for b := range t.buckets { // it has moved, or started again with another ID
		t.buckets[b] = slices.DeleteFunc(t.buckets[b], isOld)
	}
	i := t.place(c)
	if i < 0 {
		return
	}
	b := t.bucketOf(c.ID)
	for len(t.buckets) <= b {
		t.buckets = append(t.buckets, nil)
	}
	e := entry{Contact: c, seen: now}
	if i < len(t.buckets[b]) {
		t.buckets[b][i] = e
	} else {
		t.buckets[b] = append(t.buckets[b], e)
	}
}

func (t *table) remove(c Contact) {
	if b := t.bucketOf(c.ID); b < len(t.buckets) {
		t.buckets[b] = slices.DeleteFunc(t.buckets[b], func(e entry) bool { return e.Contact == c })
	}
}

// failed notes that a node has not answered. It reports whether the node was dropped.
func (t *table) failed(c Contact) bool {
	e := t.entry(c)
	if e == nil {
		return false
	}
	if e.fails++; e.fails < maxFails {
		return false
	}
	t.remove(c)
	return true
}

// closest returns up to n nodes near a target for which use returns true. All nodes of a bucket
// share a prefix with the target, so it looks only into the nearest buckets, until it has enough.
func (t *table) closest(target ID, n int, use func(Contact) bool) []Contact {
	at := min(t.bucketOf(target), len(t.buckets))
	near := make([]Contact, 0, 4*bucketSize)
	take := func(buckets [][]entry) (out []Contact, full bool) {
		from := len(near)
		for _, b := range buckets {
			for i := range b {
				if b[i].fails == 0 && use(b[i].Contact) {
					near = append(near, b[i].Contact)
				}
			}
		}
		slices.SortFunc(near[from:], func(a, b Contact) int { return nearer(target, a.ID, b.ID) })
		return pick(near, n, t.limits.PerBucket)
	}
	// Nodes in the target's bucket share most with it, those in deeper buckets as much as this node
	// does, and those in each bucket before less.
	out, full := take(t.buckets[at:min(at+1, len(t.buckets))])
	if !full {
		out, full = take(t.buckets[min(at+1, len(t.buckets)):])
	}
	for at--; at >= 0 && !full; at-- {
		out, full = take(t.buckets[at : at+1])
	}
	return out
}

// pick takes the first n of sorted contacts, of which at most perGroup have one network as long as
// there are others. These others come first. full says that the result is final, whatever contacts
// follow.
func pick[C interface{ group() group }](sorted []C, n, perGroup int) (out []C, full bool) {
	if perGroup == 0 {
		return sorted[:min(n, len(sorted))], len(sorted) >= n
	}
	out = make([]C, 0, n)
	var rest []C
	for _, c := range sorted {
		if len(out) == n {
			return out, true
		}
		g, same := c.group(), 0
		for _, x := range out {
			same += flag(g.limited() && x.group() == g)
		}
		if same >= perGroup {
			rest = append(rest, c)
			continue
		}
		out = append(out, c)
	}
	full = len(out) == n
	return append(out, rest[:min(len(rest), n-len(out))]...), full
}

// stalest returns the entry that has been left alone for longest, and whether its bucket has room.
func (t *table) stalest() (e *entry, room bool) {
	for _, b := range t.buckets {
		for i := range b {
			if x := &b[i]; e == nil || x.touched().Before(e.touched()) {
				e, room = x, len(b) < bucketSize
			}
		}
	}
	return e, room
}

func (e *entry) touched() time.Time {
	if e.asked.After(e.seen) {
		return e.asked
	}
	return e.seen
}

func (t *table) contacts() (out []Contact) {
	for _, b := range t.buckets {
		for i := range b {
			out = append(out, b[i].Contact)
		}
	}
	return out
}

// entry returns the entry of a node, or nil.
func (t *table) entry(c Contact) *entry {
	if b := t.bucketOf(c.ID); b < len(t.buckets) {
		for i := range t.buckets[b] {
			if e := &t.buckets[b][i]; e.Contact == c {
				return e
			}
		}
	}
	return nil
}

// tokenOf returns the token that a node of the table has sent lately.
func (t *table) tokenOf(now time.Time, c Contact) string {
	if e := t.entry(c); e != nil && now.Sub(e.seen) < tokenLife {
		return e.token
	}
	return ""
}

// keepToken remembers the token that a node has sent.
func (t *table) keepToken(c Contact, token string) {
	if e := t.entry(c); e != nil && len(token) <= 2*tokenLen {
		e.token = token
	}
}
