package client

import (
	"errors"
	"fmt"

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

// pexLists are the ends of the keys of lists, in the order of bencode, and the addresses in them.
var pexLists = []struct {
	end    string
	family scionnet.Family
}{{"", scionnet.IP4}, {"6", scionnet.IP6}, {"_s4", scionnet.SCION4}, {"_s6", scionnet.SCION6}}

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

func (p pexPeer) kind() pexKind {
	if p.at.IA != 0 {
		return pexSCION
	}
	return pexIP
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

func (m pexMessage) encode() []byte {
	b := []byte{'d'}
	entry := func(key string, value []byte) {
		if len(value) > 0 {
			b = fmt.Appendf(b, "%d:%s%d:%s", len(key), key, len(value), value)
		}
	}
	for _, l := range pexLists {
		addrs, flags := compactPeers(m.added, l.family)
		entry("added"+l.end, addrs)
		entry("added"+l.end+".f", flags)
	}
	if m.dht != 0 {
		b = fmt.Appendf(b, "3:dhti%de", m.dht)
	}
	for _, l := range pexLists {
		addrs, _ := compactPeers(m.dropped, l.family)
		entry("dropped"+l.end, addrs)
	}
	return append(b, 'e')
}

// compactPeers writes the addresses of one family, and a byte of flags for each.
func compactPeers(peers []pexPeer, family scionnet.Family) (addrs, flags []byte) {
	for _, p := range peers {
		if p.at.Family() == family {
			addrs, flags = p.at.AppendCompact(addrs), append(flags, p.flags)
		}
	}
	return addrs, flags
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
	for _, l := range pexLists {
		key := "added" + l.end
		if m.added, err = appendPeers(m.added, lists[key], lists[key+".f"], l.family); err == nil {
			m.dropped, err = appendPeers(m.dropped, lists["dropped"+l.end], nil, l.family)
		}
		if err != nil {
			return pexMessage{}, fmt.Errorf("peer exchange: %w", err)
		}
	}
	return m, nil
}

// appendPeers reads what compactPeers writes. There may be fewer flags than addresses.
func appendPeers(out []pexPeer, list, flags []byte, family scionnet.Family) ([]pexPeer, error) {
	size := family.Size()
	if len(list)%size != 0 {
		return nil, errPEX
	}
	for i := 0; len(list) > 0; i++ {
		at, ok := scionnet.ParseCompact(list[:size])
		list = list[size:]
		if !ok || at.Family() != family || len(out) >= maxNamed {
			continue
		}
		p := pexPeer{at: at}
		if i < len(flags) {
			p.flags = flags[i]
		}
		out = append(out, p)
	}
	return out, nil
}
