package wire

import (
	"testing"
	"time"
)

// Silence is long where blocks come rarely, or from far away, and short where most of what was
// asked for has come.
func TestWaiting(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name   string
		blocks int           // that have come
		every  time.Duration // at this distance
		asked  int
		most   int
		idle   bool // another connection is
		rtt    time.Duration
		at     time.Duration
	}{
		{"the first block", 0, 0, 1, 1, false, 0, 32 * s},
		{"the only block, another is idle", 0, 0, 1, 1, true, 0, 8 * s},
		{"the first of two, another is idle", 0, 0, 2, 2, true, 0, 32 * s},
		{"fast, all is missing", 1000, time.Millisecond, 50, 50, false, 0, 10 * s},
		{"fast, stragglers", 1000, time.Millisecond, 2, 50, false, 0, s},
		{"100 kbit/s, 64 requests", 100, 1300 * time.Millisecond, 64, 64, false, 0, 20800 * time.Millisecond},
		{"100 kbit/s, stragglers", 100, 1300 * time.Millisecond, 1, 64, false, 0, 5200 * time.Millisecond},
		{"far away, stragglers", 1000, time.Millisecond, 2, 50, false, 700 * time.Millisecond, 2800 * time.Millisecond},
	} {
		now := time.Unix(1000, 0)
		w := newWaiting()
		for i := range c.most {
			w = w.asks(i, now)
		}
		for range c.blocks {
			now = now.Add(c.every)
			w = w.gets(now)
		}
		if w.over(c.asked, Situation{Idle: c.idle, RTT: c.rtt, Now: now.Add(c.at - time.Millisecond)}) {
			t.Errorf("%s: over before %v", c.name, c.at)
		}
		if !w.over(c.asked, Situation{Idle: c.idle, RTT: c.rtt, Now: now.Add(c.at)}) {
			t.Errorf("%s: not over after %v", c.name, c.at)
		}
		if w.over(0, Situation{Now: now.Add(time.Hour)}) {
			t.Errorf("%s: over though nothing is asked for", c.name)
		}
	}
}

// later is when every request has waited for too long, and there is nobody else to ask.
var later = Situation{Now: time.Now().Add(time.Hour)}

// Taken back, requests are rejected in the peer's name, and what it still says of them does not get
// to the engine.
func TestTakeBack(t *testing.T) {
	s := newStand(t, true)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(encode(msgRequest, blockA))
	if taken, _ := s.filter.TakeBack(Situation{Now: time.Now()}); taken {
		t.Error("taken back at once")
	}
	if taken, _ := s.filter.TakeBack(later); !taken {
		t.Error("not taken back")
	}
	s.peerGets(encode(msgCancel, blockA))
	s.engineGets(suggestion, encode(msgReject, blockA))
	s.sends(piece(blockA), interested)
	s.engineGets(interested)

	// The same once more: now the peer has two answers to give.
	s.says(encode(msgRequest, blockA))
	s.filter.TakeBack(later)
	s.peerGets(encode(msgCancel, blockA))
	s.engineGets(suggestion, encode(msgReject, blockA))
	s.says(encode(msgRequest, blockA))
	s.sends(encode(msgReject, blockA), piece(blockA), interested)
	s.engineGets(piece(blockA), interested)
	if len(s.filter.late)+len(s.filter.requested) > 0 {
		t.Errorf("still expected: %v, %v", s.filter.late, s.filter.requested)
	}
}

// A peer without the fast extension loses nothing: the engine takes its blocks when they come.
func TestTakeBackWithoutFastExtension(t *testing.T) {
	s := newStand(t, false)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(encode(msgRequest, blockA))
	s.filter.TakeBack(later)
	s.peerGets(encode(msgCancel, blockA))
	s.engineGets(choke, unchoke)
	s.sends(piece(blockA))
	s.engineGets(piece(blockA))
}

