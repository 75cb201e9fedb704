package client

import (
	"encoding/binary"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Silence is long where blocks come rarely, or from far away, and short where most of what was asked for has come.
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
		if w.over(c.asked, around{idle: c.idle, rtt: c.rtt, now: now.Add(c.at - time.Millisecond)}) {
			t.Errorf("%s: over before %v", c.name, c.at)
		}
		if !w.over(c.asked, around{idle: c.idle, rtt: c.rtt, now: now.Add(c.at)}) {
			t.Errorf("%s: not over after %v", c.name, c.at)
		}
		if w.over(0, around{now: now.Add(time.Hour)}) {
			t.Errorf("%s: over though nothing is asked for", c.name)
		}
	}
}

// later is when every request has waited for too long, and there is nobody else to ask.
var later = around{now: time.Now().Add(time.Hour)}

// Taken back, requests are rejected in the peer's name, and what it still says of them does not get to the engine.
func TestTakeBack(t *testing.T) {
	s := newStand(t, true)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(encode(msgRequest, blockA))
	if taken, _ := s.gate.takeBack(around{now: time.Now()}); taken {
		t.Error("taken back at once")
	}
	if taken, _ := s.gate.takeBack(later); !taken {
		t.Error("not taken back")
	}
	s.peerGets(encode(msgCancel, blockA))
	s.engineGets(suggestion, encode(msgReject, blockA))
	s.sends(piece(blockA), interested)
	s.engineGets(interested)

	// The same once more: now the peer has two answers to give.
	s.says(encode(msgRequest, blockA))
	s.gate.takeBack(later)
	s.peerGets(encode(msgCancel, blockA))
	s.engineGets(suggestion, encode(msgReject, blockA))
	s.says(encode(msgRequest, blockA))
	s.sends(encode(msgReject, blockA), piece(blockA), interested)
	s.engineGets(piece(blockA), interested)
	if len(s.gate.late)+len(s.gate.asked) > 0 {
		t.Errorf("still expected: %v, %v", s.gate.late, s.gate.asked)
	}
}

// A peer without the fast extension loses nothing: the engine takes its blocks when they come.
func TestTakeBackWithoutFastExtension(t *testing.T) {
	s := newStand(t, false)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(encode(msgRequest, blockA))
	s.gate.takeBack(later)
	s.peerGets(encode(msgCancel, blockA))
	s.engineGets(choke, unchoke)
	s.sends(piece(blockA))
	s.engineGets(piece(blockA))
}

// A peer that does not answer is asked less and less often while there are others, and as ever after its next block.
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

// The engine believes that a peer chokes it that does not answer, whatever the peer says meanwhile, until there is a block.
func TestSnubbed(t *testing.T) {
	s := newStand(t, true)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(interested, encode(msgRequest, blockA))
	beside := later
	beside.others = true
	if taken, snubbed := s.gate.takeBack(beside); !taken || !snubbed {
		t.Errorf("taken back: %v, snubbed: %v", taken, snubbed)
	}
	s.peerGets(encode(msgCancel, blockA))
	s.engineGets(choke, encode(msgReject, blockA))
	s.writes(encode(msgRequest, blockB)) // before the engine has read of it
	s.peerGets(encode(msgRequest, blockB), encode(msgCancel, blockB))
	if can, asked := s.gate.canAsk(); can || !asked {
		t.Errorf("can be asked: %v, is asked: %v", can, asked)
	}
	s.sends(choke, unchoke, encode(msgReject, blockB), interested)
	s.engineGets(encode(msgReject, blockB), interested)
	s.gate.endSnub(true, beside.now)
	s.sends(piece(blockA)) // too late for the engine
	s.engineGets(unchoke)
	s.says(encode(msgRequest, blockA))
	s.gate.takeBack(beside)
	s.peerGets(encode(msgCancel, blockA))
	s.engineGets(suggestion, encode(msgReject, blockA)) // it has sent a block
	s.says(encode(msgRequest, blockA))
	s.gate.takeBack(beside)
	s.peerGets(encode(msgCancel, blockA))
	s.engineGets(choke, encode(msgReject, blockA))
	s.gate.endSnub(false, beside.now)
	s.engineGets(unchoke)
}

