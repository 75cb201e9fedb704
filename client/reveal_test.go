package client

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	pp "github.com/anacrolix/torrent/peer_protocol"

	"braid/pathsel"
)

// swarm is what becomes of a revelation where time is counted and rates are divided evenly: senders
// send to whoever waits for them, a piece at a time to each.
type swarm struct {
	*revelation
	pieces   int
	up       float64 // the seed's, in pieces per second
	leechers []*simLeecher
	apart    bool // leechers do not know each other
	now      time.Time
	sent     int // pieces, by the seed
}

type simLeecher struct {
	id       pathsel.PeerID
	up, down float64 // pieces per second
	wants    func(piece int) bool
	gone     bool
	barred   bool
	rate     float64 // from the seed, over the last seconds

	told, has map[int]bool
	flows     map[int]*simFlow // by source: -1 is the seed
}

type simFlow struct {
	piece int
	left  float64
}

func (l *simLeecher) interested() bool {
	for p := range l.told {
		if l.wants(p) && !l.has[p] {
			return true
		}
	}
	return false
}

const simStep = 10 * time.Millisecond

func newSwarm(pieces int, up float64, leechers int) *swarm {
	s := &swarm{revelation: newRevelation(pieces, 1, 1), pieces: pieces, up: up, now: time.Unix(0, 0)}
	for i := range leechers {
		s.leechers = append(s.leechers, &simLeecher{
			id: pathsel.PeerID(fmt.Sprint(i)), up: up, down: up, wants: func(int) bool { return true },
			told: map[int]bool{}, has: map[int]bool{}, flows: map[int]*simFlow{},
		})
	}
	return s
}

// run goes on until all who stay have what they want, and tells how long that took.
func (s *swarm) run(t *testing.T, most time.Duration, each func(at time.Duration)) time.Duration {
	t.Helper()
	begin := s.now
	for step := 0; ; step++ {
		at := s.now.Sub(begin)
		if each != nil {
			each(at)
		}
		if s.done() {
			return at
		}
		if at > most {
			for _, l := range s.leechers {
				t.Logf("%s: %d of %d pieces, told of %d", l.id, len(l.has), s.pieces, len(l.told))
			}
			t.Fatalf("not done after %v", most)
		}
		s.look()
		s.ask()
		s.move()
		s.now = s.now.Add(simStep)
	}
}

func (s *swarm) done() bool {
	for _, l := range s.leechers {
		for p := range s.pieces {
			if !l.gone && l.wants(p) && !l.has[p] {
				return false
			}
		}
	}
	return true
}

func (s *swarm) look() {
	var there []viewing
	for _, l := range s.leechers {
		if !l.gone {
			there = append(there, viewing{id: l.id, served: !l.barred, wants: l.interested(), rate: l.rate})
		}
	}
	for id, pieces := range s.step(s.now, there) {
		for _, l := range s.leechers {
			for _, p := range pieces {
				if l.id == id {
					l.told[p] = true
				}
			}
		}
	}
}

// ask begins a piece from each source that has one to offer.
func (s *swarm) ask() {
	for i, l := range s.leechers {
		if l.gone {
			continue
		}
		coming := map[int]bool{}
		for _, f := range l.flows {
			coming[f.piece] = true
		}
		begin := func(source int, offered func(piece int) bool) {
			if l.flows[source] != nil {
				return
			}
			for k := range s.pieces {
				p := (k + i*s.pieces/len(s.leechers)) % s.pieces
				if offered(p) && l.wants(p) && !l.has[p] && !coming[p] {
					l.flows[source], coming[p] = &simFlow{p, 1}, true
					if source < 0 {
						s.asks(l.id, p, s.now)
					}
					return
				}
			}
		}
		if !l.barred {
			begin(-1, func(p int) bool { return l.told[p] })
		}
		for j, o := range s.leechers {
			if j != i && !s.apart && !o.gone {
				begin(j, func(p int) bool { return o.has[p] })
			}
		}
	}
}

