package wire

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// raw is a message of that type.
func raw(kind byte, body ...byte) []byte {
	return append(append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+1)), kind), body...)
}

func u32(values ...uint32) (b []byte) {
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

func extended(id byte, payload string) []byte {
	return raw(msgExtended, append([]byte{id}, payload...)...)
}

const (
	extendedHello = "d1:md11:ut_metadatai3eee"
	askMetadata   = "d8:msg_typei0e5:piecei0ee"
)

// Of a peer's requests for metadata only so many get to the engine as have an answer on its way.
func TestMetadataRequestsWait(t *testing.T) {
	s := newStand(t, true)
	ask, answer := extended(1, askMetadata), extended(3, "d8:msg_typei1e5:piecei0e10:total_sizei3ee"+"abc")
	s.sends(bytes.Repeat(ask, maxAnswers+2), interested)
	s.engineGets(bytes.Repeat(ask, maxAnswers))
	s.filter.Nudge() // nothing: it is choked
	s.says(answer)
	s.engineGets(ask)
	s.says(answer, answer)
	s.engineGets(ask, interested)
}

// A reader that is held up ends with its deadline and with the connection, as any other.
func TestHeldReaderEnds(t *testing.T) {
	s := newStand(t, true)
	s.sends(bytes.Repeat(extended(1, askMetadata), maxAnswers+1))
	s.engineGets(bytes.Repeat(extended(1, askMetadata), maxAnswers))
	if err := s.filter.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, more := <-s.read; more {
		t.Error("more is read after the deadline")
	}
}

// While nobody knows how many pieces a torrent has, a peer speaks of no more than it can have.
func TestPiecesOfUnknownTorrent(t *testing.T) {
	have := func(x bounds, index uint32) error {
		_, err := x.arrived(message{kind: msgHave, size: 9, block: block{index: index}}, time.Now())
		return err
	}
	if have(bounds{}, maxPieces-1) != nil || have(bounds{pieces: maxPieces + 1}, maxPieces) != nil {
		t.Error("refused")
	}
	if have(bounds{}, maxPieces) == nil {
		t.Error("let through")
	}
}

// Requests for blocks wait for a peer that does not read, but not without end.
func TestRequestsThatAreNotRead(t *testing.T) {
	s := newStand(t, true)
	s.says(unchoke)
	var flood [][]byte
	for i := range uint32(maxServing + 1) {
		flood = append(flood, encode(msgRequest, block{i, 0, 16 << 10}))
	}
	s.sends(flood...)
	s.engineGets(flood[:leastGiven]...)
	if _, more := <-s.read; more {
		t.Error("the connection goes on")
	}
}

// Whatever both sides say, in whatever portions, and whatever is done with the gate meanwhile: what
// it keeps is bounded, and each side gets whole messages.
func FuzzGate(f *testing.F) {
	flow := func(messages ...[]byte) []byte { return slices.Concat(messages...) }
	f.Add(flow(unchoke, piece(blockA), encode(msgReject, blockB), choke, interested), flow(plain(msgHaveAll), encode(msgRequest, blockA, blockB)), uint64(1), true)
	f.Add(bytes.Repeat(extended(1, askMetadata), 9), bytes.Repeat(extended(3, "d8:msg_typei1e5:piecei0ee"), 3), uint64(2), true)
	f.Add(flow(interested, encode(msgRequest, blockA, blockB), encode(msgCancel, blockA)), flow(unchoke, piece(blockB), encode(msgReject, blockA)), uint64(3), true)
	f.Add(bytes.Repeat(flow(choke, unchoke), 40), flow(encode(msgRequest, blockA), encode(msgCancel, blockA)), uint64(4), false)
	f.Add(flow(raw(msgBitfield, 0xff), raw(msgHave, u32(7)...), raw(msgHaveNone)), flow(raw(msgBitfield, 0x80), haves(1, 2)), uint64(5), true)
	f.Add(flow(extended(0, extendedHello), extended(1, "d8:msg_typei1e5:piecei0ee"), raw(msgHashRequest, make([]byte, 48)...)), extended(3, askMetadata), uint64(6), false)
	f.Fuzz(func(t *testing.T, peer, engine []byte, seed uint64, fast bool) {
		r := rand.New(rand.NewPCG(seed, 9))
		wire := &portions{rest: append(hello(fast), peer...), r: r}
		wire.all = slices.Clone(wire.rest)
		said := slices.Concat(hello(true), engine)
		out := &sink{portions: wire}
		g := newFilter(out)
		g.deadline = time.Unix(2, 0) // nobody waits here
		if err := g.SetPieces(int(seed % 9)); err != nil {
			t.Fatal(err)
		}
		now := time.Unix(0, 0)
		if _, err := g.Write(hello(true)); err != nil {
			t.Fatal(err)
		}
		var got []byte
		for ended := false; !ended || len(engine) > 0; {
			now = now.Add(time.Duration(r.IntN(5)) * time.Second)
			switch r.IntN(13) {
			case 0:
				g.Park()
			case 1:
				g.Unpark()
			case 2:
				g.Bar()
			case 3:
				g.Unbar()
			case 4:
				g.Nudge()
			case 5:
				g.TakeBack(Situation{Others: r.IntN(2) == 0, Now: time.Now().Add(now.Sub(time.Unix(0, 0)))})
			case 6:
				g.EndSnub(r.IntN(2) == 0, now)
				g.FlushKept(time.Now().Add(now.Sub(time.Unix(0, 0))))
			case 7:
				g.Reveal(r.IntN(1 << 10))
			case 8, 9:
				n := min(len(engine), 1+r.IntN(30))
				if _, err := g.Write(engine[:n]); err != nil {
					t.Fatal(err)
				}
				engine = engine[n:]
			default:
				if ended {
					break
				}
				b := make([]byte, 1+r.IntN(1<<r.IntN(10)))
				n, err := g.Read(b)
				got = append(got, b[:n]...)
				ended = err != nil && !g.held || g.held && len(engine) == 0
			}
			g.mu.Lock()
			switch {
			case len(g.serving.asked) > maxServing, len(g.serving.order) > maxOrder, len(g.late) > maxLate, g.bounds.answers > maxAnswers:
				t.Fatalf("%d requests, %d late answers, %d answers", len(g.serving.asked), len(g.late), g.bounds.answers)
			case len(g.forPeer) > maxUnsaid+(1<<10)*blockHead:
				t.Fatalf("%d bytes wait for the peer", len(g.forPeer))
			}
			g.mu.Unlock()
		}
		g.writing.take()
		defer g.writing.leave()
		madeOf(t, "engine", got, wire.all, msgChoke, msgUnchoke, msgSuggest, msgReject, msgCancel)
		madeOf(t, "peer", out.got, said, msgChoke, msgUnchoke, msgReject, msgCancel, msgHave, msgHaveNone)
	})
}

// madeOf checks that a stream consists of messages of another one, in order and whole, and of some
// that a gate makes.
func madeOf(t *testing.T, who string, got, from []byte, kinds ...byte) {
	t.Helper()
	split := func(b []byte) (out [][]byte) {
		for b = b[min(len(b), handshakeSize):]; len(b) >= 4; {
			n := 4 + uint64(binary.BigEndian.Uint32(b))
			if uint64(len(b)) < n {
				return append(out, b)
			}
			out, b = append(out, b[:n]), b[n:]
		}
		return out
	}
	source := split(from)
	all := split(got)
	for i, m := range all {
		if len(m) > 4 && slices.Contains(kinds, m[4]) {
			continue // whoever said it
		}
		at := slices.IndexFunc(source, func(x []byte) bool { return bytes.Equal(x, m) || i == len(all)-1 && bytes.HasPrefix(x, m) })
		if at < 0 {
			t.Fatalf("the %s reads %x, which nobody has said", who, m)
		}
		source = source[at+1:]
	}
}

// sink keeps what is written. Its deadline is over when a gate interrupts the reader.
type sink struct {
	*portions
	got []byte
}

func (s *sink) SetReadDeadline(t time.Time) error {
	s.late = t.Unix() == 1
	return nil
}

func (s *sink) Write(b []byte) (int, error) {
	s.got = append(s.got, b...)
	return len(b), nil
}