// A block takes too long from its first byte on, however it comes, and not after its last.
func TestEndlessBlock(t *testing.T) {
	now := time.Unix(1000, 0)
	w := newWaiting().asks(0, now).gets(now)
	for range 10 {
		now = now.Add(blockPatience / 10)
		w = w.comes(true, now)
	}
	if !w.endless(now) || w.endless(now.Add(-1)) {
		t.Error("not after its time")
	}
	if w = w.comes(false, now); w.endless(now.Add(time.Hour)) {
		t.Error("a block that has come")
	}

	s := newStand(t, true)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(encode(msgRequest, blockA, blockB))
	s.sends(piece(blockA)[:50])
	s.engineGets(piece(blockA)[:50])
	s.gate.nudge() // interrupts the reader
	if !s.gate.endless(time.Now().Add(blockPatience)) {
		t.Error("the first half of a block")
	}
	s.sends(piece(blockA)[50:], interested)
	s.engineGets(piece(blockA)[50:], interested)
	if s.gate.endless(time.Now().Add(blockPatience)) {
		t.Error("the whole block")
	}
	s.sends(piece(blockB), interested)
	s.engineGets(piece(blockB), interested)
	if s.gate.endless(time.Now().Add(blockPatience)) {
		t.Error("a block at once")
	}
}

// Before the reject of its last request the engine reads of a suggestion, unless nothing but rejects comes.
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

// forgetful seeds a file of which it sends each block once in a number of requests not at all.
type forgetful struct {
	data   []byte
	length int // of a piece
	fast   bool
	every  int  // the request that it forgets
	reject bool // it rejects those
	slow   bool // it sends a byte of those each second
	behind func(net.Conn, Source) (net.Conn, error)
}

func (f forgetful) serve(c net.Conn, src Source) {
	hello := greeting(src, "-XX0001-forgetful")
	hello[25], hello[27] = 0, 0
	if f.fast {
		hello[27] = 4
	}
	field := make([]byte, (src.Layout.Pieces()+7)/8)
	for i := range src.Layout.Pieces() {
		field[i/8] |= 0x80 >> (i % 8)
	}
	if f.behind != nil {
		var err error
		if c, err = f.behind(c, src); err != nil {
			return
		}
	}
	p := newRaw(c)
	if _, err := p.handshake(hello); err != nil {
		return
	}
	p.send(raw(msgBitfield, field...), unchoke)
	for n := 1; ; n++ {
		m, err := p.next()
		if err != nil {
			return
		}
		if m[0] != msgRequest {
			n--
			continue
		}
		i, begin, length := int(binary.BigEndian.Uint32(m[1:])), int(binary.BigEndian.Uint32(m[5:])), int(binary.BigEndian.Uint32(m[9:]))
		switch {
		case n%f.every > 0:
			at := i*f.length + begin
			p.send(raw(msgPiece, slices.Concat(u32(uint32(i), uint32(begin)), f.data[at:at+length])...))
		case f.slow:
			m := raw(msgPiece, slices.Concat(u32(uint32(i), uint32(begin)), make([]byte, length))...)
			for i := range m {
				if _, err := c.Write(m[i : i+1]); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		case f.reject:
			p.send(raw(msgReject, m[1:]...))
		}
	}
}

// seedForgetfully listens and seeds a file of that size.
func seedForgetfully(t *testing.T, size int, f forgetful) (src Source, data string, at Peer) {
	data = t.TempDir()
	writeRandom(t, filepath.Join(data, "file"), size)
	f.length = 32 << 10
	src = makeTorrent(t, filepath.Join(data, "file"), CreateOptions{PieceLength: int64(f.length)}).Source
	f.data = readFile(t, filepath.Join(data, "file"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); f.serve(c, src) }()
		}
	}()
	return src, data, mustPeer(t, l.Addr().String())
}

// A download from a single seed ends, whatever requests the seed forgets or rejects.
func TestForgetfulSeed(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]forgetful{
		"forgets one of a thousand":                         {fast: true, every: 1000},
		"forgets one of a thousand, without fast extension": {every: 1000},
		"rejects every 64th":                                {fast: true, every: 64, reject: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src, data, at := seedForgetfully(t, 32<<20, f)
			fullDownload(t, src, data, at)
		})
	}
}
