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

// step puts one member of a queue at a position. Those in between move by one.
type step[T any] struct {
	member T
	to     int
}

// steps moves some members of a queue. A move to the back is one to the front in the reversed
// queue.
func steps[T comparable](queue []T, chosen map[T]bool, how Direction) (out []step[T]) {
	now, back := slices.Clone(queue), how == Down || how == Bottom
	if back {
		slices.Reverse(now)
	}
	front := 0 // the next place for a member that moves to the end
	for i, member := range now {
		to := i
		switch {
		case !chosen[member]:
		case how == Top || how == Bottom:
			to, front = front, front+1
		case i > 0 && !chosen[now[i-1]]:
			to = i - 1
		}
		if to == i {
			continue
		}
		now = slices.Insert(slices.Delete(now, i, i+1), to, member)
		if back {
			to = len(now) - 1 - to
		}
		out = append(out, step[T]{member, to})
	}
	return out
}

// Move moves torrents in the queue of a node. Torrents that are moved together keep their order.
func Move[T interface{ InfoHash() string }](n *node.Node, torrents []T, how Direction) error {
	var queue []string
	for _, t := range n.Torrents() {
		queue = append(queue, t.InfoHash())
	}
	chosen := map[string]bool{}
	for _, t := range torrents {
		chosen[t.InfoHash()] = true
	}
	for _, s := range steps(queue, chosen, how) {
		t, err := n.Torrent(s.member)
		if err != nil {
			continue // removed meanwhile
		}
		if err := t.SetPosition(s.to); err != nil {
			return err
		}
	}
	return nil
}
