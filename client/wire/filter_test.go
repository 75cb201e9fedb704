package wire

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"testing"
	"time"
)

func hello(fast bool) []byte {
	b := make([]byte, handshakeSize)
	copy(b, protocolName)
	if fast {
		b[handshakeHead-1] = 4
	}
	return b
}

func piece(b block) []byte {
	m := binary.BigEndian.AppendUint32(nil, b.length+pieceHead-4)
	m = append(m, msgPiece)
	m = binary.BigEndian.AppendUint32(m, b.index)
	m = binary.BigEndian.AppendUint32(m, b.begin)
	return append(m, make([]byte, b.length)...)
}

// stand is a gate with somebody at either end.
type stand struct {
	t      *testing.T
	filter *Filter
	peer   net.Conn
	read   chan []byte // by the engine, as the portions came
	got    []byte
}

func newStand(t *testing.T, fast bool) *stand { return newStandWith(t, hello(fast)) }

// newStandWith is one whose peer sends that handshake.
func newStandWith(t *testing.T, theirHello []byte) *stand {
	ours, theirs := net.Pipe()
	s := &stand{t: t, filter: newFilter(ours), peer: theirs, read: make(chan []byte)}
	t.Cleanup(func() {
		s.filter.close()
		ours.Close()
		theirs.Close()
		for range s.read {
		}
	})
	go func() {
		defer close(s.read)
		for {
			b := make([]byte, 1000)
			n, err := s.filter.Read(b)
			if n > 0 {
				s.read <- b[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	s.sends(theirHello)
	s.engineGets(theirHello)
	s.says(hello(true))
	return s
}

// sends has the peer write.
func (s *stand) sends(messages ...[]byte) {
	s.t.Helper()
	go s.peer.Write(slices.Concat(messages...)) //nolint:errcheck // whoever waits for it tells
}

func (s *stand) engineGets(messages ...[]byte) {
	s.t.Helper()
	want := slices.Concat(messages...)
	for len(s.got) < len(want) {
		s.got = append(s.got, <-s.read...)
	}
	if !bytes.Equal(s.got[:len(want)], want) {
		s.t.Fatalf("the engine has got %x, want %x", s.got, want)
	}
	s.got = s.got[len(want):]
}

// says has the engine write, and the peer get what it wrote.
func (s *stand) says(messages ...[]byte) {
	s.t.Helper()
	s.writes(messages...)
	s.peerGets(messages...)
}

func (s *stand) writes(messages ...[]byte) { go s.filter.Write(slices.Concat(messages...)) } //nolint:errcheck // as above

func (s *stand) peerGets(messages ...[]byte) {
	s.t.Helper()
	want := slices.Concat(messages...)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(s.peer, got); err != nil || !bytes.Equal(got, want) {
		s.t.Fatalf("the peer has got %x (%v), want %x", got, err, want)
	}
}

var (
	choke, unchoke            = plain(msgChoke), plain(msgUnchoke)
	interested, notInterested = plain(msgInterested), plain(msgNotInterested)
	blockA, blockB            = block{1, 0, 100}, block{1, 100, 100}
)

// Parked, the engine is choked, the peer is asked to forget the requests, and answers each.
func TestParkAndReturn(t *testing.T) {
	s := newStand(t, true)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(interested, encode(msgRequest, blockA))
	for range 2 { // the second time changes nothing
		if !s.filter.Park() {
			t.Fatal("cannot park")
		}
	}
	s.peerGets(encode(msgCancel, blockA))
	s.engineGets(choke) // though the peer has sent nothing

	s.writes(encode(msgRequest, blockB)) // before the engine knew
	s.peerGets(encode(msgRequest, blockB), encode(msgCancel, blockB))
	s.sends(piece(blockA), encode(msgReject, blockB), choke, unchoke, []byte{0, 0, 0, 5, msgAllowedFast, 0, 0, 0, 1}, interested)
	s.engineGets(piece(blockA), encode(msgReject, blockB), interested)

	s.filter.Unpark()
	s.engineGets(unchoke)
	s.filter.Park()
	s.engineGets(choke) // and nothing is left to be cancelled
	s.sends(choke, interested)
	s.engineGets(interested)
	s.filter.Unpark()
	s.sends(notInterested)
	s.engineGets(notInterested) // no unchoke: the peer chokes us
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(encode(msgRequest, blockA))
}

// A peer that is told of very many pieces is told of them as it reads, between what else there is
// for it, and each once.
func TestRevealAllInPortions(t *testing.T) {
	const pieces = 5 * portion
	s := newStand(t, true)
	s.filter.Conceal()
	s.filter.RevealAll(FullBitset(pieces))
	all := encodeHaves(0, pieces)
	s.writes(plain(msgHaveAll), unchoke)
	if waits := func() int {
		s.filter.mu.Lock()
		defer s.filter.mu.Unlock()
		return len(s.filter.forPeer)
	}(); waits > 9*portion {
		t.Errorf("%d bytes wait for the peer", waits)
	}
	s.peerGets(plain(msgHaveNone))
	got := make([]byte, len(all)+len(unchoke))
	if _, err := io.ReadFull(s.peer, got); err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(got, unchoke)
	if at < 0 || at%9 != 0 || at > 9*portion {
		t.Fatalf("the engine's message comes %d bytes later", at)
	}
	if !bytes.Equal(slices.Delete(got, at, at+len(unchoke)), all) {
		t.Error("not told of each piece once")
	}
	s.filter.RevealAll(nil)
	s.says(choke)
}

func encodeHaves(from, to int) (b []byte) {
	for i := from; i < to; i++ {
		b = append(b, haves(i)...)
	}
	return b
}

// In the middle of a message, what the gate has to say comes behind it. The engine gets no block of
// a suspended peer, not even what is on its way already, and its requests are rejected.
func TestSuspend(t *testing.T) {
	a, b, c := block{1, 0, 16}, block{1, 16, 16}, block{2, 0, 16}
	s := newStand(t, true)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(interested, encode(msgRequest, a))
	s.filter.Suspend()
	s.engineGets(choke, encode(msgReject, a))
	s.peerGets(encode(msgCancel, a))
	if can, _ := s.filter.CanAsk(); can || !s.filter.CouldAsk() {
		t.Error("a suspended peer can be asked, or could not")
	}
	s.writes(encode(msgRequest, b)) // before it has read the choke
	s.engineGets(encode(msgReject, b))
	s.sends(piece(a), piece(c), encode(msgHave, block{index: 5}))
	s.engineGets(encode(msgHave, block{index: 5}))
	s.filter.Resume()
	s.engineGets(unchoke)
	s.says(encode(msgRequest, a))
	s.sends(piece(a))
	s.engineGets(piece(a))
}

// The same with a peer that knows no rejects.
func TestSuspendWithoutFastExtension(t *testing.T) {
	a := block{1, 0, 16}
	s := newStand(t, false)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(interested, encode(msgRequest, a))
	s.filter.Suspend()
	s.engineGets(choke)
	s.peerGets(encode(msgCancel, a))
	s.sends(piece(a), encode(msgHave, block{index: 5}))
	s.engineGets(encode(msgHave, block{index: 5}))
	s.filter.Resume()
	s.engineGets(unchoke)
	s.says(encode(msgRequest, a))
	s.sends(piece(a))
	s.engineGets(piece(a))
}

// A block that was to come from disk and is not there any more is not requested of a suspended
// peer, whose answer would be dropped: the engine hears a reject.
func TestSuspendWithoutDisk(t *testing.T) {
	s := newStand(t, true)
	d := &diskWith{blocks: map[block]bool{blockA: false}}
	s.filter.UseDisk(d)
	s.sends(unchoke)
	s.engineGets(unchoke)
	half := piece(blockB)
	s.sends(half[:50])
	s.engineGets(half[:50])
	s.says(interested)
	s.writes(encode(msgRequest, blockA), notInterested)
	s.peerGets(notInterested)
	s.filter.Suspend()
	s.sends(half[50:])
	s.engineGets(half[50:], choke, encode(msgReject, blockA))
	if _, asked := s.filter.CanAsk(); asked {
		t.Error("a suspended peer is asked")
	}
}

// A peer without the fast extension forgets requests that arrive after its choke, and so does the
// engine when it reads the choke. So the filter does not wait for their answers.
func TestRequestCrossesChoke(t *testing.T) {
	s := newStand(t, false)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.sends(choke)
	s.engineGets(choke)
	s.writes(encode(msgRequest, blockA), interested) // written before it has read the choke
	s.peerGets(interested)
	if _, asked := s.filter.CanAsk(); asked {
		t.Error("waits for an answer that cannot come")
	}
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(encode(msgRequest, blockA))
	s.sends(piece(blockA))
	s.engineGets(piece(blockA))
}

func TestParkDuringAPiece(t *testing.T) {
	s := newStand(t, true)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.says(encode(msgRequest, blockA), encode(msgRequest, blockB))
	a, b := piece(blockA), piece(blockB)
	s.sends(a[:50])
	s.engineGets(a[:50])
	s.filter.Park()
	s.peerGets(encode(msgCancel, blockB))
	s.sends(a[50:], b, notInterested[:3])
	s.engineGets(a[50:], choke, b)
	s.sends(notInterested[3:])
	s.engineGets(notInterested)
}

// Barred, the peer is choked, and our engine is asked to forget its requests, and answers each.
func TestBarAndUnbar(t *testing.T) {
	s := newStand(t, true)
	s.sends(interested)
	s.engineGets(interested)
	if !s.filter.PeerInterested() {
		t.Error("not interested")
	}
	s.says(unchoke)
	s.sends(encode(msgRequest, blockA))
	s.engineGets(encode(msgRequest, blockA))
	for range 2 {
		if !s.filter.Bar() {
			t.Fatal("cannot bar")
		}
	}
	s.peerGets(choke)
	s.engineGets(encode(msgCancel, blockA))
	s.says(encode(msgReject, blockA))

	s.sends(encode(msgRequest, blockB)) // before the peer knew, or because it does not care
	s.peerGets(encode(msgReject, blockB))
	s.writes(choke, unchoke, notInterested)
	s.peerGets(notInterested)

	s.filter.Unbar()
	s.peerGets(unchoke)
	s.sends(encode(msgRequest, blockB))
	s.engineGets(encode(msgRequest, blockB))
	s.says(piece(blockB))
	s.filter.Bar()
	s.peerGets(choke)
	s.writes(choke, interested)
	s.peerGets(interested)
	s.filter.Unbar()
	s.writes(notInterested)
	s.peerGets(notInterested) // no unchoke: the engine chokes
}

// Where the peer has no rejects the gate does not close and nothing is changed.
func TestGateThatCannotClose(t *testing.T) {
	s := newStand(t, false)
	s.sends(unchoke)
	s.engineGets(unchoke)
	if s.filter.Park() || s.filter.Bar() {
		t.Error("closed without the fast extension")
	}
}

// What is not BitTorrent does not get to the engine.
func TestForeignStream(t *testing.T) {
	g := newFilter(&portions{rest: []byte("\x13BitTorrent protocox, and more of it"), r: rand.New(rand.NewPCG(1, 1))})
	if b, err := io.ReadAll(g); len(b) > 0 || err != errForeign { //nolint:errorlint // not wrapped
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if _, err := g.Write([]byte("GET /")); err == nil {
		t.Error("something else is written")
	}
}

// However a stream is cut into portions, and whatever it says, the same passes as when it comes
// whole, and what passes is the stream without the messages that are not kept.
func FuzzFraming(f *testing.F) {
	b := slices.Concat(hello(true), unchoke, piece(blockA), []byte{0, 0, 0, 0}, encode(msgRequest, blockA, blockB), choke, piece(block{2, 3, 40}))
	f.Add(b, uint64(1))
	f.Add(append(hello(false), 0xff, 0xff, 0xff, 0xff, 7, 0), uint64(2))
	f.Add([]byte("\x13BitTorrent protocox"), uint64(3))
	f.Add([]byte("\x00\x00\x00\x01\x00"), uint64(4))
	f.Add(append(hello(true), 0, 0, 0, 2, 0, 0, 0, 0, 0, 3, 7, 1, 1), uint64(5))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		keep := func(seen *[]message) func(message) verdict {
			return func(m message) verdict {
				*seen = append(*seen, m)
				if m.kind == msgChoke || m.kind == msgRequest {
					return drop
				}
				return pass
			}
		}
		var whole, parts framing
		var all, some []message
		consumed, drops, _ := whole.scan(stream, false, keep(&all))
		want := without(slices.Clone(stream[:consumed]), drops)

		r := rand.New(rand.NewPCG(seed, 1))
		var got, ahead []byte
		for rest := stream; len(rest) > 0; {
			n := 1 + r.IntN(min(len(rest), 40))
			b := append(ahead, rest[:n]...)
			rest = rest[n:]
			for _, stop := range []bool{r.IntN(3) == 0, false} { // and then on, behind the boundary
				consumed, drops, _ := parts.scan(b, stop, keep(&some))
				got = append(got, without(slices.Clone(b[:consumed]), drops)...)
				b = b[consumed:]
			}
			if ahead = slices.Clone(b); len(ahead) >= leastBuffer && !parts.foreign {
				t.Fatalf("%d bytes held back", len(ahead))
			}
		}
		if !bytes.Equal(got, want) || !slices.Equal(all, some) {
			t.Errorf("in portions %x %v, whole %x %v", got, some, want, all)
		}
	})
}

// In whatever portions the bytes come and are taken, and however often the gate is closed and
// opened meanwhile, the engine gets every message of the peer once, in order, and whole.
func TestGatePassesEverything(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		stream := slices.Concat(hello(true), unchoke)
		for range 60 {
			stream = append(stream, piece(block{r.Uint32(), r.Uint32(), r.Uint32N(300)})...)
			stream = append(stream, encode(msgReject, block{1, 2, r.Uint32()})...)
		}
		wire := &portions{rest: stream, r: r}
		g := newFilter(wire)
		if _, err := g.Write(hello(true)); err != nil {
			t.Fatal(err)
		}
		var got []byte
		for {
			switch r.IntN(4) {
			case 0:
				g.Park()
			case 1:
				g.Unpark()
			}
			b := make([]byte, 1+r.IntN(1<<r.IntN(12)))
			n, err := g.Read(b)
			got = append(got, b[:n]...)
			if err != nil {
				break
			}
		}
		var f framing
		keep := func(m message) verdict {
			if m.kind > msgUnchoke {
				return pass
			}
			return drop
		}
		_, drops, _ := f.scan(got, false, keep)
		_, want, _ := new(framing).scan(stream, false, keep)
		if !bytes.Equal(without(got, drops), without(slices.Clone(stream), want)) {
			t.Fatalf("seed %d: other bytes than the peer's", seed)
		}
	}
}

// portions is a connection whose bytes come a few at a time.
type portions struct {
	net.Conn
	rest []byte
	all  []byte // for who wants to know
	r    *rand.Rand
	late bool // the deadline is over
}

func (p *portions) Read(b []byte) (int, error) {
	switch {
	case p.late:
		return 0, os.ErrDeadlineExceeded
	case len(b) == 0:
		panic("an empty read")
	case len(p.rest) == 0:
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(len(p.rest), 1+p.r.IntN(1<<p.r.IntN(12)))])
	p.rest = p.rest[n:]
	return n, nil
}

func (p *portions) Write(b []byte) (int, error) {
	if len(b) == 0 {
		panic("an empty write")
	}
	return len(b), nil
}

func (p *portions) SetReadDeadline(t time.Time) error {
	p.late = !t.IsZero()
	return nil
}

// Who asks on and on while it is barred, and does not read the answers, takes no memory.
func TestBarredPeerThatFloods(t *testing.T) {
	s := newStand(t, true)
	s.says(unchoke)
	s.filter.Bar()
	s.peerGets(choke)
	flood := encode(msgRequest, make([]block, 1000)...)
	s.sends(bytes.Repeat(flood, 200), notInterested)
	s.engineGets(notInterested) // which has passed all of the requests by
	s.filter.mu.Lock()
	defer s.filter.mu.Unlock()
	if n := len(s.filter.forPeer); n > (64<<10)+blockHead {
		t.Errorf("%d bytes wait for a peer that does not read", n)
	}
}

// Who asks for more each time that it is served, and does not read the answers, takes no memory
// either.
func TestServedPeerThatFloods(t *testing.T) {
	s := newStand(t, true)
	s.says(unchoke)
	go func() {
		for range s.read {
		}
	}()
	for turn := range uint32(20) {
		s.filter.Unbar()
		var flood []byte
		for i := range uint32(1000) {
			flood = append(flood, encode(msgRequest, block{turn, i << 14, 1 << 14})...)
		}
		for _, b := range [][]byte{flood, interested} { // the filter reads the second after the first
			if _, err := s.peer.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		s.filter.Bar()
	}
	s.filter.mu.Lock()
	defer s.filter.mu.Unlock()
	if n := len(s.filter.forPeer); n > maxUnsaid+maxServing*blockHead {
		t.Errorf("%d bytes wait for a peer that does not read", n)
	}
}

func BenchmarkGateRead(b *testing.B) {
	stream := hello(true)
	for range 64 {
		stream = append(stream, piece(block{0, 0, 16 << 10})...)
	}
	head := len(hello(true))
	g := newFilter(&endless{all: stream, from: head})
	buf := make([]byte, 64<<10)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if _, err := io.ReadFull(g, buf); err != nil {
			b.Fatal(err)
		}
	}
}

// endless is a connection that says the same again and again.
type endless struct {
	net.Conn
	all  []byte
	at   int
	from int
}

func (e *endless) Read(b []byte) (int, error) {
	if e.at == len(e.all) {
		e.at = e.from
	}
	n := copy(b, e.all[e.at:])
	e.at += n
	return n, nil
}

// Concealed, the peer is told that there is nothing, and then of what is revealed, before or after.
func TestConceal(t *testing.T) {
	for _, c := range []struct {
		name  string
		fast  bool
		says  []byte
		tells []byte
	}{
		{"has all", true, plain(msgHaveAll), plain(msgHaveNone)},
		{"has none", true, plain(msgHaveNone), plain(msgHaveNone)},
		{"bitfield", true, []byte{0, 0, 0, 3, msgBitfield, 0xff, 0x80}, plain(msgHaveNone)},
		{"bitfield for who knows no better", false, []byte{0, 0, 0, 3, msgBitfield, 0xff, 0x80}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, c.fast)
			s.filter.Conceal()
			s.filter.Reveal(7)
			s.writes(interested, c.says, unchoke, haves(3), notInterested)
			s.peerGets(interested, c.tells, unchoke, notInterested, haves(7))
			s.filter.Reveal(3, 9)
			s.peerGets(haves(3, 9))
			s.sends(encode(msgRequest, blockA))
			s.engineGets(encode(msgRequest, blockA))
			s.says(piece(blockA))
		})
	}
	s := newStand(t, true)
	s.says(plain(msgHaveAll), haves(1))
}

