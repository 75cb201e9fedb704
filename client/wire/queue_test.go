package wire

import (
	"slices"
	"testing"
)

func numbered(from, to int) (out []block) {
	for i := from; i < to; i++ {
		out = append(out, block{index: uint32(i), length: 16 << 10})
	}
	return out
}

// The engine gets the requests in their order, some at a time, and none that was taken back.
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
	for len(given) < len(all)-1 {
		next := q.next(0)
		if len(next) != 1 {
			t.Fatalf("%d requests for one answer", len(next))
		}
		given = append(given, next...)
		q.ends(given[len(given)-leastGiven])
	}
	if want := slices.Delete(slices.Clone(all), leastGiven, leastGiven+1); !slices.Equal(given, want) {
		t.Errorf("%v\nwant %v", given, want)
	}
	if q.engine != leastGiven-1 || q.most != leastGiven || len(q.waiting) != 0 {
		t.Errorf("in the end %d of %d, %d wait", q.engine, q.most, len(q.waiting))
	}
}

// An engine that answers faster than it is given requests gets more of them.
func TestQueueOfFastEngine(t *testing.T) {
	q := newQueue()
	for _, b := range numbered(0, maxServing) {
		q.asks(b)
	}
	if _, room := q.asks(block{index: 1 << 20}); room {
		t.Error("room for one more")
	}
	if n := len(q.next(leastGiven / 2)); n != 0 || q.most != leastGiven {
		t.Errorf("%d more, at most %d", n, q.most)
	}
	for most := 2 * leastGiven; most <= maxServing; most *= 2 {
		if n := len(q.next(most)); n != most/2 || q.most != most {
			t.Fatalf("%d more, at most %d, want %d", n, q.most, most)
		}
	}
	if q.next(maxServing); q.most != maxServing || q.engine != maxServing {
		t.Errorf("%d of %d", q.engine, q.most)
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
	if len(q.given()) != leastGiven || q.next(0) != nil {
		t.Errorf("the engine has %d", len(q.given()))
	}
	// Asking and taking back without end finds an end.
	n := 0
	for ; n < 10*maxServing; n++ {
		if _, room := q.asks(all[leastGiven]); !room {
			break
		}
		q.ends(all[leastGiven])
	}
	if n != 2*maxServing {
		t.Errorf("taken back %d times", n)
	}
}
