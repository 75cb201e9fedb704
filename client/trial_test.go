package client

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anacrolix/torrent"
)

// Peers that send wrong blocks are banned after at most three wrong pieces, alone and where others
// have a part in every piece; an honest peer never is.
func TestLiars(t *testing.T) {
	t.Parallel()
	const most, length, pieces = 3, 512 << 10, 12
	for name, c := range map[string]struct {
		liars, honest int
		one           bool // a liar's first block of each piece is wrong, otherwise all are
		stalls        int  // a liar answers so many requests, and then none; 0: all
	}{
		"one of three":                     {liars: 1, honest: 2},
		"one of two":                       {liars: 1, honest: 1},
		"one wrong block in each piece":    {liars: 1, honest: 3, one: true},
		"it does not send the piece again": {liars: 1, honest: 2, stalls: 40},
		"two of four":                      {liars: 2, honest: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				data := filepath.Join(dir, "file")
				writeRandom(t, data, length*pieces)
				src := makeTorrent(t, data, CreateOptions{PieceLength: length}).Source
				right := readFile(t, data)
				peers := map[string]func(net.Conn){}
				var liars, honest []suspect
				for i := range c.liars + c.honest {
					f := steady{data: right, length: length, pause: 8 * time.Millisecond}
					a := net.JoinHostPort(net.IPv4(10, byte(i), 0, 1).String(), "1")
					if s := suspectOf(mustPeer(t, a).origin()); i < c.liars {
						first := map[int]int{} // block of each piece
						f.most, f.lies = c.stalls, func(piece, begin int) bool {
							if _, ok := first[piece]; !ok {
								first[piece] = begin
							}
							return !c.one || begin == first[piece]
						}
						liars = append(liars, s)
					} else {
						honest = append(honest, s)
					}
					peers[a] = func(conn net.Conn) { f.serve(conn, src) }
				}
				simulateDownload(t, src, dir, simulated{peers: peers}, func(tr *Transfer) {
					for slices.ContainsFunc(liars, func(s suspect) bool { return !tr.offers.isBanned(s) }) {
						select {
						case <-tr.Done():
							t.Errorf("complete, and not every liar is banned; %d wrong pieces", tr.Progress().Dropped)
							return
						case <-time.After(10 * time.Millisecond):
						}
					}
					lost := tr.Progress().Dropped
					t.Logf("%d wrong pieces until the ban", lost)
					if lost == 0 || lost > most*int64(c.liars) {
						t.Errorf("%d wrong pieces until the ban", lost)
					}
					<-tr.Done()
					if slices.ContainsFunc(honest, tr.offers.isBanned) {
						t.Error("an honest peer is banned")
					}
				})
			})
		})
	}
}

// steady seeds a file with a block each pause, and obeys cancels.
type steady struct {
	data   []byte
	length int // of a piece
	pause  time.Duration
	most   int                         // it answers so many requests; 0: all
	lies   func(piece, begin int) bool // in this block; nil: never
}

func (f steady) serve(c net.Conn, src Source) {
	hello := greeting(src, "-XX0001-steady")
	hello[25], hello[27] = 0, 4
	p := newRaw(c)
	if _, err := p.handshake(hello); err != nil {
		return
	}
	p.send(raw(msgHaveAll), unchoke)
	said := make(chan []byte, 1<<14) // it reads while it writes
	go func() {
		defer close(said)
		for {
			m, err := p.next()
			if err != nil {
				return
			}
			said <- slices.Clone(m)
		}
	}()
	var asked [][]byte // the numbers of the blocks
	hear := func(m []byte) {
		switch m[0] {
		case msgRequest:
			asked = append(asked, m[1:])
		case msgCancel:
			if i := slices.IndexFunc(asked, func(b []byte) bool { return slices.Equal(b, m[1:]) }); i >= 0 {
				asked = slices.Delete(asked, i, i+1)
				p.send(raw(msgReject, m[1:]...))
			}
		}
	}
	for n := 0; ; {
		select {
		case m, ok := <-said:
			if !ok {
				return
			}
			hear(m)
			continue
		case <-time.After(f.pause):
		}
		if len(asked) == 0 || f.most > 0 && n == f.most {
			continue
		}
		b := asked[0]
		asked = asked[1:]
		n++
		piece, begin := int(binary.BigEndian.Uint32(b)), int(binary.BigEndian.Uint32(b[4:]))
		at := piece*f.length + begin
		message := raw(msgPiece, slices.Concat(b[:8], f.data[at:at+int(binary.BigEndian.Uint32(b[8:]))])...)
		if f.lies != nil && f.lies(piece, begin) {
			message[len(message)-1] ^= 0xff
		}
		p.send(message)
	}
}

