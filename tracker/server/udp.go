package server

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"braid/tracker/wire"
)

// udp answers BEP 15. It stores nothing for a connection: the ID is a keyed function of the peer's
// host and the time. Each goroutine needs a copy of its own. Copies accept each other's connection
// IDs.
type udp struct {
	server *Server
	prf    cipher.Block
	block  [aes.BlockSize]byte // the input of prf
	room   []wire.Peer         // for the peers of an answer
}

// connectionLife is the unit of time in a connection ID. An ID is valid for one to two of these
// units. BEP 15 asks for at least two minutes.
const connectionLife = 2 * time.Minute

// socketBuffer holds the packets of a tenth of a second at 100 000 a second.
const socketBuffer = 4 << 20

func newUDP(s *Server) (udp, error) {
	key := make([]byte, 16)
	rand.Read(key)
	b, err := aes.NewCipher(key)
	if err != nil {
		return udp{}, fmt.Errorf("make a key: %w", err)
	}
	return udp{server: s, prf: b}, nil
}

// connectionID is the CBC-MAC of two blocks, host and time, cut to 64 bits. Only the receiver of
// the answer can know it.
func (u *udp) connectionID(host netip.Addr, epoch uint64) uint64 {
	u.block = host.As16()
	b := u.block[:]
	u.prf.Encrypt(b, b)
	binary.BigEndian.PutUint64(b, binary.BigEndian.Uint64(b)^epoch)
	u.prf.Encrypt(b, b)
	return binary.BigEndian.Uint64(b)
}

func (u *udp) knows(host netip.Addr, id uint64, now time.Time) bool {
	epoch := epochOf(now)
	return id == u.connectionID(host, epoch) || id == u.connectionID(host, epoch-1)
}

func epochOf(t time.Time) uint64 { return uint64(t.Unix()) / uint64(connectionLife/time.Second) }

const (
	// udpBatch is how many packets one system call fetches or sends if the store is in memory.
	udpBatch = 64
	// waitingReaders is how many packets may wait at a time for a store that is not just memory.
	waitingReaders = 128
)

// serve answers packets in batches. With a store in memory the packets of a batch hardly wait for
// each other.
func (u *udp) serve(ctx context.Context, p *port) error {
	for {
		if err := p.receive(); err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return err
			}
			continue // an error of one packet, such as an unreachable host
		}
		now := time.Now()
		for in, from, ok := p.next(); ok; in, from, ok = p.next() {
			if out := u.answer(ctx, p.space(), in, from, now); len(out) > 0 {
				p.add(from, out)
			}
		}
		p.send() // answers that cannot be sent are lost, as packets can be
	}
}

// answer appends the answer to a packet, or nothing. An answer is never longer than the packet
// until the peer has proven that it receives at its address.
func (u *udp) answer(ctx context.Context, out, in []byte, from netip.AddrPort, now time.Time) []byte {
	r, err := wire.ParseUDP(in)
	if errors.Is(err, wire.ErrNotTracker) {
		return out
	}
	if err == nil && r.Action == wire.Connect {
		return wire.AppendConnectUDP(out, r.Transaction, u.connectionID(from.Addr(), epochOf(now)))
	}
	if !u.knows(from.Addr(), r.Connection, now) {
		return errConnectFirst.AppendUDP(out, r.Transaction)
	}
	src := request{
		transport: overUDP, from: wire.Addr{Host: from.Addr().WithZone(""), Port: from.Port()},
		at: now, room: u.room,
	}
	if err == nil {
		switch r.Action {
		case wire.AnnounceUDP:
			a := &r.Announce
			a.Passkey = passkeyOf(r.URLData)
			var answer wire.Answer
			if answer, err = u.server.announce(ctx, src, a); err == nil {
				u.room = roomier(u.room, answer.Peers)
				return answer.AppendUDP(out, r.Transaction, from.Addr().Is6())
			}
		case wire.ScrapeUDP:
			var counts []wire.Counts
			if counts, err = u.server.scrape(ctx, src, r.Hashes, ""); err == nil {
				return wire.AppendScrapeUDP(out, r.Transaction, counts)
			}
		}
	}
	u.server.refused(src, err)
	return wire.FailureOf(err).AppendUDP(out, r.Transaction)
}

// errConnectFirst is shorter than the shortest request.
var errConnectFirst = &wire.Failure{Reason: "connect first"}

// passkeyOf finds the key in the path or query that a peer sent (BEP 41). As over HTTP, one in the
// path wins.
func passkeyOf(url string) string {
	path, query, _ := strings.Cut(url, "?")
	if key, _ := splitPath(path); key != "" {
		return key
	}
	for p := range strings.SplitSeq(query, "&") {
		if k, ok := strings.CutPrefix(p, "passkey="); ok {
			return k
		}
	}
	return ""
}
