package client

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	"braid/pathsel"
)

// What a user interface shows of a transfer besides its Progress.

// PieceState is how far a piece is.
type PieceState byte

// The states of a piece.
const (
	PieceMissing PieceState = iota
	PiecePartial            // some blocks of it are there
	PieceChecked            // it is being hashed, or waits for that
	PieceRight              // it is there and verified
)

// Pieces are the pieces of a torrent. Both slices are empty until it is known what is in the
// torrent.
type Pieces struct {
	State []PieceState
	Peers []int // connected peers that have it
}

// Pieces returns the present state of all pieces; after Close, nothing.
func (t *Transfer) Pieces() (p Pieces) {
	t.do(func() {
		n, _ := t.torrent.Size()
		p.State, p.Peers = make([]PieceState, 0, n), make([]int, n)
		if n == 0 {
			return // seeds have all pieces that a torrent can have, which are four billion
		}
		for _, state := range pieceStates(t.torrent.PieceStateRuns()) {
			switch {
			case isRight(state):
				p.State = append(p.State, PieceRight)
			case state.Hashing || state.QueuedForHash:
				p.State = append(p.State, PieceChecked)
			case state.Partial:
				p.State = append(p.State, PiecePartial)
			default:
				p.State = append(p.State, PieceMissing)
			}
		}
		for _, rows := range t.peers.connectedPeers() {
			for i := range rows[0].link.gauge.Load().conn.Pieces().Iterate {
				if int(i) < n {
					p.Peers[i]++
				}
			}
		}
	})
	return p
}

// PeerProgress is a peer with at least one open connection.
type PeerProgress struct {
	Peer      string // its address, as far as the transport shows it
	Source    PeerSource
	Name      string // of its software, as the peer says; empty: it has not
	Transport string
	Accepted  bool // it has connected to us
	Conns     int  // connections whose handshake is done
	// ReadRate and WriteRate are of all its connections, in bits per second over the last seconds.
	ReadRate, WriteRate     float64
	BytesRead, BytesWritten uint64
	Have                    float64 // share of the pieces that it has, from 0 to 1
	Interested              bool    // we want something of it
	Choked                  bool    // it serves us on none of its connections
	PeerInterested          bool    // it wants something of us
	Held                    bool    // we serve it on none of its connections
	Outstanding             int     // requests that it has not answered yet
}

// Peers returns the peers that are connected now, in the order of their addresses; after Close,
// none.
func (t *Transfer) Peers() (out []PeerProgress) {
	t.do(func() {
		pieces, _ := t.torrent.Size()
		for _, rows := range t.peers.connectedPeers() {
			r := rows[0]
			p := PeerProgress{
				Peer: r.peer.String(), Source: r.from, Transport: r.transport, Accepted: r.accepted,
				Conns: len(rows), Choked: true, Held: true,
			}
			for _, r := range rows {
				p.add(r, pieces)
			}
			out = append(out, p)
		}
	})
	slices.SortFunc(out, func(a, b PeerProgress) int { return cmp.Compare(a.Peer, b.Peer) })
	return out
}

func (p *PeerProgress) add(r *row, pieces int) {
	g := r.link.gauge.Load()
	read, written := r.bytes()
	p.BytesRead, p.BytesWritten = p.BytesRead+read, p.BytesWritten+written
	p.ReadRate, p.WriteRate = p.ReadRate+r.in.rate, p.WriteRate+r.out.rate
	p.Interested = p.Interested || r.link.Filter.Interested()
	p.PeerInterested = p.PeerInterested || r.link.Filter.PeerInterested()
	p.Held = p.Held && r.link.barred
	p.Name = cmp.Or(p.Name, printable(g.conn.Name()))
	p.Choked = p.Choked && !g.unchoked.Load()
	p.Outstanding += g.pending()
	if pieces > 0 {
		p.Have = max(p.Have, float64(g.conn.Stats().RemotePieceCount)/float64(pieces))
	}
}

// maxName is the number of bytes that are kept of a name that a peer gives itself.
const maxName = 64

// printable shortens a name that a stranger has chosen, and removes characters that cannot be
// shown.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, cut(name, maxName))
}

// RefusedPath is a path to a peer that a policy forbids.
type RefusedPath struct {
	Peer string
	pathsel.Refusal
}

// Refused returns the paths that the policies forbid now; after Close, none.
func (t *Transfer) Refused() (out []RefusedPath) {
	t.do(func() {
		for _, p := range t.peers.dialled {
			for _, r := range p.refused {
				out = append(out, RefusedPath{p.peer.String(), r})
			}
		}
	})
	return out
}

// Deliverers returns up to most peers that have delivered data and can be dialled again. After
// Close, it returns none.
func (t *Transfer) Deliverers(most int) (out []Peer) {
	t.do(func() { out = t.peers.deliverers(most) })
	return out
}
