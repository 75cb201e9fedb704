package foreign

import (
	"slices"

	"braid/node"
)

// Direction is a way to move torrents in the queue.
type Direction int

// The directions: by one place, or to an end.
const (
	Top Direction = iota
	Up
	Down
	Bottom
)

// reorder returns the queue after a move of some of its members.
func reorder[T comparable](queue []T, chosen map[T]bool, how Direction) []T {
	out := slices.Clone(queue)
	switch how {
	case Top, Bottom:
		slices.SortStableFunc(out, func(a, b T) int {
			x := number(chosen[b]) - number(chosen[a])
			if how == Bottom {
				return -x
			}
			return x
		})
	case Up:
		for i := 1; i < len(out); i++ {
			if chosen[out[i]] && !chosen[out[i-1]] {
				out[i-1], out[i] = out[i], out[i-1]
			}
		}
	case Down:
		for i := len(out) - 2; i >= 0; i-- {
			if chosen[out[i]] && !chosen[out[i+1]] {
				out[i+1], out[i] = out[i], out[i+1]
			}
		}
	}
	return out
}

// step puts one member of a queue at a position. Those in between move by one.
type step[T any] struct {
	member T
	to     int
}

// steps turns a queue into another one with few steps, if the members that were moved have moved
// in one direction: to the front is built from the front, to the back from the back.
func steps[T comparable](queue, want []T, how Direction) (out []step[T]) {
	now := slices.Clone(queue)
	for i := range want {
		if how == Down || how == Bottom {
			i = len(want) - 1 - i
		}
		if now[i] == want[i] {
			continue
		}
		from := slices.Index(now, want[i])
		now = slices.Insert(slices.Delete(now, from, from+1), i, want[i])
		out = append(out, step[T]{want[i], i})
	}
	return out
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Move moves the torrents with these info hashes in the queue of a node. Torrents that are moved
// together keep their order.
func Move(n *node.Node, chosen map[string]bool, how Direction) error {
	var queue []string
	for _, s := range n.Statuses() {
		queue = append(queue, s.InfoHash)
	}
	for _, s := range steps(queue, reorder(queue, chosen, how), how) {
		t, err := n.Torrent(s.member)
		if err != nil {
			continue // removed meanwhile
		}
		if err := t.Set(node.Change{QueuePosition: &s.to}); err != nil {
			return err
		}
	}
	return nil
}