func (s *swarm) move() {
	users := map[int]int{}
	for _, l := range s.leechers {
		for source := range l.flows {
			if !l.gone {
				users[source]++
			}
		}
	}
	for _, l := range s.leechers {
		if l.gone {
			continue
		}
		share := l.down / float64(len(l.flows))
		seen := 0.0
		for source, f := range l.flows {
			up := s.up
			if source >= 0 {
				if s.leechers[source].gone {
					delete(l.flows, source)
					continue
				}
				up = s.leechers[source].up
			}
			moved := min(share, up/float64(users[source])) * simStep.Seconds()
			if source < 0 {
				seen = moved
			}
			if f.left -= moved; f.left > 1e-9 {
				continue
			}
			delete(l.flows, source)
			l.has[f.piece] = true
			s.has(l.id, f.piece, s.now)
			if source < 0 {
				s.sent++
			}
		}
		l.rate += (seen/simStep.Seconds() - l.rate) * simStep.Seconds() / 2
	}
}

// In a swarm each piece is sent once, and all have everything soon after the last one was.
func TestRevealToSwarm(t *testing.T) {
	for _, n := range []int{3, 6, 16} {
		s := newSwarm(400, 20, n)
		took := s.run(t, time.Minute, nil)
		if took > 23*time.Second { // 20 are the limit
			t.Errorf("%d leechers: took %v", n, took)
		}
		if s.sent > 440 {
			t.Errorf("%d leechers: %d pieces sent of 400", n, s.sent)
		}
	}
}

// One leecher alone is not held up, and gets the data in order.
func TestRevealToOne(t *testing.T) {
	for _, up := range []float64{5, 25} {
		s := newSwarm(1000, up, 1)
		least := time.Duration(1000 / up * float64(time.Second))
		if took := s.run(t, time.Hour, nil); took > least+least/50+200*time.Millisecond {
			t.Errorf("%v pieces a second: took %v, not %v", up, took, least)
		}
	}
	s := newSwarm(1000, 100, 1)
	show := s.step(s.now, []viewing{{id: "0", served: true, wants: true}})
	for i, p := range show["0"] {
		if i != p {
			t.Fatalf("shown: %v", show["0"])
		}
	}
}

// Nor does it wait on a long way, where much must be under way at a time.
func TestRevealFarAway(t *testing.T) {
	const pieces, rate, rtt = 5000, 500.0, 300 * time.Millisecond
	r := newRevelation(pieces, 1, 1)
	begin := time.Unix(0, 0)
	now := begin
	type coming struct {
		piece int
		at    time.Time
	}
	var way []coming
	free, got := now, 0
	for ; got < pieces; now = now.Add(simStep) {
		before := got
		for len(way) > 0 && !way[0].at.After(now) {
			r.has("a", way[0].piece, now)
			way, got = way[1:], got+1
		}
		seen := float64(got-before) / simStep.Seconds()
		for _, p := range r.step(now, []viewing{{"a", true, true, seen, rtt, nil}})["a"] {
			r.asks("a", p, now)
			if free.Before(now) {
				free = now
			}
			free = free.Add(time.Duration(float64(time.Second) / rate))
			way = append(way, coming{p, free.Add(rtt)})
		}
	}
	if took := now.Sub(begin); took > 12*time.Second { // 10 is the limit
		t.Errorf("took %v", took)
	}
}

// Leechers that do not know each other get everything from the seed.
func TestRevealToStrangers(t *testing.T) {
	s := newSwarm(400, 20, 4)
	s.apart = true
	if took := s.run(t, 5*time.Minute, nil); took > 90*time.Second { // 80 are the limit
		t.Errorf("took %v", took)
	}
}

// Leechers that cannot upload much are a burden for the seed, which must not wait for them.
func TestRevealToSlowUploaders(t *testing.T) {
	s := newSwarm(400, 40, 4)
	for _, l := range s.leechers {
		l.up = 0.5
	}
	limit := 4 * 400 / 42.0
	if took := s.run(t, 5*time.Minute, nil); took.Seconds() > 1.1*limit+1 {
		t.Errorf("took %v, the limit is %.1f s", took, limit)
	}
}

