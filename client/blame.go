package client

import (
	"math/bits"
	"slices"
	"sync"

	"braid/client/wire"
	"braid/pathsel"
)

// Finding peers that send wrong data.
//
// The engine bans a peer if one connection has sent all of a wrong piece, or if a good copy shows
// which blocks were wrong. It misses a bad peer that sends the blocks of a piece over several
// paths, or under several keys. Here, a key or host is guilty if all senders of wrong pieces have
// it in common, whether they are still connected or not.

const (
	// wrongPieces is how many wrong pieces a host or key must have sent alone to be banned. One
	// wrong piece can be the fault of another user of the same address.
	wrongPieces = 2
	// maxRounds is the number of unfinished pieces whose senders are remembered. There are more
	// only if somebody begins pieces and leaves them; the engine alone then judges the oldest.
	maxRounds = 4096
	// maxSenders is the number of senders of a piece that are remembered for its trial, see
	// trial.go.
	maxSenders = 32
	// maxWrong is the number of hosts and keys whose wrong pieces are counted.
	maxWrong = 1024
)

// suspect is the peer of a connection: the key that it has proved to have, and the host if its
// address is proven. A host whose ISD-AS is only claimed cannot become guilty.
type suspect struct{ host, key string }

func suspectOf(o pathsel.Origin) suspect {
	s := suspect{key: o.Key}
	if o.Net != pathsel.Unproven {
		s.host = o.Host
	}
	return s
}

// common is what two suspects have in common.
func (s suspect) common(o suspect) suspect {
	if s.host != o.host {
		s.host = ""
	}
	if s.key != o.key {
		s.key = ""
	}
	return s
}

// names are the names by which a suspect is banned. They tell hosts and keys apart.
func (s suspect) names() (out []string) {
	if s.host != "" {
		out = append(out, "host "+s.host)
	}
	if s.key != "" {
		out = append(out, "key "+s.key)
	}
	return out
}

// blame finds the guilty peers of one torrent. It is told of every useful block. A piece was wrong
// if one of its blocks is useful for a second time.
type blame struct {
	// onBlock notes that the engine has got a block, and tells whether it came from our own disk.
	onBlock func(piece int, begin, length int64) bool

	mu      sync.Mutex
	rounds  bounded[int, *round] // unfinished pieces
	lost    wire.Bitset          // pieces that are no longer judged: some blocks were not seen
	failed  []suspect            // for each wrong piece: what all its senders have in common
	counted int64                // pieces fetched again; at most the engine's count of wrong ones
	wrong   bounded[string, int] // by names
}

// round is one attempt at a piece.
type round struct {
	blocks wire.Bitset
	by     suspect // what all senders so far have in common
	from   []suspect
	kept   bool // some blocks are of an earlier download, and their senders unknown
}

func newBlame(onBlock func(piece int, begin, length int64) bool) *blame {
	return &blame{
		onBlock: onBlock,
		rounds:  bounded[int, *round]{most: maxRounds},
		wrong:   bounded[string, int]{most: maxWrong},
	}
}

// blockBits is the size of a block, as the engine asks for them: 16 KiB.
const blockBits = 14

// received notes a useful block. It is called with the engine's lock held.
func (b *blame) received(piece, begin, length int, from suspect) {
	kept := b.onBlock(piece, int64(begin), int64(length))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lost.Has(piece) {
		return
	}
	block := begin >> blockBits
	r, ok := b.rounds.get(piece)
	if ok && r.blocks.Has(block) {
		if !r.kept && len(b.failed) < maxRounds { // the engine has not counted it either
			b.failed = append(b.failed, r.by)
		}
		ok = false
	}
	if !ok {
		r = &round{by: from}
		if forgotten, over := b.rounds.put(piece, r); over {
			b.lost.Grow(forgotten)
		}
	}
	r.blocks.Grow(block)
	r.by = r.by.common(from)
	if !slices.Contains(r.from, from) && len(r.from) < maxSenders {
		r.from = append(r.from, from)
	}
	r.kept = r.kept || kept
}

// blocksOf is how many blocks of an unfinished piece have come.
func (b *blame) blocksOf(piece int) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r, ok := b.rounds.get(piece); ok {
		n = r.count()
	}
	return n
}

func (r *round) count() (blocks int) {
	for _, word := range r.blocks {
		blocks += bits.OnesCount64(word)
	}
	return blocks
}

// sendersOf are the senders of a piece with that number of blocks; nil if a block is missing, or if
// the sender of one is unknown.
func (b *blame) sendersOf(piece, blocks int) []suspect {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.rounds.get(piece)
	if !ok || r.count() != blocks || r.kept || b.lost.Has(piece) {
		return nil
	}
	return slices.Clone(r.from)
}

// unfinishedOf are the unfinished pieces with blocks of accused senders.
func (b *blame) unfinishedOf(accused func(suspect) bool) (pieces []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.rounds.order {
		if r, ok := b.rounds.get(p); ok && slices.ContainsFunc(r.from, accused) {
			pieces = append(pieces, p)
		}
	}
	return pieces
}

// blocksIn is the number of blocks in length bytes.
func blocksIn(length int64) int { return int((length + 1<<blockBits - 1) >> blockBits) }

// complete forgets a piece that was found right.
func (b *blame) complete(piece int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rounds.keep(func(p int, _ *round) bool { return p != piece })
}

// distrust is called when blocks are needed again because the disk has lost or refused them. A
// block that comes a second time then proves nothing, so no unfinished piece is judged.
func (b *blame) distrust() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rounds.keep(func(p int, _ *round) bool {
		b.lost.Grow(p)
		return false
	})
}

// judge returns the names of guilty suspects. wrong is the number of wrong pieces that the engine
// has counted. If more pieces than that were fetched again, the disk was the reason, and nobody is
// guilty.
func (b *blame) judge(wrong int64) (guilty []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	failed := b.failed
	b.failed = nil
	if b.counted += int64(len(failed)); b.counted > wrong {
		b.counted = wrong
		return nil
	}
	for _, s := range failed {
		for _, name := range s.names() {
			n, _ := b.wrong.get(name)
			if b.wrong.put(name, n+1); n+1 == wrongPieces {
				guilty = append(guilty, name)
			}
		}
	}
	return guilty
}
