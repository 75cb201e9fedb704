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

	"golang.org/x/net/ipv4"

	"braid/tracker/wire"
)

// udp answers BEP 15. Nothing is stored for a connection: its ID is a keyed function of the peer's host and the time.
type udp struct {
	server *Server
	conn   *net.UDPConn
	prf    cipher.Block
}

// connectionLife is the unit of time in a connection ID, which is taken for one to two of them (BEP 15: a tracker takes it
// for two minutes at least after it was given out).
const connectionLife = 2 * time.Minute

// socketBuffer holds the packets of a tenth of a second at 100 000 a second.
const socketBuffer = 4 << 20

func newUDP(s *Server, c *net.UDPConn) (*udp, error) {
	key := make([]byte, 16)
	rand.Read(key)
	b, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	// The system may grant less, which costs packets under load and nothing else.
	_ = c.SetReadBuffer(socketBuffer)
	_ = c.SetWriteBuffer(socketBuffer)
	return &udp{server: s, conn: c, prf: b}, nil
}

// connectionID is CBC-MAC of two blocks, host and time, cut to 64 bits. Who does not see the answer cannot guess it.
func (u *udp) connectionID(host netip.Addr, epoch uint64) uint64 {
	b := host.As16()
	u.prf.Encrypt(b[:], b[:])
	binary.BigEndian.PutUint64(b[:], binary.BigEndian.Uint64(b[:])^epoch)
	u.prf.Encrypt(b[:], b[:])
	return binary.BigEndian.Uint64(b[:])
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

// read answers packets, as many at a time as the batch says. Nobody of a batch waits for the answer of another but for the
// time that memory takes.
func (u *udp) read(ctx context.Context, batch int) error {
	c := ipv4.NewPacketConn(u.conn) // recvmmsg and sendmmsg, of either family
	in, out := make([]ipv4.Message, batch), make([]ipv4.Message, batch)
	for i := range in {
		in[i].Buffers = [][]byte{make([]byte, wire.MaxUDPRequest+1)}
		out[i].Buffers = [][]byte{make([]byte, 0, wire.MaxUDP)}
	}
	for {
		n, err := c.ReadBatch(in, 0)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return err
			}
			continue // of this packet: a host that cannot be reached, say
		}
		answers, now := 0, time.Now()
		for i := range in[:n] {
			from, ok := in[i].Addr.(*net.UDPAddr)
			if !ok {
				continue
			}
			a := from.AddrPort()
			b := u.answer(ctx, out[answers].Buffers[0][:0], in[i].Buffers[0][:in[i].N], netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), now)
			if len(b) > 0 {
				out[answers].Buffers[0], out[answers].Addr = b, from
				answers++
			}
		}
		for ready := out[:answers]; len(ready) > 0; {
			sent, err := c.WriteBatch(ready, 0)
			if err != nil {
				sent = 1 // the first is lost, as packets are
			}
			ready = ready[sent:]
		}
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
		f := &wire.Failure{Reason: "connect first"} // at most as long as any request
		return f.AppendUDP(out, r.Transaction)
	}
	src := request{transportUDP, wire.Addr{Host: from.Addr(), Port: from.Port()}}
	if err == nil {
		switch r.Action {
		case wire.AnnounceUDP:
			a := &r.Announce
			a.Passkey = passkeyOf(r.URLData)
			var answer wire.Answer
			if answer, err = u.server.announce(ctx, src, a); err == nil {
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

// passkeyOf finds the key in the path and query that a peer has told (BEP 41).
func passkeyOf(url string) string {
	path, query, _ := strings.Cut(url, "?")
	for query != "" {
		var p string
		p, query, _ = strings.Cut(query, "&")
		if k, ok := strings.CutPrefix(p, "passkey="); ok {
			return k
		}
	}
	key, _ := splitPath(path)
	return key
}