// Who wants little is not kept waiting behind pieces that it does not want, and these are not kept
// from others.
func TestRevealToWhoWantsLittle(t *testing.T) {
	s := newSwarm(1000, 50, 1)
	s.leechers[0].wants = func(p int) bool { return p >= 900 }
	if took := s.run(t, time.Minute, nil); took > 4*time.Second { // 2 are the limit
		t.Errorf("took %v", took)
	}
	s = newSwarm(400, 20, 6)
	s.leechers[0].wants = func(p int) bool { return p >= 390 }
	if took := s.run(t, time.Minute, nil); took > 24*time.Second {
		t.Errorf("the others took %v", took)
	}
}

// What a peer takes with it when it leaves, or holds on to without an end, others get.
func TestRevealAgain(t *testing.T) {
	s := newSwarm(400, 20, 6)
	took := s.run(t, time.Minute, func(at time.Duration) {
		if at > 10*time.Second {
			s.leechers[5].gone = true
		}
	})
	if took > 25*time.Second {
		t.Errorf("one has left: took %v", took)
	}
	s = newSwarm(400, 20, 6)
	stuck := s.leechers[0]
	stuck.down, stuck.up = 1e-9, 1e-9
	stuck.wants = func(p int) bool {
		return stuck.told[p] && !s.peers[stuck.id].has.Has(p) && len(s.leechers[1].has) < s.pieces
	}
	if took := s.run(t, time.Minute, nil); took > 26*time.Second { // it keeps a sixth of the rate: 24 are the limit
		t.Errorf("one hangs: took %v", took)
	}
	s = newSwarm(400, 20, 3)
	took = s.run(t, time.Minute, func(at time.Duration) {
		s.leechers[0].barred = at > time.Second && at < 15*time.Second
	})
	if took > 25*time.Second {
		t.Errorf("one is held back for a while: took %v", took)
	}
}

// A peer may say whatever it likes.
func TestRevealNonsense(t *testing.T) {
	s := newSwarm(10, 1, 2)
	for _, id := range []pathsel.PeerID{"0", "nobody"} {
		for _, p := range []int{-2, -1, 0, 0, 9, 10, math.MaxInt32} {
			s.asks(id, p, s.now)
			s.has(id, p, s.now)
		}
	}
	s.look()
	for _, p := range []int{-2, -1, 0, 0, 9, 10, math.MaxInt32} {
		s.asks("0", p, s.now)
		s.has("0", p, s.now)
		s.asks("0", p, s.now)
	}
	s.run(t, time.Minute, nil)
	if !s.complete() || s.whole != 2 {
		t.Errorf("%d of 2 peers have everything", s.whole)
	}
	s.leechers[0].gone, s.leechers[1].gone = true, true
	s.look()
	if s.unclaimed != 10 || len(s.peers) != 0 {
		t.Errorf("%d of 10 pieces are fresh when all have left, %d peers", s.unclaimed, len(s.peers))
	}
}

// A peer that has everything leaves nothing to be shown, until it leaves.
func TestRevealBesideWhole(t *testing.T) {
	r := newRevelation(10, 1, 1)
	now := time.Unix(0, 0)
	a, b := viewing{id: "a", served: true}, viewing{id: "b", served: true}
	r.join("b", now)
	r.has("b", 3, now)
	r.hasAll("b")
	r.hasAll("b")
	r.has("b", 4, now)
	r.asks("b", 4, now)
	if show := r.step(now, []viewing{a, b}); len(show) > 0 || !r.complete() {
		t.Errorf("shown at once: %v", show)
	}
	now = now.Add(dryPatience)
	if show := r.step(now, []viewing{a, b}); len(show["a"]) == 0 || len(show["b"]) > 0 {
		t.Errorf("shown to a peer that nobody serves: %v", show)
	}
	if r.step(now, []viewing{a}); r.complete() || r.unclaimed == 0 {
		t.Errorf("it has left: complete %v, %d pieces fresh", r.complete(), r.unclaimed)
	}
}