// A peer that does not answer is asked less and less often while there are others, and as ever
// after its next block.
func TestSnub(t *testing.T) {
	const s = time.Second
	now := time.Unix(1000, 0)
	var x snub
	for i, want := range []time.Duration{30 * s, 60 * s, 120 * s, 240 * s, 240 * s} {
		x = x.takesBack(true, now)
		if x.until != now.Add(want) {
			t.Errorf("round %d: not asked for %v, want %v", i, x.until.Sub(now), want)
		}
		if x = x.over(true, now.Add(want-1)); x.until.IsZero() {
			t.Errorf("round %d: asked too early", i)
		}
		if again := x.takesBack(true, now.Add(want-1)); again.until != x.until {
			t.Errorf("round %d: a late request makes it longer", i)
		}
		if y := x.over(false, now); !y.until.IsZero() {
			t.Errorf("round %d: not asked though it is the only one", i)
		}
		now = now.Add(want)
		if x = x.over(true, now); !x.until.IsZero() {
			t.Errorf("round %d: not asked in time", i)
		}
	}
	x = x.takesBack(true, now).gets()
	if !x.until.IsZero() {
		t.Error("not asked though it has sent a block")
	}
	if x = x.takesBack(true, now); !x.until.IsZero() {
		t.Error("one forgotten block is held against a peer that answers")
	}
	if x = x.takesBack(true, now); x.until != now.Add(30*s) {
		t.Error("the second in a row is not")
	}
	if x = (snub{}).takesBack(false, now); !x.until.IsZero() {
		t.Error("the only one is not asked")
	}
}

// The engine believes that a peer chokes it that does not answer, whatever the peer says meanwhile,
// until there is a block.
func TestSnubbed(t *testing.T) {
	s := newStand(t, true)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(interested, encode(msgRequest, blockA))
	beside := later
	beside.Others = true
	if taken, snubbed := s.filter.TakeBack(beside); !taken || !snubbed {
		t.Errorf("taken back: %v, snubbed: %v", taken, snubbed)
	}
	s.peerGets(encode(msgCancel, blockA))
	s.engineGets(choke, encode(msgReject, blockA))
	s.writes(encode(msgRequest, blockB)) // before the engine has read of it
	s.peerGets(encode(msgRequest, blockB), encode(msgCancel, blockB))
	if can, asked := s.filter.CanAsk(); can || !asked {
		t.Errorf("can be asked: %v, is asked: %v", can, asked)
	}
	s.sends(choke, unchoke, encode(msgReject, blockB), interested)
	s.engineGets(encode(msgReject, blockB), interested)
	s.filter.EndSnub(true, beside.Now)
	s.sends(piece(blockA)) // too late for the engine
	s.engineGets(unchoke)
	s.says(encode(msgRequest, blockA))
	s.filter.TakeBack(beside)
	s.peerGets(encode(msgCancel, blockA))
	s.engineGets(suggestion, encode(msgReject, blockA)) // it has sent a block
	s.says(encode(msgRequest, blockA))
	s.filter.TakeBack(beside)
	s.peerGets(encode(msgCancel, blockA))
	s.engineGets(choke, encode(msgReject, blockA))
	s.filter.EndSnub(false, beside.Now)
	s.engineGets(unchoke)
}

// A block takes too long from its first byte on, however it comes, and not after its last.
func TestEndlessBlock(t *testing.T) {
	now := time.Unix(1000, 0)
	w := newWaiting().asks(0, now).gets(now)
	for range 10 {
		now = now.Add(messagePatience / 10)
		w = w.comes(true, true, now)
	}
	if !w.endless(now) || w.endless(now.Add(-1)) {
		t.Error("not after its time")
	}
	if w = w.comes(true, false, now); w.endless(now.Add(time.Hour)) {
		t.Error("a block that has come")
	}

	s := newStand(t, true)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(encode(msgRequest, blockA, blockB))
	s.sends(piece(blockA)[:50])
	s.engineGets(piece(blockA)[:50])
	s.filter.Nudge() // interrupts the reader
	if !s.filter.Endless(time.Now().Add(messagePatience)) {
		t.Error("the first half of a block")
	}
	s.sends(piece(blockA)[50:], interested)
	s.engineGets(piece(blockA)[50:], interested)
	if s.filter.Endless(time.Now().Add(messagePatience)) {
		t.Error("the whole block")
	}
	s.sends(piece(blockB), interested)
	s.engineGets(piece(blockB), interested)
	if s.filter.Endless(time.Now().Add(messagePatience)) {
		t.Error("a block at once")
	}
}

