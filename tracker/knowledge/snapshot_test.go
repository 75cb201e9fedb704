package knowledge

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"braid/tracker/wire"
)

// taught is a base that knows three paths between three ASes, one of them by two hosts.
func taught() *Base {
	b := base(limits{}, 4)
	b.Report(epoch, at(1, 1), []wire.PathReport{report(10*ms, 8, via(0, 1, 2)), report(20*ms, 0, via(5, 1, 2))})
	lossy := report(40*ms, 2, via(0, 1, 2))
	lossy.Sent, lossy.Lost = 1000, 100
	b.Report(epoch.Add(time.Minute), at(1, 2), []wire.PathReport{lossy})
	b.Report(epoch.Add(time.Hour), at(2, 1), []wire.PathReport{report(30*ms, 1, via(0, 2, 3))})
	return b
}

// What was known is known again: the same figures, that go on losing weight from where they were.
func TestSnapshot(t *testing.T) {
	old := taught()
	s, version := old.Snapshot(0)
	if again, same := old.Snapshot(version); again != nil || same != version {
		t.Errorf("version %d again: %d bytes of version %d", version, len(again), same)
	}
	now := epoch.Add(time.Hour)
	b := limited(limits{})
	if news, err := b.Merge(now, s); err != nil || news != 4 {
		t.Fatalf("%d, %v", news, err)
	}
	for _, when := range []time.Time{now, now.Add(90 * time.Minute)} {
		old.Refresh(when)
		b.Refresh(when)
		if got, want := b.Known(), old.Known(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		for src := range 4 {
			for dst := range 4 {
				got, ok := b.Distance(when, as(src), as(dst))
				want, known := old.Distance(when, as(src), as(dst))
				if ok != known || (got-want).Abs() > time.Microsecond {
					t.Errorf("from %d to %d: %v %v, want %v %v", src, dst, got, ok, want, known)
				}
				if got, want := b.hint(when, src, dst, lots()), old.hint(when, src, dst, lots()); !slices.Equal(got, want) {
					t.Errorf("from %d to %d: %v, want %v", src, dst, got, want)
				}
			}
		}
	}
	for _, p := range b.between(as(1), as(2)) {
		if i := p.voteOf(host(2)); i >= 0 && p.votes[i].loss != 0.1 {
			t.Errorf("loss %v", p.votes[i].loss)
		}
	}
	// Reports to an AS that is known from it only are taken.
	c := limited(limits{})
	if _, err := c.Merge(now, s); err != nil {
		t.Fatal(err)
	}
	if n := c.Report(now, at(1, 9), []wire.PathReport{report(ms, 1, via(9, 1, 2))}); n != 1 {
		t.Error("peers in the AS are forgotten")
	}
	// Too late, it is nothing.
	if news, err := limited(limits{}).Merge(epoch.Add(Forget+2*time.Hour), s); err != nil || news != 0 {
		t.Errorf("%d, %v", news, err)
	}
	// And so it is from the future.
	if news, err := limited(limits{}).Merge(epoch.Add(-time.Hour), s); err != nil || news != 0 {
		t.Errorf("%d, %v", news, err)
	}
}

// Two bases that tell each other agree after one exchange, and then have nothing more to say, also
// where they know more than there is room for.
func TestMergeSettles(t *testing.T) {
	for name, l := range map[string]limits{"room": {}, "few votes": {votes: 3}, "few paths": {perPair: 3, votes: 3}, "of an AS": {perAS: 3, votes: 3}} {
		now := epoch.Add(time.Hour)
		a, b := base(l, 6), base(l, 6)
		for n := range 40 {
			to := a
			if n%2 == 0 {
				to = b
			}
			to.Report(epoch.Add(time.Duration(n)*time.Minute), at(1, n%11), []wire.PathReport{report(ms, float64(1+n), via(uint64(1+n%7), 1, 2+n%3))})
		}
		var versions [2]uint64
		for range 3 {
			x, v := a.Snapshot(versions[0])
			y, w := b.Snapshot(versions[1])
			versions = [2]uint64{v, w}
			if x != nil {
				if _, err := b.Merge(now, x); err != nil {
					t.Fatal(err)
				}
			}
			if y != nil {
				if _, err := a.Merge(now, y); err != nil {
					t.Fatal(err)
				}
			}
		}
		x, _ := a.Snapshot(versions[0])
		y, _ := b.Snapshot(versions[1])
		if x != nil || y != nil {
			t.Errorf("%s: they do not come to an end", name)
		}
		if got, want := describe(a), describe(b); !slices.Equal(got, want) {
			t.Errorf("%s: one knows\n%s\nthe other\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// describe is all that is known, as text.
func describe(b *Base) (out []string) {
	for _, s := range b.sources {
		for p := range s.all {
			line := p.fingerprint.Short()
			for _, v := range p.votes {
				line += " " + v.host.String() + " " + v.at.UTC().Format("15:04") // a vote of the same time may stand in any place
			}
			words := strings.Fields(line)
			slices.Sort(words[1:])
			out = append(out, strings.Join(words, " "))
		}
	}
	slices.Sort(out)
	return out
}

// Where the clocks of trackers differ, one whose clock is behind goes on taking reports.
func TestMergeAhead(t *testing.T) {
	l := limits{perPair: 1, votes: 1}
	a, b := base(l, 3), base(l, 3)
	a.Report(epoch.Add(30*time.Second), at(1, 1), []wire.PathReport{report(ms, 1, via(0, 1, 2))})
	s, _ := a.Snapshot(0)
	if news, err := b.Merge(epoch, s); err != nil || news != 1 {
		t.Fatalf("%d, %v", news, err)
	}
	for after, want := range map[time.Duration]int{0: 0, time.Minute: 1} {
		c := base(l, 3)
		if _, err := c.Merge(epoch, s); err != nil {
			t.Fatal(err)
		}
		if n := c.Report(epoch.Add(after), at(1, 2), []wire.PathReport{report(ms, 1, via(9, 1, 2))}); n != want {
			t.Errorf("%v later %d reports are taken, want %d", after, n, want)
		}
	}
}

func TestMergeWrong(t *testing.T) {
	s, _ := taught().Snapshot(0)
	change := func(at int, to byte) []byte { c := bytes.Clone(s); c[at] = to; return c }
	head := len(snapshotMagic)
	for name, wrong := range map[string][]byte{
		"nothing": nil, "another version": change(head-2, '2'), "cut off": s[:len(s)-1], "in the head": s[:head+5],
		"no interfaces": change(head, 0), "an odd number": change(head, 1), "an AS twice": change(head+18, s[head+8]), "too large": make([]byte, MaxSnapshot+1),
		"a rate": change(head+1+2*wire.InterfaceLen+1+28, 255),
	} {
		b := limited(limits{})
		if news, err := b.Merge(epoch, wrong); err == nil || news != 0 || b.Known() != (Sizes{}) {
			t.Errorf("%s: %d, %v, %+v", name, news, err, b.Known())
		}
	}
	// The memory that it may take is bounded as for reports.
	b := limited(limits{perAS: 2, votes: 1})
	if news, err := b.Merge(epoch, s); err != nil || news == 0 || b.Known().Paths > 3 {
		t.Errorf("%d, %v, %+v", news, err, b.Known())
	}
}

// Whatever is read, what is known of it is written and read again.
func FuzzMerge(f *testing.F) {
	s, _ := taught().Snapshot(0)
	f.Add(s)
	f.Add([]byte(snapshotMagic))
	now := epoch.Add(time.Hour)
	f.Fuzz(func(t *testing.T, s []byte) {
		b := limited(limits{})
		if _, err := b.Merge(now, s); err != nil {
			return
		}
		b.Refresh(now)
		again, _ := b.Snapshot(1 << 62)
		c := limited(limits{})
		if _, err := c.Merge(now, again); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(describe(b), describe(c)) {
			t.Fatalf("%v became %v", describe(b), describe(c))
		}
	})
}