// check finds the books of a revelation in order.
func (r *revelation) check(t *testing.T) {
	t.Helper()
	claims, left, whole := make([]uint16, len(r.claims)), 0, 0
	for id, p := range r.peers {
		count, ahead, waiting := 0, 0, 0
		for i := range r.claims {
			if lacks := !p.has.Has(i) && !p.shown.Has(i); !p.whole && p.lacking.Has(i) != lacks {
				t.Errorf("%s lacks piece %d: %t; should be %t", id, i, !lacks, lacks)
			}
			if p.claimed.Has(i) {
				claims[i]++
			}
			if p.has.Has(i) {
				count++
			} else if p.shown.Has(i) {
				ahead++
				if p.asked.Has(i) {
					waiting++
				}
			}
		}
		if p.whole {
			whole++
			count, ahead, waiting = len(r.claims), 0, 0
		}
		if p.count != count || p.ahead != ahead || p.waiting != waiting || p.window > p.ahead+len(r.claims) {
			t.Errorf("%s: %d there, %d ahead, %d waiting, window %d; should be %d, %d, %d", id, p.count, p.ahead, p.waiting, p.window, count, ahead, waiting)
		}
	}
	for i, n := range claims {
		if r.fresh.Has(i) != (n == 0) {
			t.Errorf("piece %d: fresh %v with %d claims", i, r.fresh.Has(i), n)
		}
		if n == 0 {
			left++
		}
	}
	if !slices.Equal(claims, r.claims) || left != r.unclaimed || whole != r.whole {
		t.Errorf("claims %v, left %d, whole %d; should be %v, %d, %d", r.claims, r.unclaimed, r.whole, claims, left, whole)
	}
}

// Whatever peers say, in whatever order, and whoever leaves: the books are in order, nobody is told
// twice of a piece, and what is kept of a peer has a limit.
func FuzzReveal(f *testing.F) {
	f.Add(uint8(10), []byte{0, 4, 1, 0, 4, 2, 0, 6, 3, 0x20, 5, 0xff, 0x40, 0, 0, 0x80, 3, 0, 0, 4, 9})
	f.Add(uint8(3), []byte{1, 14, 0, 0x41, 0, 0, 0x21, 0, 0, 0x61, 0, 0, 2, 4, 0, 2, 4, 1, 2, 4, 2})
	f.Add(uint8(10), []byte{0x1c, 5, 0xff, 0x30, 0x30, 0x30}) // everything, in a bitfield
	f.Add(uint8(200), []byte{0, 6, 0, 0, 6, 1, 0xc0, 0, 0, 0xc0, 0, 0, 1, 5, 0xaa, 0x20, 0, 0, 0xe0, 0, 0})
	f.Fuzz(func(t *testing.T, size uint8, script []byte) {
		pieces := max(1, int(size))
		r := newRevelation(pieces, 1, 1)
		now := time.Unix(0, 0)
		const peers = 4
		news, told, gone := make([]pieceNews, peers), make([]map[int]bool, peers), make([]bool, peers)
		for ; len(script) >= 3; script = script[3:] {
			who, value := int(script[0]%peers), script[2]
			if script[0] >= 0x20 { // time passes, and somebody comes, goes, or is no longer served
				now = now.Add(time.Duration(script[0]>>5) * 300 * time.Millisecond)
				gone[who] = value&1 != 0
				var there []viewing
				for i := range peers {
					if gone[i] {
						news[i], told[i] = pieceNews{}, nil
						continue
					}
					if told[i] == nil {
						told[i] = map[int]bool{}
					}
					id := pathsel.PeerID(fmt.Sprint(i))
					r.join(id, now)
					r.hear(id, &news[i], now)
					there = append(there, viewing{
						id: id, served: i != who || value&2 == 0, wants: value&4 == 0,
						rate: float64(value), rtt: time.Duration(value) * time.Millisecond,
					})
				}
				for id, show := range r.step(now, there) {
					i, _ := strconv.Atoi(string(id))
					for _, p := range show {
						if p < 0 || p >= pieces || told[i][p] || r.peers[id].has.Has(p) {
							t.Fatalf("%s is told of %v", id, show)
						}
						told[i][p] = true
					}
				}
				r.check(t)
				continue
			}
			m := &pp.Message{Type: pp.MessageType(script[1]), Index: pp.Integer(value)}
			for i := range 8 * int(value%40) {
				m.Bitfield = append(m.Bitfield, value>>(i%8)&1 != 0)
			}
			x := &news[who]
			x.note(m, pieces)
			if most := (pieces + 63) / 64; len(x.has.words) > most || len(x.asks.words) > most || len(x.has.bits) > most {
				t.Fatalf("too much is kept of a peer: %v", x)
			}
		}
	})
}