// In the middle of a message the engine cannot be told that requests are taken back. So no message
// may take for ever.
func TestEndlessMessage(t *testing.T) {
	s := newStand(t, true)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(encode(msgRequest, blockA))
	long := append([]byte{0, 0, 1, 0, msgBitfield}, make([]byte, 255)...)
	s.sends(interested, long[:50])
	s.engineGets(interested, long[:50])
	s.filter.TakeBack(later)
	s.peerGets(encode(msgCancel, blockA))
	s.sends(long[50:60])
	s.engineGets(long[50:60]) // not of the reject yet
	if !s.filter.Endless(time.Now().Add(messagePatience)) {
		t.Error("a message may come for ever")
	}
	s.sends(long[60:], interested, long[:50])
	s.engineGets(long[60:], suggestion, encode(msgReject, blockA), interested, long[:50])
	if s.filter.Endless(time.Now().Add(messagePatience / 2)) {
		t.Error("the next message has just begun")
	}
	s.sends(long[50:], interested)
	s.engineGets(long[50:], interested)
	if s.filter.Endless(time.Now().Add(messagePatience)) {
		t.Error("the whole message")
	}
}

// Before the reject of its last request the engine reads of a suggestion, unless nothing but
// rejects comes.
func TestLastRequestRejected(t *testing.T) {
	s := newStand(t, true)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(encode(msgRequest, blockA, blockB))
	s.sends(piece(blockA), encode(msgReject, blockB))
	s.engineGets(piece(blockA), suggestion, encode(msgReject, blockB))
	s.says(encode(msgRequest, blockB))
	s.sends(encode(msgReject, blockB))
	s.engineGets(encode(msgReject, blockB))
}

// Requests for pieces that are no longer wanted are cancelled, and others stay. The peer answers,
// and the engine hears it.
func TestWithdraw(t *testing.T) {
	s := newStand(t, true)
	s.sends(unchoke)
	s.engineGets(unchoke)
	other := block{2, 0, 100}
	s.says(encode(msgRequest, blockA), encode(msgRequest, other))
	if s.filter.Withdraw(func(int) bool { return true }) || !s.filter.Withdraw(func(piece int) bool { return piece == 2 }) {
		t.Error("wanted requests were taken back, or others were not")
	}
	s.peerGets(encode(msgCancel, blockA))
	s.sends(piece(other), encode(msgReject, blockA))
	s.engineGets(piece(other), suggestion, encode(msgReject, blockA))
	if s.filter.Withdraw(func(int) bool { return false }) {
		t.Error("requests were taken back where there are none")
	}
}

// A peer that answers no cancels is not waited for. What it sends still is of use.
func TestWithdrawWithoutFastExtension(t *testing.T) {
	s := newStand(t, false)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(encode(msgRequest, blockA))
	s.filter.Withdraw(func(int) bool { return false })
	s.peerGets(encode(msgCancel, blockA))
	s.engineGets(choke, unchoke)
	s.sends(piece(blockA))
	s.engineGets(piece(blockA))
}

// A peer that answers no cancels is not waited for when it is parked. What it sends still does not
// end the connection.
func TestParkPeerThatIgnoresCancels(t *testing.T) {
	old := hello(true)
	copy(old[handshakeSize-20:], "-TR3000-")
	s := newStandWith(t, old)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(encode(msgRequest, blockA))
	if !s.filter.Park() {
		t.Fatal("not parked")
	}
	s.peerGets(encode(msgCancel, blockA))
	s.engineGets(choke, encode(msgReject, blockA))
	s.writes(encode(msgRequest, blockB), interested) // written before it has read the choke
	s.peerGets(interested)
	s.engineGets(encode(msgReject, blockB))
	s.sends(piece(blockA), interested) // it was on its way
	s.engineGets(interested)
	if len(s.filter.late)+len(s.filter.requested) > 0 {
		t.Errorf("still expected: %v, %v", s.filter.late, s.filter.requested)
	}
}
