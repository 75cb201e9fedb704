package dht

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"slices"

	"github.com/anacrolix/torrent/bencode"

	"braid/scionnet"
	"braid/units/bencoding"
)

// Contact is a node's ID and address.
type Contact struct {
	ID   ID
	Addr Addr
}

func (c Contact) group() group { return groupOf(c.Addr) }

// Method of a query.
type Method string

// The methods of BEP 5 and BEP 44.
const (
	Ping         Method = "ping"
	FindNode     Method = "find_node"
	GetPeers     Method = "get_peers"
	AnnouncePeer Method = "announce_peer"
	Get          Method = "get"
	Put          Method = "put"
)

// Error codes of BEP 5 and BEP 44.
const (
	ErrServer    = 202
	ErrProtocol  = 203
	ErrUnknown   = 204
	ErrTooBig    = 205
	ErrSignature = 206
	ErrSalt      = 207
	ErrCAS       = 301
	ErrOldSeq    = 302
)

// Message is a query, an answer to one, or an error. Which fields matter depends on the kind and
// the method.
type Message struct {
	T       string // transaction
	Query   Method // of a query; empty: an answer or an error
	Code    int    // of an error, or of the one with which to refuse a put; 0: none
	Text    string // of an error
	Version string

	ID       ID
	Target   ID                // find_node: target; get_peers, announce_peer: info_hash; get: target
	Want     []scionnet.Family // BEP 32
	ReadOnly bool              // BEP 43: the sender answers no queries
	Scrape   bool              // BEP 33
	Token    string            // in a query that is not a store: proves the sender's address

	Port        uint16 // announce_peer
	ImpliedPort bool
	Seed        bool // BEP 33

	Nodes  []Contact
	Values []Addr
	// Seeds and Downloaders are the filters of BEP 33, empty or of 256 bytes.
	Seeds, Downloaders string
	Item               *Item // get, put
	Seen               Addr  // the address at which the sender of an answer sees us (BEP 42)
}

// IsQuery reports whether the message asks something.
func (m *Message) IsQuery() bool { return m.Query != "" }

type (
	wireMessage struct {
		A  *wireArgs     `bencode:"a,omitempty"`
		E  bencode.Bytes `bencode:"e,omitempty"`
		IP string        `bencode:"ip,omitempty"`
		Q  string        `bencode:"q,omitempty"`
		R  *wireAnswer   `bencode:"r,omitempty"`
		RO int           `bencode:"ro,omitempty"`
		T  string        `bencode:"t"`
		V  string        `bencode:"v,omitempty"`
		Y  string        `bencode:"y"`
	}
	wireItem struct {
		CAS  *int64        `bencode:"cas,omitempty"`
		K    string        `bencode:"k,omitempty"`
		Salt string        `bencode:"salt,omitempty"`
		Seq  *int64        `bencode:"seq,omitempty"`
		Sig  string        `bencode:"sig,omitempty"`
		V    bencode.Bytes `bencode:"v,omitempty"`
	}
	wireArgs struct {
		CAS      *int64        `bencode:"cas,omitempty"`
		ID       string        `bencode:"id"`
		Implied  int           `bencode:"implied_port,omitempty"`
		InfoHash string        `bencode:"info_hash,omitempty"`
		K        string        `bencode:"k,omitempty"`
		Port     int           `bencode:"port,omitempty"`
		Salt     string        `bencode:"salt,omitempty"`
		Scrape   int           `bencode:"scrape,omitempty"`
		Seed     int           `bencode:"seed,omitempty"`
		Seq      *int64        `bencode:"seq,omitempty"`
		Sig      string        `bencode:"sig,omitempty"`
		Target   string        `bencode:"target,omitempty"`
		Token    string        `bencode:"token,omitempty"`
		V        bencode.Bytes `bencode:"v,omitempty"`
		Want     []string      `bencode:"want,omitempty"`
	}
	wireAnswer struct {
		BFpe    string        `bencode:"BFpe,omitempty"`
		BFsd    string        `bencode:"BFsd,omitempty"`
		ID      string        `bencode:"id"`
		K       string        `bencode:"k,omitempty"`
		Nodes   *string       `bencode:"nodes,omitempty"`
		Nodes6  *string       `bencode:"nodes6,omitempty"`
		NodesS4 *string       `bencode:"nodes_s4,omitempty"`
		NodesS6 *string       `bencode:"nodes_s6,omitempty"`
		Seq     *int64        `bencode:"seq,omitempty"`
		Sig     string        `bencode:"sig,omitempty"`
		Token   string        `bencode:"token,omitempty"`
		V       bencode.Bytes `bencode:"v,omitempty"`
		Values  []string      `bencode:"values,omitempty"`
	}
)

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Encode returns the bytes of the message.
func (m *Message) Encode() []byte {
	w := wireMessage{T: m.T, V: m.Version, RO: flag(m.ReadOnly)}
	switch {
	case m.IsQuery():
		w.Y, w.Q, w.A = "q", string(m.Query), m.args()
	case m.Code != 0:
		w.Y, w.E = "e", bencode.MustMarshal([]any{m.Code, m.Text})
	default:
		w.Y, w.R = "r", m.answer()
		if m.Seen.Port != 0 {
			w.IP = string(m.Seen.AppendCompact(nil))
		}
	}
	return bencode.MustMarshal(w)
}