// A peer that says the same again and again is heard once, and costs no look.
func TestHeardOnce(t *testing.T) {
	const pieces = 100_000
	var x pieceNews
	field := make([]bool, pieces+8)
	for i := range field {
		field[i] = i%2 == 0
	}
	if !x.note(&pp.Message{Type: pp.Bitfield, Bitfield: field}, pieces) {
		t.Error("a bitfield is no news")
	}
	again := []*pp.Message{
		{Type: pp.Bitfield, Bitfield: field}, {Type: pp.Have, Index: pieces - 2}, {Type: pp.Have, Index: pieces},
		{Type: pp.Have, Index: math.MaxUint32}, {Type: pp.Request, Index: 1}, {Type: pp.HaveNone},
	}
	for i, m := range again {
		if x.note(m, pieces) {
			t.Errorf("message %d is news", i)
		}
	}
	r := newRevelation(pieces, 1, 1)
	r.join("a", time.Time{})
	r.hear("a", &x, time.Time{})
	if p := r.peers["a"]; p.count != pieces/2 || !p.has.Has(pieces-2) || p.has.Has(pieces-1) {
		t.Errorf("it has %d of %d pieces", p.count, pieces/2)
	}
	if r.check(t); len(x.has.words) > 0 {
		t.Error("it is heard again")
	}
	x.note(&pp.Message{Type: pp.Have, Index: 1}, pieces)
	looked := 0
	x.has.empty(func(int) { looked++ })
	if looked != 1 {
		t.Errorf("%d pieces looked at for one message", looked)
	}
}

// "Has all" costs the same on ever new connections, whatever the torrent's size: it claims no
// piece.
func TestHasAllClaimsNothing(t *testing.T) {
	r := newRevelation(1<<20, 1, 1)
	for i := range 100 {
		id := pathsel.PeerID(fmt.Sprint(i))
		r.join(id, time.Time{})
		r.hasAll(id)
		r.step(time.Time{}, []viewing{{id: id, served: true}})
		if p := r.peers[id]; p.claimed.Next(0, nil) >= 0 || p.has.Next(0, nil) >= 0 || r.unclaimed != 1<<20 || len(r.peers) != 1 {
			t.Fatal("pieces were gone over")
		}
	}
}

// The rarest are found wherever they are, each once, and few pieces are gone over for each.
func TestRarest(t *testing.T) {
	const pieces = 100_000
	r := newRevelation(pieces, 1, 1)
	now := time.Unix(0, 0)
	r.join("a", now)
	p := r.peers["a"]
	for i := range pieces {
		if i%1000 != 7 {
			p.show(i, now)
		}
	}
	p.looked = pieces / 2
	for left := pieces / 1000; left > 0; {
		show := r.rarest(p, 3)
		if len(show) != min(3, left) {
			t.Fatalf("%d shown, %d left", len(show), left)
		}
		for _, i := range show {
			if p.shown.Has(i) {
				t.Fatalf("piece %d is shown again", i)
			}
			p.show(i, now)
			left--
		}
	}
	if show := r.rarest(p, 3); len(show) > 0 {
		t.Errorf("%v is left", show)
	}
}

// To find a rare piece takes no memory for each piece.
func TestAllocsOfRareOnes(t *testing.T) {
	r := newRevelation(100_000, 1, 1)
	now := time.Unix(0, 0)
	r.join("a", now)
	p := r.peers["a"]
	for i := range 100_000 {
		p.show(i, now)
	}
	if allocated := testing.AllocsPerRun(10, func() { p.lacking.Set(7); r.rarest(p, 1); p.lacking.Clear(7) }); allocated > 20 {
		t.Errorf("%v allocations", allocated)
	}
}
