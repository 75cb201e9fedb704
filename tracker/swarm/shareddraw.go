package swarm

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/valkey-io/valkey-go"

	"braid/pathsel"
	"braid/tracker/wire"
)

// choose draws peers for the visitor, of the keys that have so many members. Who has announced before the oldest is not there.
func (s *Shared) choose(ctx context.Context, v *Visit, keys []string, sizes [2 * kinds]int64, oldest int64) ([]wire.Peer, error) {
	var seeds, there [kinds]int
	for k := range kinds {
		if v.Reaches&(1<<k) != 0 {
			if there[k] = int(sizes[2*k+1]); !v.Seed {
				seeds[k] = int(sizes[2*k])
				there[k] += seeds[k]
			}
		}
	}
	want := split(v.Want, there)
	// Those who are of no use cost little as long as they are few; else as many are looked at as in memory.
	var draws [kinds]draw
	for k := range draws {
		draws[k] = draw{keys: [2]string(keys[2*k:]), seeds: seeds[k], all: there[k], n: want[k] + fewMembers}
		if want[k] == 0 {
			draws[k].n = 0
		}
	}
	drawn, err := s.draw(ctx, draws, oldest)
	if err != nil {
		return nil, err
	}
	var out []wire.Peer
	more := false
	for k, members := range drawn {
		before := len(out)
		out = pickOf(out, members, want[k], v)
		if short := len(out)-before < want[k] || crowded(out[before:]); short && draws[k].n < there[k] {
			draws[k].n, more = lookedAt*draws[k].n, true
		}
	}
	if !more {
		return out, nil
	}
	if drawn, err = s.draw(ctx, draws, oldest); err != nil {
		return nil, err
	}
	out = out[:0]
	for k, members := range drawn {
		out = pickOf(out, members, want[k], v)
	}
	return out, nil
}

func pickOf(out []wire.Peer, members []member, n int, v *Visit) []wire.Peer {
	if n == 0 || len(members) == 0 {
		return out
	}
	return pick(out, members, n, v)
}

// crowded tells whether more than half of the peers are of one AS.
func crowded(peers []wire.Peer) bool {
	// If one has more than half, it is what is left when others are paired off.
	var most pathsel.IA
	n := 0
	for _, p := range peers {
		switch {
		case n == 0:
			most, n = p.Addr.IA, 1
		case p.Addr.IA == most:
			n++
		default:
			n--
		}
	}
	n = 0
	for _, p := range peers {
		if p.Addr.IA == most {
			n++
		}
	}
	return most != 0 && n > max(1, len(peers)/2)
}

// draw is how many members of one network are drawn, of all, from the keys with its seeds and with others.
type draw struct {
	keys          [2]string
	seeds, all, n int
}

// parts are how many to draw from each key: in proportion, so that each member is as likely.
func (d draw) parts() (out [2]int) {
	if d.n >= d.all {
		if d.n > 0 {
			out = [2]int{d.seeds, d.all - d.seeds}
		}
		return out
	}
	out[0] = min(int(float64(d.n*d.seeds)/float64(d.all)+rand.Float64()), d.seeds, d.n)
	out[1] = min(d.n-out[0], d.all-d.seeds)
	return out
}

func (s *Shared) draw(ctx context.Context, draws [kinds]draw, oldest int64) (out [kinds][]member, err error) {
	var all []valkey.Completed
	var of []int
	for k, d := range draws {
		for i, n := range d.parts() {
			if n > 0 {
				all = append(all, s.client.B().Hrandfield().Key(d.keys[i]).Count(int64(n)).Withvalues().Build())
				of = append(of, k)
			}
		}
	}
	if len(all) == 0 {
		return out, nil
	}
	for i, r := range s.client.DoMulti(ctx, all...) {
		k := of[i]
		pairs, err := r.ToArray()
		if err != nil {
			return out, err
		}
		if out[k], err = appendDrawn(out[k], pairs, k, oldest); err != nil {
			return out, err
		}
	}
	return out, nil
}

// appendDrawn reads an answer to HRANDFIELD, flat in the older protocol and in pairs in the newer. Members that nobody can reach
// on the kind of network, which no tracker has written, are passed over.
func appendDrawn(to []member, got []valkey.ValkeyMessage, kind int, oldest int64) ([]member, error) {
	flat := got
	if len(got) > 0 && got[0].IsArray() {
		flat = flat[:0:0]
		for _, m := range got {
			pair, err := m.ToArray()
			if err != nil {
				return to, err
			}
			flat = append(flat, pair...)
		}
	}
	for ; len(flat) >= 2; flat = flat[2:] {
		address, err := flat[0].AsBytes()
		if err != nil {
			return to, err
		}
		value, err := flat[1].AsBytes()
		if err != nil {
			return to, err
		}
		m, err := parseShared(address, value)
		if err != nil {
			return to, err
		}
		if a := m.addr(); int64(m.seen) >= oldest && a.Dialable() && kindOf(a) == kind {
			to = append(to, m)
		}
	}
	return to, nil
}

// parseShared reads a member as lua/swarm.lua writes it.
func parseShared(address, value []byte) (member, error) {
	const valueLen = 20 + 8 + 1 + 4
	var m member
	hostLen := 0
	switch len(address) {
	case 8 + 4 + 2, 8 + 16 + 2:
		m.ia = pathsel.IA(binary.BigEndian.Uint64(address))
		hostLen = len(address) - 10
	case 4 + 2, 16 + 2:
		hostLen = len(address) - 2
	}
	if hostLen == 0 || len(value) != valueLen {
		return m, fmt.Errorf("the store has a member of %d and %d bytes: is it used for something else?", len(address), len(value))
	}
	port := len(address) - 2
	host, _ := netip.AddrFromSlice(address[port-hostLen : port])
	m.host, m.port = host.As16(), binary.BigEndian.Uint16(address[port:])
	m.id, m.identity, m.seen = wire.PeerID(value[:20]), binary.BigEndian.Uint64(value[20:]), binary.BigEndian.Uint32(value[29:])
	if value[28] == 'p' {
		m.flags = isPaused
	}
	return m, nil
}
