package client

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/anacrolix/torrent"
	"github.com/anacrolix/torrent/metainfo"
	pp "github.com/anacrolix/torrent/peer_protocol"

	"braid/client/wire"
)

// Peers send the info dictionary of a magnet link, in pieces of 16 KiB (BEP 9). The engine would
// put the pieces of all peers into one buffer, and decode it before it compares the hash. Then any
// peer could spoil the pieces of the others, and 16 MB would take gigabytes of memory. So the
// dictionary is fetched here:
//
//  1. A peer says that it has the dictionary, and its size.    (offer)
//  2. Some of these peers are asked, each for all of it.       (step)
//  3. Pieces are kept for the peer that has sent them.         (received)
//  4. The first dictionary with the right hash is checked, and
//     given to the engine, which sends it to others.           (describer.describe)

const (
	metadataPiece = 16 << 10
	// metadataWindow is how many pieces each peer is asked for at a time. With fewer, a path with a
	// long round trip idles; with more, some seeders end the connection.
	metadataWindow = 16
	// metadataAtOnce is how many peers are asked at once. One may be slow, or may not answer.
	metadataAtOnce = 2
	// One more peer is asked when none has sent anything for metadataPatience, so that silent peers
	// cause no delay, and every metadataTurn in any case, because of peers that send a piece now
	// and then. If it were more often, a slow link would carry the same dictionary many times.
	metadataPatience = time.Second
	metadataTurn     = 10 * time.Second
	// metadataSilence is how long an asked peer may send nothing before it goes to the end of the
	// queue.
	metadataSilence = 5 * time.Second
	// maxMetadataAsked bounds the peers that are asked, and the memory for their dictionaries. The
	// slowest makes room for another.
	maxMetadataAsked = 6
	// maxLiars bounds the hosts that are remembered. Each entry costs a host a whole dictionary.
	maxLiars = 256
)

// Message types of the metadata extension.
const (
	metadataRequest = 0
	metadataData    = 1
	metadataReject  = 2
)

// extensionPeer is the part of the engine's *torrent.PeerConn that is used here.
type extensionPeer interface {
	WriteExtendedMessage(pp.ExtensionName, []byte) error
	Close() error
}

// metadata fetches one info dictionary. It belongs to the transfer's goroutine.
type metadata struct {
	hash    metainfo.Hash
	sources []*metadataSource // a queue
	lied    []netip.Addr      // hosts that have sent a wrong dictionary; asked last
	turn    time.Time         // when the last peer was first asked
	heard   time.Time         // when any of them has last sent a piece
}

// metadataSource is a peer that says it has the dictionary.
type metadataSource struct {
	peer   extensionPeer
	host   netip.Addr
	size   int
	pieces [][]byte  // of the dictionary; nil for missing ones, and while it is not being asked
	asked  int       // how many pieces were asked for, from the first one on
	got    int       // how many of them have come
	since  time.Time // when it was first asked
	heard  time.Time // when it has last sent a piece
}

// metadataMessage is a message to or from a peer, without data.
type metadataMessage struct {
	peer        extensionPeer
	kind, piece int
}

// offer notes that a peer has the dictionary. Peers say so repeatedly.
func (m *metadata) offer(p extensionPeer, host netip.Addr, size int) {
	known := slices.ContainsFunc(m.sources, func(s *metadataSource) bool { return s.peer == p })
	if known || size <= 0 || size > wire.MaxMetadata {
		return
	}
	m.sources = append(m.sources, &metadataSource{peer: p, host: host, size: size})
}

func (m *metadata) leave(p extensionPeer) {
	m.sources = slices.DeleteFunc(m.sources, func(s *metadataSource) bool { return s.peer == p })
}

// received takes an answer of a peer.
func (m *metadata) received(x metadataMessage, data []byte, now time.Time) {
	i := slices.IndexFunc(m.sources, func(s *metadataSource) bool { return s.peer == x.peer })
	if i < 0 {
		return
	}
	switch s := m.sources[i]; {
	case x.kind == metadataReject:
		m.sources = slices.Delete(m.sources, i, i+1)
	case x.kind == metadataData && x.piece < s.asked && s.pieces[x.piece] == nil:
		if len(data) != min(metadataPiece, s.size-x.piece*metadataPiece) {
			m.sources = slices.Delete(m.sources, i, i+1)
			return
		}
		s.pieces[x.piece] = data
		s.got++
		s.heard, m.heard = now, now
	}
}

