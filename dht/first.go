package dht

import (
	"crypto/ed25519"
	"fmt"
	"slices"

	"github.com/anacrolix/torrent/bencode"

	"braid/scionnet"
)

// maxFirst bounds the nodes that an item names. 32 with IPv6 hosts are 832 bytes of the 1000 that
// an item may have (BEP 44).
const maxFirst = 32

// firstNodes is the value of an item that names nodes on SCION: their compact addresses.
type firstNodes struct {
	S4 []byte `bencode:"s4,omitempty"`
	S6 []byte `bencode:"s6,omitempty"`
}

// FirstNodes makes the item in which the owner of a key names nodes on SCION. It is for programs
// that know only nodes on IP. Of many nodes it names the first 32. The sequence number must grow
// from item to item.
func FirstNodes(key ed25519.PrivateKey, seq int64, nodes []Addr) *Item {
	var v firstNodes
	n := 0
	for _, a := range nodes {
		if !a.Dialable() || !a.IsSCION() || n == maxFirst {
			continue
		}
		if n++; a.Family() == scionnet.SCION4 {
			v.S4 = a.AppendCompact(v.S4)
		} else {
			v.S6 = a.AppendCompact(v.S6)
		}
	}
	i := &Item{Value: bencode.MustMarshal(v), Seq: seq}
	i.Sign(key)
	return i
}

// FirstNodesOf is the name of the item of a key's owner.
func FirstNodesOf(key ed25519.PublicKey) ID { return (&Item{Key: key}).Target() }

// FirstNodes reads an item that FirstNodes has made. It leaves out addresses that no node can have,
// and all after the first 32.
func (i *Item) FirstNodes() (out []Addr, err error) {
	var v firstNodes
	if err = checkBounds(i.Value); err == nil {
		err = bencode.Unmarshal(i.Value, &v)
	}
	if err != nil {
		return nil, fmt.Errorf("an item that names nodes of the DHT: %w", err)
	}
	for i, list := range [][]byte{v.S4, v.S6} {
		size := (scionnet.SCION4 + scionnet.Family(i)).Size()
		if len(list)%size != 0 {
			return nil, fmt.Errorf("an item that names nodes of the DHT: %w", errCompact)
		}
		for one := range slices.Chunk(list, size) {
			if a, ok := scionnet.ParseCompact(one); ok && len(out) < maxFirst {
				out = append(out, a)
			}
		}
	}
	return out, nil
}
