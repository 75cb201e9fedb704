package swarm

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/valkey-io/valkey-go"

	"braid/pathsel"
	"braid/scionnet"
	"braid/tracker/wire"
)

// choose draws peers for the visitor from keys of these sizes. It leaves out members that announced
// before oldest.
func (s *Shared) choose(
	ctx context.Context, v *Visit, keys []string, sizes [2 * kinds]int64, oldest int64,
) ([]wire.Peer, error) {
	var draws [kinds]draw
	var available [kinds]int
	for k := range draws {
		d := draw{keys: [2]string(keys[2*k:])}
		if v.Reaches&(1<<k) != 0 {
			if d.all = int(sizes[2*k+1]); !v.Seed {
				d.seeds = int(sizes[2*k])
				d.all += d.seeds
			}
		}
		draws[k], available[k] = d, d.all
	}
	want := split(v.Want, available)
	for k, n := range want {
		if n > 0 {
			draws[k].n = n + fewMembers // some of them may be unusable
		}
	}
	// If too many were unusable, the second try draws as many members as are examined in memory.
	for again := false; ; again = true {
		drawn, err := s.draw(ctx, draws, oldest)
		if err != nil {
			return nil, err
		}
		var out []wire.Peer
		more := false
		for k, members := range drawn {
			before := len(out)
			if want[k] > 0 && len(members) > 0 {
				out = pick(out, members, want[k], v)
			}
			if short := len(out)-before < want[k] || crowded(out[before:]); short && draws[k].n < draws[k].all {
				draws[k].n, more = examined*draws[k].n, true
			}
		}
		if !more || again {
			return out, nil
		}
	}
}

// crowded reports whether more than half of the peers are from one AS.
func crowded(peers []wire.Peer) bool {
	ases := map[pathsel.IA]int{}
	for _, p := range peers {
		if ases[p.Addr.IA]++; p.Addr.IsSCION() && ases[p.Addr.IA] > max(1, len(peers)/2) {
			return true
		}
	}
	return false
}

// draw is a request for n random members of a swarm on one kind of network. The field all is the
// number of members on that network, and seeds is the number of seeds among them.
type draw struct {
	keys          [2]string // of the seeds, of the other members
	seeds, all, n int
}

// parts is how many to draw from each key: in proportion, so that all members have the same chance.
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

// appendDrawn reads an answer to HRANDFIELD, which is flat in the older protocol and has pairs in
// the newer. It leaves out old members, and those with impossible addresses, which no tracker has
// written.
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

// parseShared reads a member as lua/swarm.lua writes it. It has no host if its address is
// impossible.
func parseShared(address, value []byte) (m member, err error) {
	const valueLen = 20 + 8 + 1 + 4
	if len(value) != valueLen {
		return m, fmt.Errorf("the store has a member of %d and %d bytes: is it used for something else?",
			len(address), len(value))
	}
	if a, ok := scionnet.ParseCompact(address); ok {
		m.ia, m.host, m.port = a.IA, a.Host.As16(), a.Port
	}
	m.id, m.identity = wire.PeerID(value[:20]), binary.BigEndian.Uint64(value[20:])
	m.seen = binary.BigEndian.Uint32(value[29:])
	if value[28] == 'p' {
		m.flags = isPaused
	}
	return m, nil
}