// When a trial ends, pieces that were not requested meanwhile are requested again, also if the
// suspect is no longer there.
func TestTrialOfSomebodyGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const length = 64 << 10
		dir := t.TempDir()
		data := filepath.Join(dir, "file")
		writeRandom(t, data, 100*length)
		src := makeTorrent(t, data, CreateOptions{PieceLength: length}).Source
		s := steady{data: readFile(t, data), length: length, pause: time.Millisecond}
		sim := simulated{peers: map[string]func(net.Conn){"10.0.0.1:1": func(c net.Conn) { s.serve(c, src) }}}
		simulateDownload(t, src, dir, sim, func(tr *Transfer) {
			gone := suspect{host: "10.0.0.2"}
			simulateUntil(t, tr, func(p Progress) bool { return p.Done > 0 })
			tr.loop.calls <- func() {
				tr.blame.received(91, 0, 16<<10, gone)
				tr.loop.trials.onHashed(90, false, []suspect{gone})
			}
		})
	})
}

// Nothing else that sets priorities has the engine request a piece that a trial leaves out, or a
// wrong piece that is no longer wanted.
func TestPrioritiesDuringTrial(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*loop)
		none   int                   // this piece is not requested
		other  torrent.PiecePriority // of a piece that has nothing to do with the trial
	}{
		"rare pieces": {func(l *loop) {
			l.rarest.memory = &rarest{order: make([]int, 100), first: map[int]bool{91: true}}
			for i := range 100 {
				l.rarest.memory.order[i] = i
			}
		}, 91, torrent.PiecePriorityNormal},
		"a sequential order": {func(l *loop) {
			l.want = newWant(Selection{Sequential: true}, l.want.layout)
			l.want.ask(l.torrent)
		}, 91, torrent.PiecePriorityNext},
		"the disk has room again": {func(l *loop) {
			l.room.onFull(errors.New("no room"))
			l.room.onRoom(nil)
		}, 91, torrent.PiecePriorityNormal},
		"the wrong piece is not wanted": {func(l *loop) {
			l.want.pieces[90], l.want.plain = Skip, false
			l.want.ask(l.torrent)
		}, 90, torrent.PiecePriorityHigh},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const length = 64 << 10
				dir := t.TempDir()
				data := filepath.Join(dir, "file")
				writeRandom(t, data, 100*length)
				src := makeTorrent(t, data, CreateOptions{PieceLength: length}).Source
				s := steady{data: readFile(t, data), length: length, pause: time.Millisecond}
				sim := simulated{peers: map[string]func(net.Conn){"10.0.0.1:1": func(c net.Conn) { s.serve(c, src) }}}
				simulateDownload(t, src, dir, sim, func(tr *Transfer) {
					gone := suspect{host: "10.0.0.2"}
					simulateUntil(t, tr, func(p Progress) bool { return p.Done > 0 })
					tr.do(func() {
						tr.blame.received(91, 0, 16<<10, gone)
						tr.loop.trials.onHashed(90, false, []suspect{gone})
						c.change(tr.loop)
						tr.loop.onSample()
						if p := tr.torrent.PieceState(c.none).Priority; p != torrent.PiecePriorityNone {
							t.Errorf("piece %d has priority %v", c.none, p)
						}
						if p := tr.torrent.PieceState(80).Priority; p != c.other {
							t.Errorf("another piece has priority %v, want %v", p, c.other)
						}
						tr.want = newWant(Selection{}, tr.want.layout)
						tr.want.ask(tr.torrent)
					})
				})
			})
		})
	}
}

