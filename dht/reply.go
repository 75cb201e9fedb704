package dht

import (
	"slices"
	"time"

	"braid/scionnet"
)

func (n *Node) reply(now time.Time, from Origin, m *Message) {
	valid := m.Token != "" && n.tokens.valid(now, from.Addr, m.Token)
	if valid {
		n.verify(now, from.Addr)
	}
	r := &Message{T: m.T, ID: n.id, Seen: from.Addr}
	if from.Addr.IsSCION() {
		// The sender knows its address. A token in each answer lets its next query prove it.
		r.Seen, r.Token = Addr{}, n.tokens.give(now, from.Addr)
	}
	switch m.Query {
	case Ping:
	case FindNode:
		r.Nodes = n.nodesFor(m)
	case GetPeers:
		r.Token = n.tokens.give(now, from.Addr)
		r.Values, r.Nodes = n.store.sample(m.Target, n.cfg.Rand), n.nodesFor(m)
		if m.Scrape && len(n.store.swarms[m.Target]) > 0 {
			r.Seeds, r.Downloaders = n.store.filters(m.Target)
		}
	case Get:
		r.Token, r.Nodes = n.tokens.give(now, from.Addr), n.nodesFor(m)
		if i, ok := n.store.items[m.Target]; ok && (m.Item == nil || !i.Mutable() || i.Seq > m.Item.Seq) {
			r.Item = i.Item
		}
	case AnnouncePeer:
		if !valid {
			r = refusal(m, ErrProtocol, "the token is not ours, or too old")
			break
		}
		p := storedPeer{addr: from.Addr, group: from.group(), seed: m.Seed}
		if !m.ImpliedPort {
			p.addr.Port = m.Port
		}
		n.store.announce(now, m.Target, p)
	case Put:
		if bad := n.put(now, from, m, valid); bad != nil {
			r = refusal(m, bad.code, bad.text)
		}
	default:
		r = refusal(m, ErrUnknown, "unknown method")
	}
	if r.Code != 0 {
		n.stats.Refused++
	}
	if at, ok := n.verified[from.Addr]; !ok || now.Sub(at) > verifiedFor {
		r.shrink(min(maxMessage, mostAmplification*from.Size))
	} else {
		r.shrink(maxMessage)
	}
	n.out.Packets = append(n.out.Packets, Packet{To: from.Addr, Message: r, Reply: true})
}

func refusal(q *Message, code int, text string) *Message {
	return &Message{T: q.T, Code: code, Text: text}
}

func (n *Node) put(now time.Time, from Origin, m *Message, valid bool) *badItem {
	switch {
	case !valid:
		return &badItem{ErrProtocol, "the token is not ours, or too old"}
	case m.Item == nil:
		return &badItem{m.Code, m.Text}
	case !m.Item.Verify(m.Item.Target()):
		return &badItem{ErrSignature, "the signature is wrong"}
	}
	return n.store.put(now, m.Item, from.group())
}

// nodesFor returns the nodes near the target of a query, in the families that it wants.
func (n *Node) nodesFor(m *Message) (out []Contact) {
	wanted := func(c Contact) bool { return slices.Contains(m.Want, c.Addr.Family()) }
	if len(m.Want) == 0 {
		wanted = func(c Contact) bool { return NetworkOf(c.Addr) == n.cfg.Network }
	}
	for _, o := range n.siblings {
		if o != nil {
			out = append(out, o.table.closest(m.Target, bucketSize, wanted)...)
		}
	}
	return out
}

// Sizes of the parts of an answer, rounded up.
const (
	answerSize = 64 // dictionaries, the ID and the transaction's frame
	listSize   = 16 // the key of a list, and its length
)

// size is an upper bound of the length of Encode's result, for answers and errors.
func (m *Message) size() int {
	n := answerSize + len(m.T) + len(m.Text)
	if m.Token != "" {
		n += 10 + len(m.Token)
	}
	if m.Seen.Port != 0 {
		n += 8 + m.Seen.Family().Size()
	}
	var lists [scionnet.Families]bool
	for _, c := range m.Nodes {
		n += 20 + c.Addr.Family().Size()
		lists[c.Addr.Family()] = true
	}
	for _, has := range lists {
		n += listSize * flag(has)
	}
	for _, v := range m.Values {
		n += 3 + v.Family().Size()
	}
	n += listSize * flag(len(m.Values) > 0)
	if m.Seeds != "" {
		n += 2 * (filterLen + 12)
	}
	if i := m.Item; i != nil {
		n += 8 + len(i.Value)
		if i.Mutable() {
			n += 40 + 76 + 30
		}
	}
	return n
}

// shrink drops parts of an answer until it has at most that size: the filters, then the item, then
// in turn peers and nodes.
func (m *Message) shrink(limit int) {
	if m.size() > limit {
		m.Seeds, m.Downloaders = "", ""
	}
	if m.size() > limit {
		m.Item = nil
	}
	for m.size() > limit && len(m.Nodes)+len(m.Values) > 0 {
		if len(m.Values) > len(m.Nodes) {
			m.Values = m.Values[:len(m.Values)-1]
		} else {
			m.Nodes = m.Nodes[:len(m.Nodes)-1]
		}
	}
}