func (m *Message) args() *wireArgs {
	a := &wireArgs{
		ID: string(m.ID[:]), Token: m.Token,
		Scrape: flag(m.Scrape), Seed: flag(m.Seed), Implied: flag(m.ImpliedPort),
	}
	for _, f := range m.Want {
		a.Want = append(a.Want, wants[f])
	}
	switch m.Query {
	case FindNode, Get:
		a.Target = string(m.Target[:])
	case GetPeers:
		a.InfoHash = string(m.Target[:])
	case AnnouncePeer:
		a.InfoHash, a.Port = string(m.Target[:]), int(m.Port)
	}
	if i := m.Item; i != nil {
		w := i.wire()
		a.CAS, a.K, a.Salt, a.Seq, a.Sig, a.V = w.CAS, w.K, w.Salt, w.Seq, w.Sig, w.V
	}
	return a
}

func (m *Message) answer() *wireAnswer {
	r := &wireAnswer{ID: string(m.ID[:]), Token: m.Token, BFsd: m.Seeds, BFpe: m.Downloaders}
	var lists [scionnet.Families][]byte
	for _, c := range m.Nodes {
		f := c.Addr.Family()
		lists[f] = c.Addr.AppendCompact(append(lists[f], c.ID[:]...))
	}
	for f, to := range []**string{&r.Nodes, &r.Nodes6, &r.NodesS4, &r.NodesS6} {
		if lists[f] != nil {
			s := string(lists[f])
			*to = &s
		}
	}
	for _, v := range m.Values {
		r.Values = append(r.Values, string(v.AppendCompact(nil)))
	}
	if m.Item != nil {
		w := m.Item.wire()
		r.K, r.Seq, r.Sig, r.V = w.K, w.Seq, w.Sig, w.V
	}
	return r
}

const (
	// maxMessage bounds a message in bytes. It fits one packet on every SCION path and on Ethernet,
	// with an item of BEP 44 in it.
	maxMessage = 1400
	// maxDepth and maxValues bound a message before it is decoded. A message has a dictionary in a
	// dictionary with lists of strings; an item may have some more.
	maxDepth, maxValues = 8, 256
)

// checkBounds returns an error for bencoded bytes that must not be decoded.
func checkBounds(b []byte) error {
	if len(b) > maxMessage {
		return fmt.Errorf("longer than %d bytes", maxMessage)
	}
	return bencoding.NewReader(b, bencoding.Limits{Values: maxValues, Depth: maxDepth}).Skip()
}

var errMessage = errors.New("no message of a DHT")