// Nudged, the engine reads of a piece that the peer suggests, unless it may not ask anyhow.
func TestNudge(t *testing.T) {
	s := newStand(t, true)
	s.filter.Nudge() // choked
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.filter.Nudge()
	s.engineGets([]byte{0, 0, 0, 5, msgSuggest, 0, 0, 0, 0})
	s.filter.Park()
	s.engineGets(choke)
	s.filter.Nudge()
	s.sends(interested)
	s.engineGets(interested)
}

// The engine is asked for more when half of a batch is there: of a small one if it was meant to be
// small, but not if the torrent has no more to request.
func TestSmallBatch(t *testing.T) {
	for target, asks := range map[int]bool{0: false, 4: true, FirstRequests: false} {
		s := newStand(t, true)
		s.filter.SetTarget(target)
		s.sends(unchoke)
		s.engineGets(unchoke)
		blocks := make([]block, 4)
		for i := range blocks {
			blocks[i] = block{1, uint32(i) * 100, 100}
			s.says(encode(msgRequest, blocks[i]))
		}
		s.sends(piece(blocks[0]), piece(blocks[1]))
		want := [][]byte{piece(blocks[0]), piece(blocks[1])}
		if asks {
			want = append(want, suggestion)
		}
		s.engineGets(want...)
	}
}

