package client

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/anacrolix/torrent"
)

// Fetching a wrong piece again, so that its guilty sender is known.
//
// The engine keeps a hash of every block of a wrong piece. It compares them with the first good
// copy and bans the senders of blocks that differ, or the sender of a whole wrong piece. But if the
// same peers send the piece again, it is wrong again, and so are the other pieces that they send
// meanwhile. So the senders of a wrong piece are suspended, and other peers send it:
//
//	wrong --> others have the piece:  they send it
//	          nobody else does:       one suspect sends it alone, then the next one
//	good, or a suspect is banned, or everybody had a turn --> the suspects are resumed
//
// Either way the first copy tells who is guilty.
type trial struct {
	piece    int
	suspects []suspect
	tried    []engineAddr // suspects' connections that have had a turn
	alone    engineAddr   // the suspect's connection whose turn it is; zero: others send the piece
	blocks   int          // blocks of the piece that were there at the last step
	begun    time.Time
	turn     time.Time // when the turn began
	moved    time.Time // when the last block came
}

const (
	// A turn ends after trialSilence without a block: before its first one, a connection may have
	// to send the blocks of other pieces that it was asked for. It ends after trialTurn in any
	// case, or a peer that sends block by block would hold up all suspects.
	trialSilence, trialTurn = 5 * time.Second, 15 * time.Second
	// During the first trialPause of a trial nothing is requested. So all requests for other pieces
	// are taken back, and the wrong piece is requested first. Otherwise pieces with blocks of the
	// guilty peer would become complete meanwhile, and be wrong, too.
	trialPause = sampleEvery / 4
	// maxTurns is the number of suspects that get a turn. Then all are resumed: more turns would
	// hold up honest suspects for longer than the guilty one can.
	maxTurns = 4
	// maxTrials bounds the pieces that are fetched again in this way. There are more only if many
	// pieces were nearly complete when the first one was found wrong.
	maxTrials = 64
)

// witness is a connection that could be asked for blocks.
type witness struct {
	addr    engineAddr
	suspect suspect
	has     func(piece int) bool
	good    int64 // right pieces to which it has contributed
}

// trials are the wrong pieces that are not settled, in the order in which they were found wrong.
type trials []*trial

// wrong begins the trial of a piece, or adds suspects to it.
func (t trials) wrong(piece int, senders []suspect, now time.Time) trials {
	at := slices.IndexFunc(t, func(x *trial) bool { return x.piece == piece })
	if at < 0 {
		if len(t) == maxTrials {
			return t
		}
		if slices.ContainsFunc(senders, t.accuses) {
			return t // a suspect of another trial has sent a part of it
		}
		at = len(t)
		t = append(t, &trial{piece: piece, begun: now, turn: now, moved: now})
	}
	x := t[at]
	for _, s := range senders {
		if !x.accuses(s) && len(x.suspects) < maxSenders {
			x.suspects = append(x.suspects, s)
		}
	}
	x.blocks = 0
	return t
}

// end ends the trial of a piece.
func (t trials) end(piece int) trials {
	return slices.DeleteFunc(t, func(x *trial) bool { return x.piece == piece })
}

func (t *trial) accuses(s suspect) bool {
	return slices.ContainsFunc(t.suspects, func(x suspect) bool { return x.common(s) != suspect{} })
}

func (t trials) accuses(s suspect) bool {
	return slices.ContainsFunc(t, func(x *trial) bool { return x.accuses(s) })
}

// step returns the trials that go on, and the connections that are suspended meanwhile. there are
// the connections that could be asked, and blocks counts the blocks of a piece that have come.
func (t trials) step(
	now time.Time, there []witness, blocks func(piece int) int, banned func(suspect) bool,
) (trials, map[engineAddr]bool) {
	t = slices.DeleteFunc(t, func(x *trial) bool { return slices.ContainsFunc(x.suspects, banned) })
	for len(t) > 0 && !t[0].proceed(now, there, blocks(t[0].piece), t.accuses) {
		t = t[1:]
	}
	suspended := map[engineAddr]bool{}
	if len(t) == 0 {
		return t, suspended
	}
	pause := now.Sub(t[0].begun) < trialPause
	for _, w := range there {
		if pause || t.accuses(w.suspect) && w.addr != t[0].alone {
			suspended[w.addr] = true
		}
	}
	return t, suspended
}