// parseMetadata reads a message of the metadata extension: a dictionary, followed by data. The
// piece is not negative.
func parseMetadata(b []byte) (x metadataMessage, data []byte, err error) {
	r := newReader(b)
	x.kind, x.piece = -1, -1
	err = r.Dict(func(key []byte) error {
		var to *int
		switch string(key) {
		case "msg_type":
			to = &x.kind
		case "piece":
			to = &x.piece
		default:
			return r.Skip()
		}
		n, err := r.Number()
		if err == nil && (n < 0 || n > wire.MaxMetadata) {
			err = fmt.Errorf("%s is %d", key, n)
		}
		*to = int(n)
		return err
	})
	if err == nil && (x.kind < 0 || x.piece < 0) {
		err = errors.New("it says nothing of its type or piece")
	}
	if err != nil {
		return x, nil, fmt.Errorf("metadata message: %w", err)
	}
	return x, r.Rest(), nil
}

func (x metadataMessage) send() {
	payload := fmt.Appendf(nil, "d8:msg_typei%de5:piecei%dee", x.kind, x.piece)
	// Fails if the peer has disconnected.
	_ = x.peer.WriteExtendedMessage(pp.ExtensionNameMetadata, payload)
}

// step returns the messages to send now, the peers that have sent a wrong dictionary, and the right
// dictionary once it is there.
func (m *metadata) step(
	now time.Time,
) (send []metadataMessage, liars []extensionPeer, info []byte) {
	for _, s := range m.sources {
		if s.pieces == nil || s.got < len(s.pieces) {
			continue
		}
		if info := bytes.Join(s.pieces, nil); sha1.Sum(info) == m.hash {
			return send, liars, info
		}
		liars = append(liars, s.peer)
		m.lied = append(m.lied[max(0, len(m.lied)-maxLiars+1):], s.host)
	}
	lied := func(s *metadataSource) bool { return slices.Contains(liars, s.peer) }
	m.sources = slices.DeleteFunc(m.sources, lied)
	m.rest(now)
	m.begin(now)
	for _, s := range m.sources {
		for s.asked < len(s.pieces) && s.asked-s.got < metadataWindow {
			send = append(send, metadataMessage{s.peer, metadataRequest, s.asked})
			s.asked++
		}
	}
	return send, liars, nil
}

// rest moves silent peers to the end of the queue.
func (m *metadata) rest(now time.Time) {
	for _, s := range m.asked() {
		if now.Sub(s.heard) >= metadataSilence {
			m.putOff(s)
		}
	}
}

// begin chooses the peers to ask from now on.
func (m *metadata) begin(now time.Time) {
	for {
		next := m.next()
		asked := m.asked()
		due := now.Sub(m.turn) >= metadataTurn
		silent := now.Sub(m.turn) >= metadataPatience && now.Sub(m.heard) >= metadataPatience
		if next == nil || len(asked) >= metadataAtOnce && !due && !silent {
			return
		}
		if len(asked) >= maxMetadataAsked {
			if !due {
				return
			}
			m.putOff(slices.MinFunc(asked, func(a, b *metadataSource) int {
				return cmp.Compare(a.rate(now), b.rate(now))
			}))
		}
		// No room for the pieces yet: the size is only a claim.
		next.pieces = make([][]byte, (next.size+metadataPiece-1)/metadataPiece)
		next.since, next.heard, m.turn = now, now, now
	}
}

func (m *metadata) asked() (out []*metadataSource) {
	for _, s := range m.sources {
		if s.pieces != nil {
			out = append(out, s)
		}
	}
	return out
}

// next is the peer to ask next; nil if none waits.
func (m *metadata) next() (next *metadataSource) {
	for _, s := range m.sources {
		if s.pieces != nil {
			continue
		}
		if !slices.Contains(m.lied, s.host) {
			return s
		}
		next = cmp.Or(next, s)
	}
	return next
}

func (s *metadataSource) rate(now time.Time) float64 {
	return float64(s.got) / max(1, now.Sub(s.since).Seconds())
}

// putOff moves a peer that is asked to the end of the queue, where it begins again.
func (m *metadata) putOff(s *metadataSource) {
	m.sources = slices.DeleteFunc(m.sources, func(x *metadataSource) bool { return x == s })
	m.sources = append(m.sources, &metadataSource{peer: s.peer, host: s.host, size: s.size})
}

// The extensions (BEP 10) that connections offer to peers, in the order of their numbers. Hole
// punching (BEP 55) is not among them: peers could name addresses for us to dial. The engine itself
// handles only requests for a known dictionary. It passes over the messages of peer exchange
// (pex.go).
var (
	metadataByEngine = &torrent.LocalLtepProtocolMap{
		Index: append([]pp.ExtensionName{pp.ExtensionNameMetadata}, pexNames[:]...), NumBuiltin: 1,
	}
	metadataByUs = &torrent.LocalLtepProtocolMap{Index: metadataByEngine.Index}
	metadataOnly = &torrent.LocalLtepProtocolMap{Index: metadataByEngine.Index[:1]}
)

const metadataExtension = 1 // its place in Index, from 1
