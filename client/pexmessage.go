package client

import (
	"errors"
	"fmt"
	"net/netip"

	pp "github.com/anacrolix/torrent/peer_protocol"

	"braid/scionnet"
)

// The messages of peer exchange: ut_pex (BEP 11) names peers on IP, and scion_pex peers on SCION.
// The format of scion_pex is in PEX.md.

// pexKind is a kind of addresses, and the extension whose messages carry them.
type pexKind int

const (
	pexIP pexKind = iota
	pexSCION
	pexKinds
)

// pexNames are the names of the extensions (BEP 10).
var pexNames = [pexKinds]pp.ExtensionName{pexIP: pp.ExtensionNamePex, pexSCION: "scion_pex"}

// pexKey is the key of a list of addresses, and what the list contains.
type pexKey struct {
	name   string
	family scionnet.Family
	added  bool // otherwise dropped
	flags  bool // it has a byte for each address of the list before it
}

// pexKeys are in the order in which bencode wants them.
var pexKeys = []pexKey{
	{name: "added", family: scionnet.IP4, added: true},
	{name: "added.f", family: scionnet.IP4, added: true, flags: true},
	{name: "added6", family: scionnet.IP6, added: true},
	{name: "added6.f", family: scionnet.IP6, added: true, flags: true},
	{name: "added_s4", family: scionnet.SCION4, added: true},
	{name: "added_s4.f", family: scionnet.SCION4, added: true, flags: true},
	{name: "added_s6", family: scionnet.SCION6, added: true},
	{name: "added_s6.f", family: scionnet.SCION6, added: true, flags: true},
	{name: "dropped", family: scionnet.IP4},
	{name: "dropped6", family: scionnet.IP6},
	{name: "dropped_s4", family: scionnet.SCION4},
	{name: "dropped_s6", family: scionnet.SCION6},
}

// Flags of a peer (BEP 11).
const (
	pexFlagSeed      = 0x02 // it has all pieces
	pexFlagReachable = 0x10 // the sender has opened a connection to it
)

// pexPeer is a peer in a list. Its address is on SCION, or on IP if the IA is zero.
type pexPeer struct {
	at    scionnet.Addr
	flags byte
}

// kind of the address.
func (p pexPeer) kind() pexKind {
	if p.at.IA != 0 {
		return pexSCION
	}
	return pexIP
}

// peer is the address-level peer.
func (p pexPeer) peer() Peer {
	if p.at.IA != 0 {
		return SCIONPeer(p.at)
	}
	return ipPeer(netip.AddrPortFrom(p.at.Host, p.at.Port))
}

// pexMessage is a message of either extension.
type pexMessage struct {
	added, dropped []pexPeer // dropped ones have no flags
	dht            uint16    // port of the sender's node in the DHT over SCION; 0: it does not say
}

const (
	// maxPEX is the longest message that is read, in bytes. The longest one that BEP 11 allows has
	// about 4 kB; libtorrent sends twice as many peers.
	maxPEX = 16 << 10
	// maxNamed is how many peers a message may add, and how many it may drop (BEP 11).
	maxNamed = 50
	// maxPEXKeys bounds the entries of a message. The formats have 12.
	maxPEXKeys = 64
)

// encode writes the message in bencode.
func (m pexMessage) encode() []byte {
	b := []byte{'d'}
	for _, k := range pexKeys {
		if k.name == "dropped" && m.dht != 0 {
			b = fmt.Appendf(b, "3:dhti%de", m.dht)
		}
		var list []byte
		for _, p := range *k.of(&m) {
			switch {
			case p.at.Family() != k.family:
			case k.flags:
				list = append(list, p.flags)
			default:
				list = p.at.AppendCompact(list)
			}
		}
		if len(list) > 0 {
			b = fmt.Appendf(b, "%d:%s%d:%s", len(k.name), k.name, len(list), list)
		}
	}
	return append(b, 'e')
}

var errPEX = errors.New("a list of peers has a wrong length")

// parsePEX reads a message of either extension. It leaves out addresses that nobody can have and
// peers beyond maxNamed.
func parsePEX(payload []byte) (m pexMessage, err error) {
	if len(payload) > maxPEX {
		return m, fmt.Errorf("peer exchange: a message of %d bytes, at most %d are read",
			len(payload), maxPEX)
	}
	lists := map[string][]byte{}
	b := newReader(payload)
	keys := 0
	err = b.Dict(func(key []byte) error {
		if keys++; keys > maxPEXKeys {
			return fmt.Errorf("more than %d entries", maxPEXKeys)
		}
		if string(key) == "dht" && b.Kind() == 'i' {
			n, err := b.Number()
			if n > 0 && n < 1<<16 {
				m.dht = uint16(n)
			}
			return err
		}
		if b.Kind() != '0' {
			return b.Skip()
		}
		text, err := b.Bytes()
		lists[string(key)] = text
		return err
	})
	if err != nil {
		return m, fmt.Errorf("peer exchange: %w", err)
	}
	for _, k := range pexKeys {
		list := lists[k.name]
		if k.flags {
			continue
		}
		size := k.family.Size()
		if len(list)%size != 0 {
			return pexMessage{}, fmt.Errorf("peer exchange: %s: %w", k.name, errPEX)
		}
		flags := lists[k.name+".f"]
		for i := 0; len(list) > 0; i++ {
			at, ok := scionnet.ParseCompact(list[:size])
			list = list[size:]
			p := pexPeer{at: at}
			switch into := k.of(&m); {
			case !ok || at.Family() != k.family || len(*into) >= maxNamed:
			case k.added && i < len(flags):
				p.flags = flags[i]
				*into = append(*into, p)
			default:
				*into = append(*into, p)
			}
		}
	}
	return m, nil
}

// of is the list's part of a message.
func (k pexKey) of(m *pexMessage) *[]pexPeer {
	if k.added {
		return &m.added
	}
	return &m.dropped
}