// Whose turn it is while a piece is fetched again, and who is suspended.
func TestTrials(t *testing.T) {
	at := func(i byte) engineAddr { return engineAddr{slot: uint16(i)} }
	of := func(i byte) suspect { return suspect{host: fmt.Sprint("10.0.0.", i)} }
	everything := func(int) bool { return true }
	witnessOf := func(i byte, good int64) witness { return witness{at(i), of(i), everything, good} }
	none := func(suspect) bool { return false }
	const start, later = trialPause, trialSilence + trialPause
	for _, c := range []struct {
		name      string
		senders   []suspect
		there     []witness
		banned    func(suspect) bool
		at        []time.Duration // of the steps; no block comes
		suspended []int           // after the last one
		over      bool
	}{
		{"first everybody is", []suspect{of(1)}, []witness{witnessOf(1, 0), witnessOf(2, 0)}, none, []time.Duration{0}, []int{1, 2}, false},
		{"then the suspects are", []suspect{of(1), of(2)}, []witness{witnessOf(1, 0), witnessOf(2, 0), witnessOf(3, 0)}, none,
			[]time.Duration{0, start}, []int{1, 2}, false},
		{"another connection of a suspect is", []suspect{of(1)}, []witness{{at(7), of(1), everything, 0}, witnessOf(3, 0)}, none,
			[]time.Duration{0, start}, []int{7}, false},
		{"if nobody else is there, the suspect who did most sends it", []suspect{of(1), of(2), of(3)},
			[]witness{witnessOf(1, 1), witnessOf(2, 5), witnessOf(3, 2)}, none, []time.Duration{0, start}, []int{1, 3}, false},
		{"then the next", []suspect{of(1), of(2), of(3)}, []witness{witnessOf(1, 1), witnessOf(2, 5), witnessOf(3, 2)}, none,
			[]time.Duration{0, later}, []int{1, 2}, false},
		{"also if nobody else has the piece", []suspect{of(1), of(2)},
			[]witness{witnessOf(1, 1), witnessOf(2, 5), {at(3), of(3), func(int) bool { return false }, 9}}, none, []time.Duration{0, start}, []int{1}, false},
		{"also if nobody else sends it", []suspect{of(1), of(2)}, []witness{witnessOf(1, 1), witnessOf(2, 5), witnessOf(3, 9)}, none,
			[]time.Duration{0, later}, []int{1}, false},
		{"everybody had a turn", []suspect{of(1), of(2)}, []witness{witnessOf(1, 1), witnessOf(2, 5)}, none, []time.Duration{0, later, 2 * later}, nil, true},
		{"the guilty one is known", []suspect{of(1), of(2)}, []witness{witnessOf(1, 1), witnessOf(2, 5)},
			func(s suspect) bool { return s == of(2) }, []time.Duration{0}, nil, true},
		{"nobody is there", []suspect{of(1)}, nil, none, []time.Duration{0}, nil, true},
	} {
		now := time.Unix(1, 0)
		all := trials(nil).wrong(7, c.senders, now)
		var suspended map[engineAddr]bool
		for _, after := range c.at {
			all, suspended = all.step(now.Add(after), c.there, func(int) int { return 0 }, c.banned)
		}
		var got []int
		for f := range suspended {
			got = append(got, int(f.slot))
		}
		if slices.Sort(got); !slices.Equal(got, c.suspended) || (len(all) == 0) != c.over {
			t.Errorf("%s: %v are suspended, %d trials", c.name, got, len(all))
		}
	}
}

// A turn in which blocks come goes on, but not for ever.
func TestTurns(t *testing.T) {
	everything := func(int) bool { return true }
	there := []witness{{engineAddr{slot: 1}, suspect{host: "a"}, everything, 1}, {engineAddr{slot: 2}, suspect{host: "b"}, everything, 0}}
	begin := time.Unix(1, 0)
	all := trials(nil).wrong(7, []suspect{{host: "a"}, {host: "b"}}, begin)
	var turns []time.Duration
	var last map[engineAddr]bool
	blocks := 0
	for after := trialPause; len(all) > 0; after += time.Second {
		blocks++
		var suspended map[engineAddr]bool
		all, suspended = all.step(begin.Add(after), there, func(int) int { return blocks }, func(suspect) bool { return false })
		if !maps.Equal(suspended, last) {
			turns, last = append(turns, after-trialPause), suspended
		}
	}
	if want := []time.Duration{0, trialTurn, 2 * trialTurn}; !slices.Equal(turns, want) {
		t.Errorf("turns begin at %v, want %v", turns, want)
	}
}

// A piece that suspects explain accuses nobody else, and what is remembered is bounded.
func TestTrialsAreBounded(t *testing.T) {
	var all trials
	for i := range 2 * maxTrials {
		all = all.wrong(i, []suspect{{host: fmt.Sprint(i)}}, time.Unix(1, 0))
	}
	if len(all) != maxTrials {
		t.Errorf("%d trials", len(all))
	}
	all = all.wrong(maxTrials+1, []suspect{{host: "1"}, {host: "x"}}, time.Unix(1, 0))
	if all.accuses(suspect{host: "x"}) || !all.accuses(suspect{host: "1"}) {
		t.Error("the one who has sent the rest is accused")
	}
	for i := range 2 * maxSenders {
		all = all.wrong(0, []suspect{{host: fmt.Sprint("y", i)}}, time.Unix(1, 0))
	}
	if n := len(all[0].suspects); n != maxSenders {
		t.Errorf("%d suspects", n)
	}
	if all = all.end(0); len(all) != maxTrials-1 || all.accuses(suspect{host: "0"}) {
		t.Error("a settled piece accuses still")
	}
}