// ParseMessage reads a message. What it returns is valid, except that an item's signature was not
// checked, and addresses are what the sender says. Impossible addresses are left out.
func ParseMessage(b []byte) (*Message, error) {
	if err := checkBounds(b); err != nil {
		return nil, fmt.Errorf("%w: %w", errMessage, err)
	}
	var w wireMessage
	if err := bencode.Unmarshal(b, &w); err != nil {
		if _, ok := errors.AsType[bencode.ErrUnusedTrailingBytes](err); !ok {
			return nil, fmt.Errorf("%w: %w", errMessage, err)
		}
	}
	m := &Message{T: w.T, Version: w.V, ReadOnly: w.RO == 1}
	if len(w.T) > 32 { // it would come back in our answer
		return nil, errMessage
	}
	if seen, ok := scionnet.ParseCompact([]byte(w.IP)); ok {
		m.Seen = seen
	}
	switch {
	case w.Y == "q" && w.A != nil && w.Q != "":
		m.Query = Method(w.Q)
		return m, m.readArgs(w.A)
	case w.Y == "r" && w.R != nil:
		return m, m.readAnswer(w.R)
	case w.Y == "e":
		var v any
		if bencode.Unmarshal(w.E, &v) == nil {
			e, _ := v.([]any)
			e = append(e, nil, nil)
			code, _ := e[0].(int64)
			text, _ := e[1].(string)
			m.Code, m.Text = int(code), text[:min(len(text), 200)]
		}
		if m.Code == 0 {
			m.Code = ErrServer
		}
		return m, nil
	}
	return nil, errMessage
}

func setID(to *ID, s string) error {
	if len(s) != len(to) {
		return fmt.Errorf("%w: an ID of %d bytes", errMessage, len(s))
	}
	copy(to[:], s)
	return nil
}

func (m *Message) readArgs(a *wireArgs) error {
	if err := setID(&m.ID, a.ID); err != nil {
		return err
	}
	m.Token, m.Scrape, m.Seed, m.ImpliedPort = a.Token, a.Scrape == 1, a.Seed == 1, a.Implied != 0
	for f, name := range wants {
		if slices.Contains(a.Want, name) {
			m.Want = append(m.Want, scionnet.Family(f))
		}
	}
	switch m.Query {
	case FindNode:
		return setID(&m.Target, a.Target)
	case GetPeers:
		return setID(&m.Target, a.InfoHash)
	case AnnouncePeer:
		if a.Port < 0 || a.Port > 65535 || a.Port == 0 && !m.ImpliedPort {
			return fmt.Errorf("%w: port %d", errMessage, a.Port)
		}
		m.Port = uint16(a.Port)
		return setID(&m.Target, a.InfoHash)
	case Get:
		if a.Seq != nil {
			m.Item = &Item{Seq: *a.Seq}
		}
		return setID(&m.Target, a.Target)
	case Put:
		i, err := readItem(wireItem{a.CAS, a.K, a.Salt, a.Seq, a.Sig, a.V})
		m.Item = i
		return err
	case Ping:
		return nil
	}
	// BEP 5: an unknown query with a target is like find_node.
	for _, target := range []string{a.Target, a.InfoHash} {
		if len(target) == len(m.Target) {
			m.Query = FindNode
			return setID(&m.Target, target)
		}
	}
	return nil
}

func (m *Message) readAnswer(r *wireAnswer) error {
	if err := setID(&m.ID, r.ID); err != nil {
		return err
	}
	m.Token = r.Token
	for f, list := range []*string{r.Nodes, r.Nodes6, r.NodesS4, r.NodesS6} {
		if list == nil {
			continue
		}
		size := len(ID{}) + scionnet.Family(f).Size()
		if len(*list)%size != 0 {
			return errCompact
		}
		for b := range slices.Chunk([]byte(*list), size) {
			if a, ok := scionnet.ParseCompact(b[20:]); ok && a.Family() == scionnet.Family(f) {
				m.Nodes = append(m.Nodes, Contact{ID(b[:20]), a})
			}
		}
	}
	for _, v := range r.Values {
		if a, ok := scionnet.ParseCompact([]byte(v)); ok {
			m.Values = append(m.Values, a)
		}
	}
	if len(r.BFsd) == filterLen && len(r.BFpe) == filterLen {
		m.Seeds, m.Downloaders = r.BFsd, r.BFpe
	}
	if r.V != nil {
		i, err := readItem(wireItem{K: r.K, Seq: r.Seq, Sig: r.Sig, V: r.V})
		m.Item = i
		return err
	}
	return nil
}

// hashOf is the name of an immutable item.
func hashOf(b []byte) ID { return sha1.Sum(b) }
