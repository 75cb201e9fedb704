package client

import (
	"sync"

	"braid/client/wire"
	"braid/pathsel"
)

// Who sends wrong data.
//
// The engine bans a peer when a single connection has sent the whole of a wrong piece, or when a good copy shows who was
// wrong. The blocks of a piece that come over several paths, or under several keys, of one bad peer are neither. But what
// all who had a part in a wrong piece have in common, a key or a host, is guilty, whether they are still connected or not.

const (
	// wrongPieces is how many wrong pieces one host or key alone must have sent to be banned by us. One could be the
	// fault of a host that has changed hands; and the engine bans by itself where one connection sent the whole piece.
	wrongPieces = 2
	// maxRounds is the number of pieces on their way about which it is known who had a part in them. More are on their way
	// only if somebody begins pieces and leaves them; the oldest are then judged by the engine alone.
	maxRounds = 4096
	// maxWrong is the number of hosts and keys whose wrong pieces are counted.
	maxWrong = 1024
)

// suspect is who is behind a connection: the key that it has proved to have, and the host, if that is proven. Nothing is
// held against a host whose ISD-AS somebody only claims.
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

// names are those by which a suspect is banned. Hosts and keys cannot be mistaken for each other.
func (s suspect) names() (out []string) {
	if s.host != "" {
		out = append(out, "host "+s.host)
	}
	if s.key != "" {
		out = append(out, "key "+s.key)
	}
	return out
}

// blame finds the guilty ones of one torrent. It is told of every block that was of use, and knows from these that a piece
// was wrong: only then one of its blocks is of use for a second time.
type blame struct {
	// took notes that the engine has got a block, and tells whether it came from our own disk.
	took func(piece int, begin, length int64) bool

	mu      sync.Mutex
	rounds  bounded[int, *round] // pieces on their way
	lost    wire.Bitset          // pieces of whose blocks not all were seen: they are not judged any more
	failed  []suspect            // what all who had a part in a wrong piece have in common
	counted int64                // wrong pieces that were looked at, here or by the engine alone
	wrong   bounded[string, int] // by names
}

// round is one attempt at a piece.
type round struct {
	blocks wire.Bitset
	by     suspect // what all have in common who had a part in it
	kept   bool    // some blocks are of an earlier download: nobody knows who has sent them
}

func newBlame(took func(piece int, begin, length int64) bool) *blame {
	return &blame{took: took, rounds: bounded[int, *round]{most: maxRounds}, wrong: bounded[string, int]{most: maxWrong}}
}

// blockBits is the size of a block, as the engine asks for them: 16 KiB.
const blockBits = 14

// received takes note of a block of use. It is called with the engine's lock held.
func (b *blame) received(piece, begin, length int, from suspect) {
	kept := b.took(piece, int64(begin), int64(length))
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
	r.kept = r.kept || kept
}

// distrust is called when blocks are needed again because the disk has lost them or not taken them. What was seen of the
// pieces on their way says nothing any more.
func (b *blame) distrust() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rounds.keep(func(p int, _ *round) bool {
		b.lost.Grow(p)
		return false
	})
}

// judge returns the names of those who are guilty. wrong is how many wrong pieces the engine has counted so far: if fewer
// than there were second attempts, it was not the peers but the disk, and nobody is to blame. complete tells of which
// pieces nothing needs to be known any more.
func (b *blame) judge(wrong int64, complete func(piece int) bool) (guilty []string) {
	b.mu.Lock()
	failed := b.failed
	b.failed = nil
	pieces := append([]int(nil), b.rounds.order...)
	b.mu.Unlock()
	done := map[int]bool{}
	for _, p := range pieces { // without the lock: complete waits for the engine's, which received is called with
		done[p] = complete(p)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rounds.keep(func(p int, _ *round) bool { return !done[p] })
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
