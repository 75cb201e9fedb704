package swarm

import (
	"math/rand/v2"
	"slices"

	"braid/pathsel"
	"braid/tracker/wire"
)

// choose picks random peers for the visitor: never itself under another address, and no seeds for a
// seed.
func (t *table) choose(v *Visit) []wire.Peer {
	var available [kinds]int
	for k, g := range t.groups {
		if g != nil && v.Reaches&(1<<k) != 0 {
			if available[k] = len(g.members); v.Seed {
				available[k] -= g.seeds
			}
		}
	}
	want := split(v.Want, available)
	all := want[0] + want[1] + want[2]
	if all == 0 {
		return nil
	}
	out := slices.Grow(v.Room[:0], all)
	for k, n := range want {
		if n == 0 {
			continue
		}
		g := t.groups[k]
		from := 0
		if v.Seed {
			from = g.seeds
		}
		out = pick(out, g.members[from:], n, v)
	}
	return out
}

// split divides the wanted peers among the networks in equal parts. Where one has too few, the
// others give more.
func split(want int, available [kinds]int) (out [kinds]int) {
	for {
		open := 0
		for k := range available {
			if available[k] > out[k] {
				open++
			}
		}
		if want <= 0 || open == 0 {
			return out
		}
		share := max(1, want/open)
		for k := range available {
			n := min(share, available[k]-out[k], want)
			out[k] += n
			want -= n
		}
	}
}

// examined is how many members are examined per wanted peer. It bounds the time of one answer,
// which may be shorter then.
const examined = 16

// pick appends up to n of the members. While there are others, at most half of them are from one AS
// of SCION, so that invented peers of one AS cannot fill an answer.
func pick(out []wire.Peer, members []member, n int, v *Visit) []wire.Peer {
	perAS := n
	if v.Reaches&SCION != 0 && len(members) > 0 && members[0].ia != 0 {
		perAS = max(1, n/2)
	}
	taken := map[pathsel.IA]int{}
	var spare []int
	size := len(members)
	end := len(out) + n
	i, step := rand.IntN(size), 1
	if n < size {
		step = coprime(size)
	}
	for range min(size, examined*(n+fewMembers)) {
		if len(out) == end {
			return out
		}
		m := &members[i]
		at := i
		if i += step; i >= size {
			i -= size
		}
		itself := m.identity == v.Identity || v.Addr.Port != 0 && m.is(v.Addr)
		if itself || v.Seed && m.flags&isPaused != 0 {
			continue
		}
		if perAS < n {
			if taken[m.ia] == perAS {
				if len(spare) < n {
					spare = append(spare, at)
				}
				continue
			}
			taken[m.ia]++
		}
		out = append(out, m.peer())
	}
	for _, i := range spare {
		if len(out) == end {
			break
		}
		out = append(out, members[i].peer())
	}
	return out
}

// coprime is a random step that visits each of size indexes once.
func coprime(size int) int {
	if size <= 2 {
		return 1
	}
	step := 1 + rand.IntN(size-1)
	for gcd(step, size) != 1 {
		step = step%(size-1) + 1
	}
	return step
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