// proceed chooses whose turn it is. It returns false after the last turn.
func (t *trial) proceed(
	now time.Time, there []witness, blocks int, accused func(suspect) bool,
) bool {
	if blocks != t.blocks {
		t.blocks, t.moved = blocks, now
	}
	over := now.Sub(t.moved) >= trialSilence || now.Sub(t.turn) >= trialTurn
	var next *witness
	for i, w := range there {
		itsTurn := w.addr == t.alone
		if t.alone == (engineAddr{}) {
			itsTurn = !accused(w.suspect)
		}
		switch {
		case !w.has(t.piece):
		case itsTurn && !over:
			return true
		case next != nil && next.good >= w.good:
		case accused(w.suspect) && !slices.Contains(t.tried, w.addr):
			next = &there[i]
		}
	}
	if next == nil || len(t.tried) == maxTurns {
		return false
	}
	t.alone, t.turn, t.moved = next.addr, now, now
	t.tried = append(t.tried, next.addr)
	return true
}

// trialRunner carries trials out.
type trialRunner struct {
	*core
	connector *connector
	trials    trials
	rarest    *rarestFirst
	spoilt    map[int]bool // unfinished pieces with blocks of suspects; they are not requested
	busy      atomic.Bool  // there were trials at the last look
}

// hashed has the transfer's goroutine look at a piece that the engine has found right or wrong. It
// is called without the engine's lock. It waits, so that the engine does not ask for a wrong piece
// again before its senders are suspended.
func (e *trialRunner) hashed(piece int, right bool) {
	var senders []suspect
	if right && !e.busy.Load() {
		return
	}
	if !right {
		d := e.described.Load()
		if d == nil {
			return
		}
		_, length := d.Layout.PieceRange(piece)
		if senders = e.blame.sendersOf(piece, blocksIn(length)); senders == nil {
			return
		}
	}
	e.do(func() { e.onHashed(piece, right, senders) })
}

// onHashed notes that a piece is right, or wrong with blocks of these senders.
func (e *trialRunner) onHashed(piece int, right bool, senders []suspect) {
	e.connector.judge()
	switch {
	case right:
		e.trials = e.trials.end(piece)
	case !slices.ContainsFunc(senders, e.offers.isBanned): // otherwise the guilty one is known
		e.trials = e.trials.wrong(piece, senders, time.Now())
	}
	e.look()
}

// look goes on with the trials, suspends connections and resumes others.
func (e *trialRunner) look() {
	if len(e.trials) == 0 && !e.busy.Load() {
		return
	}
	var there []witness
	rows := slices.Collect(e.peers.connected())
	for _, r := range rows {
		if !r.link.Filter.CouldAsk() {
			continue
		}
		conn := r.link.gauge.Load().conn
		st := conn.Stats()
		there = append(there, witness{
			addr: r.link.addr, suspect: suspectOf(r.link.Origin()),
			good: st.PiecesDirtiedGood.Int64(),
			has:  func(piece int) bool { return conn.Pieces().Contains(uint32(piece)) },
		})
	}
	var suspended map[engineAddr]bool
	e.trials, suspended = e.trials.step(time.Now(), there, e.blame.blocksOf, e.offers.isBanned)
	for _, r := range rows {
		if suspended[r.link.addr] {
			r.link.Filter.Suspend()
		} else {
			r.link.Filter.Resume()
		}
	}
	e.busy.Store(len(e.trials) > 0)
	e.prioritize()
}

// prioritize has the engine request the wrong piece first. Until its trial ends, no other piece
// with blocks of suspects is requested: such a piece might become complete, and be wrong, too. The
// priorities are set at each look, since rarestFirst, a sequential order, the end of a full disk
// and a new selection also set some.
func (e *trialRunner) prioritize() {
	if len(e.trials) == 0 {
		if len(e.spoilt) > 0 {
			clear(e.spoilt)
			e.want.ask(e.torrent)
			e.rarest.forget()
		}
		return
	}
	first := e.trials[0].piece
	for _, piece := range e.blame.unfinishedOf(e.trials.accuses) {
		if piece != first {
			e.spoilt[piece] = true
		}
	}
	for piece := range e.spoilt {
		if piece != first && e.torrent.PieceState(piece).Priority != torrent.PiecePriorityNone {
			e.torrent.SetPriority(piece, torrent.PiecePriorityNone)
		}
	}
	if e.want.pieces[first] != Skip {
		e.torrent.SetPriority(first, torrent.PiecePriorityNow)
	}
}