// A peer without the fast extension is nudged by a choke that it has not sent.
func TestNudgeWithoutFastExtension(t *testing.T) {
	s := newStand(t, false)
	s.sends(unchoke)
	s.engineGets(unchoke)
	s.filter.Nudge()
	s.engineGets(choke, unchoke)
	s.says(encode(msgRequest, blockA))
	s.filter.Nudge() // would take the request back
	s.sends(interested)
	s.engineGets(interested)
}

// A peer hears of the last piece but one together with the last, or when that takes too long.
func TestLastTwo(t *testing.T) {
	s := newStand(t, true)
	if err := s.filter.SetPieces(5); err != nil {
		t.Fatal(err)
	}
	s.says(raw(msgBitfield, 0x20), haves(0, 1))
	s.writes(haves(4), interested)
	s.peerGets(interested)
	s.filter.FlushKept(time.Now())
	s.writes(haves(3), notInterested)
	s.peerGets(notInterested, haves(4, 3))

	s = newStand(t, true)
	if err := s.filter.SetPieces(3); err != nil {
		t.Fatal(err)
	}
	s.says(plain(msgHaveNone))
	s.filter.Reveal(0, 1)
	s.peerGets(haves(0))
	s.filter.FlushKept(time.Now().Add(lastTwoPatience))
	s.peerGets(haves(1))
	s.says(haves(2))
}

