package wire

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func numbered(from, to int) (out []block) {
	for i := from; i < to; i++ {
		out = append(out, block{index: uint32(i), length: 16 << 10})
	}
	return out
}

// The engine gets the requests in their order, and none that was taken back.
func TestQueue(t *testing.T) {
	q := newQueue()
	all := numbered(0, 3*leastGiven)
	var given []block
	for _, b := range all {
		now, room := q.asks(b)
		if !room {
			t.Fatal("no room")
		}
		if now {
			given = append(given, b)
		}
	}
	if !slices.Equal(given, all[:leastGiven]) {
		t.Fatalf("%d at once, want %d", len(given), leastGiven)
	}
	if now, room := q.asks(all[0]); !now || !room {
		t.Error("the engine's request does not reach it a second time")
	}
	if now, room := q.asks(all[leastGiven]); now || !room {
		t.Error("a waiting request passes the second time")
	}
	if q.ends(all[0]) || !q.ends(all[leastGiven]) || q.ends(block{index: 1 << 20}) {
		t.Error("wrong ones have waited")
	}
	for i := 1; len(given) < len(all)-1; i++ {
		given = append(given, q.next()...)
		q.ends(given[i])
	}
	if want := slices.Delete(slices.Clone(all), leastGiven, leastGiven+1); !slices.Equal(given, want) {
		t.Errorf("%v\nwant %v", given, want)
	}
	for _, b := range given {
		q.ends(b)
	}
	if len(q.asked) != 0 || len(q.order) != 0 || q.next() != nil {
		t.Errorf("in the end %d are asked, %d in order", len(q.asked), len(q.order))
	}
	if now, _ := q.asks(all[0]); !now {
		t.Error("an answered request does not pass the second time")
	}
}

// No request is answered after one that came a window later, although the engine takes any of those
// it has. Between two answers it always has at least one, and those taken back are no hindrance.
func TestQueueOfRandomEngine(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		q := newQueue()
		all := numbered(0, 1000)
		number, taken := map[block]int{}, 0
		var engine []block
		for i, b := range all {
			number[b] = i
			if now, _ := q.asks(b); now {
				engine = append(engine, b)
			}
			if random.IntN(10) == 0 && q.ends(b) {
				taken++
			}
		}
		oldest := 0
		for answered := 0; len(engine) > 0; answered++ {
			i := random.IntN(len(engine))
			b := engine[i]
			engine = slices.Delete(engine, i, i+1)
			if _, asked := q.asked[b]; !asked {
				continue // taken back when the engine had it
			}
			for _, asked := q.asked[all[oldest]]; !asked; _, asked = q.asked[all[oldest]] {
				oldest++
			}
			if number[b] >= oldest+leastGiven {
				t.Fatalf("%d is answered before %d", number[b], oldest)
			}
			q.ends(b)
			engine = append(engine, q.next()...)
		}
		if len(q.asked) != 0 {
			t.Fatalf("%d are never answered; %d were taken back", len(q.asked), taken)
		}
	}
}

// An engine that answers fast has requests for 0.2 s, up to a bound, and one that is slow again the
// fewest.
func TestPace(t *testing.T) {
	var p pace
	now := time.Now()
	answer := func(n int, each time.Duration) {
		for range n {
			now = now.Add(each)
			p = p.answers(now)
		}
	}
	for _, c := range []struct {
		n        int
		each     time.Duration
		min, max int
	}{
		{100, 10 * time.Millisecond, leastGiven, leastGiven},
		{1000, 2 * time.Millisecond, 90, 100},
		{2000, 50 * time.Microsecond, mostGiven, mostGiven},
		{30, 10 * time.Millisecond, leastGiven, leastGiven},
		{2000, time.Microsecond, mostGiven, mostGiven},
		{1, time.Second, leastGiven, leastGiven},
	} {
		answer(c.n, c.each)
		if w := p.window(); w < c.min || w > c.max {
			t.Errorf("%d answers every %v: a window of %d, want %d to %d", c.n, c.each, w, c.min, c.max)
		}
	}
}

// The window grows with the answers, up to a bound, and then more requests go to the engine.
func TestQueueOfFastEngine(t *testing.T) {
	q := newQueue()
	for _, b := range numbered(0, maxServing) {
		q.asks(b)
	}
	if _, room := q.asks(block{index: 1 << 20}); room {
		t.Error("room for one more")
	}
	if next := q.next(); next != nil {
		t.Errorf("%d more before the first answer", len(next))
	}
	now := time.Now()
	for range leastGiven {
		q.answers(now)
	}
	if n := len(q.next()); n != leastGiven {
		t.Errorf("%d more, want %d", n, leastGiven)
	}
	for range maxServing {
		q.answers(now)
	}
	if n := len(q.next()); n != mostGiven-2*leastGiven {
		t.Errorf("%d more, want %d", n, mostGiven-2*leastGiven)
	}
}

func TestQueueWithdraw(t *testing.T) {
	q := newQueue()
	all := numbered(0, leastGiven+3)
	for _, b := range all {
		q.asks(b)
	}
	q.ends(all[leastGiven+1])
	if got := q.withdraw(); !slices.Equal(got, []block{all[leastGiven], all[leastGiven+2]}) {
		t.Errorf("%v", got)
	}
	if len(q.given()) != leastGiven || q.next() != nil {
		t.Errorf("the engine has %d", len(q.given()))
	}
	// Asking and taking back without end finds an end.
	n := 0
	for ; n < 2*maxOrder; n++ {
		if _, room := q.asks(all[leastGiven]); !room {
			break
		}
		q.ends(all[leastGiven])
	}
	if n != maxOrder-leastGiven {
		t.Errorf("taken back %d times", n)
	}
}
