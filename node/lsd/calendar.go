package lsd

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// announceEvery is how often a torrent is announced (BEP 14).
	announceEvery = 5 * time.Minute
	// messageEvery is the least time between two messages (BEP 14). Every program on the network
	// receives each message.
	messageEvery = time.Minute
)

// calendar decides which torrents the next message names.
type calendar struct {
	due  map[Hash]time.Time
	next time.Time // the earliest time of the next message
}

// soon makes a torrent due now.
func (c *calendar) soon(h Hash, now time.Time) {
	if c.due == nil {
		c.due = map[Hash]time.Time{}
	}
	if at, ok := c.due[h]; !ok || at.After(now) {
		c.due[h] = now
	}
}

// drop removes a torrent.
func (c *calendar) drop(h Hash) { delete(c.due, h) }

// take returns the torrents to name in a message now. These are the due torrents that have waited
// longest. If no message is due, take returns none.
func (c *calendar) take(now time.Time) (out []Hash) {
	if now.Before(c.next) {
		return nil
	}
	waiting := slices.SortedFunc(maps.Keys(c.due), func(a, b Hash) int {
		return cmp.Or(c.due[a].Compare(c.due[b]), slices.Compare(a[:], b[:]))
	})
	for _, h := range waiting {
		if c.due[h].After(now) || len(out) == maxHashes {
			break
		}
		c.due[h] = now.Add(announceEvery)
		out = append(out, h)
	}
	if len(out) > 0 {
		c.next = now.Add(messageEvery)
	}
	// Some clients read only the first info hash, so a random torrent comes first.
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
