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

// udp answers BEP 15. Nothing is stored for a connection: its ID is a keyed function of the peer's host and the time.
// It is for one goroutine; copies know each other's connections.
type udp struct {
	server *Server
	prf    cipher.Block
	block  [aes.BlockSize]byte // that is encrypted
	room   []wire.Peer         // for the peers of an answer
}

// connectionLife is the unit of time in a connection ID, which is taken for one to two of them (BEP 15: a tracker takes it
// for two minutes at least after it was given out).
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

// connectionID is CBC-MAC of two blocks, host and time, cut to 64 bits. Who does not see the answer cannot guess it.
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
	// udpBatch is how many packets one system call fetches or sends where answers come from memory.
	udpBatch = 64
	// remoteReaders wait for a remote store at once, each for one packet.
	remoteReaders = 128
)

// serve answers packets, as many at a time as the port fetches. Nobody of a batch waits for the answer of another but for the
// time that memory takes.
func (u *udp) serve(ctx context.Context, p *port) error {
	for {
		if err := p.receive(); err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return err
			}
			continue // of this packet: a host that cannot be reached, say
		}
		now := time.Now()
		for in, from, ok := p.next(); ok; in, from, ok = p.next() {
			if out := u.answer(ctx, p.space(), in, from, now); len(out) > 0 {
				p.add(from, out)
			}
		}
		p.send() // what is refused is lost, as packets are
	}
}

// answer appends the answer to a packet; nothing if it deserves none. Before a peer has shown that it receives what is
// sent to it, it is never sent more than it has sent.
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
	src := request{transport: overUDP, from: wire.Addr{Host: from.Addr().WithZone(""), Port: from.Port()}, at: now, room: u.room}
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
	return wire.FailureOf(err).AppendUDP(out, r.Transaction)
}

// errConnectFirst is at most as long as any request.
var errConnectFirst = &wire.Failure{Reason: "connect first"}

// passkeyOf finds the key in the path and query that a peer has told (BEP 41). As over HTTP, one in the path wins.
func passkeyOf(url string) string {
	path, query, _ := strings.Cut(url, "?")
	if key, _ := splitPath(path); key != "" {
		return key
	}
	for query != "" {
		var p string
		p, query, _ = strings.Cut(query, "&")
		if k, ok := strings.CutPrefix(p, "passkey="); ok {
			return k
		}
	}
	return ""
}
