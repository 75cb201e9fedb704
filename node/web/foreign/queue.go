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

// moved returns a queue after a move of the chosen members, and those members that have another
// place now. A move by one place passes members that do not count. A move to the back is one to the
// front in the reversed queue.
func moved[T any](
	queue []T, chosen, counts func(T) bool, how Direction,
) (next, members []T) {
	next = slices.Clone(queue)
	if how == Down || how == Bottom {
		slices.Reverse(next)
		defer func() { slices.Reverse(next) }()
	}
	front := 0 // the next place for a member that moves to the end
	for i, member := range next {
		to, before := i, i-1
		for before > 0 && !counts(next[before]) {
			before--
		}
		switch {
		case !chosen(member):
		case how == Top || how == Bottom:
			to, front = front, front+1
		case before >= 0 && counts(next[before]) && !chosen(next[before]):
			to = before
		}
		if to != i {
			next = slices.Insert(slices.Delete(next, i, i+1), to, member)
			members = append(members, member)
		}
	}
	return next, members
}

// Move moves torrents in the queue of a node. Torrents that are moved together keep their order. A
// move by one place passes those that have no place in the queue of the client, by info hash.
func Move(
	n *node.Node, torrents []*node.Torrent, how Direction, placeless map[string]bool,
) error {
	chosen := map[*node.Torrent]bool{}
	for _, t := range torrents {
		chosen[t] = true
	}
	return n.Reorder(func(queue []*node.Torrent) (next, members []*node.Torrent) {
		return moved(queue, func(t *node.Torrent) bool { return chosen[t] },
			func(t *node.Torrent) bool { return !placeless[t.InfoHash()] }, how)
	})
}