// The engine that braid uses is told of each piece at once.
func TestLastTwoOfKin(t *testing.T) {
	theirs := hello(true)
	copy(theirs[handshakeSize-20:], "-GT0003-")
	s := newStandWith(t, theirs)
	if err := s.filter.SetPieces(2); err != nil {
		t.Fatal(err)
	}
	s.says(plain(msgHaveNone), haves(1))
}

// Messages of peer exchange need no answer. Too many and too long ones do not reach the engine, and
// none of them passes for one about metadata.
func TestNotices(t *testing.T) {
	var x bounds
	now := time.Unix(1, 0)
	notice := message{kind: msgExtended, extension: 2, size: 100}
	for i := range 2 * noticesMost {
		v, err := x.arrived(notice, now)
		if want := map[bool]verdict{true: pass, false: drop}[i < noticesMost]; v != want || err != nil {
			t.Fatalf("message %d: %v, %v", i, v, err)
		}
	}
	if x.answers != 0 {
		t.Errorf("%d answers are expected", x.answers)
	}
	notice.size = maxNotice + 1
	if v, err := x.arrived(notice, now.Add(time.Hour)); v != drop || err != nil {
		t.Errorf("a long message: %v, %v", v, err)
	}
	for payload, questions := range map[string]int{"d8:msg_typei0e5:piecei0ee": 1, "d8:added_s414:8:msg_typei0e.e": 0} {
		m, ok := begin(append([]byte{0, 0, 0, byte(2 + len(payload)), msgExtended, 3}, payload...))
		if x := (bounds{}).departs(m); !ok || x.questions != questions {
			t.Errorf("%q: %d questions", payload, x.questions)
		}
	}
}
