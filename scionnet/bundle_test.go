package scionnet

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestReadFrame(t *testing.T) {
	token := "12345678"
	probe := append([]byte{kindProbe, 0, 0, 20}, token+"\x00\x00\x00\x00\x00\x00\x00\x00"...)
	for _, tt := range []struct {
		name string
		in   string
		ok   bool
	}{
		{"nothing", "", false},
		{"header only", "\x01\x00\x00\x05", false},
		{"one packet", "\x01\x00\x04\xb0abcde", true},
		{"two and a short one", "\x01\x00\x04\xb0" + strings.Repeat("a", 2*leastPacket+1), true},
		{"packets of no size", "\x01\x00\x00\x00abcde", false},
		{"packets of one byte", "\x01\x00\x00\x01abcde", false},
		{"packets smaller than QUIC's", "\x01\x00\x04\xaf" + strings.Repeat("a", 2*leastPacket), false},
		{"probe", string(probe), true},
		{"probe cut off", string(probe[:19]), false},
		{"probe without a token", "\x02\x00\x00\x05a", false},
		{"answer", "\x03\x00\x20\x00" + token, true},
		{"long answer", "\x03\x00\x20\x00" + token + "x", false},
		{"reserved kind", "\x04\x00\x00\x05abcde", false},
		{"kind 0", "\x00\x00\x00\x05abcde", false},
	} {
		if _, ok := readFrame([]byte(tt.in)); ok != tt.ok {
			t.Errorf("%s: %v, want %v", tt.name, ok, tt.ok)
		}
	}
	for b := range 256 {
		if quic := b&0xc0 != 0; isFrame([]byte{byte(b)}) == quic {
			t.Errorf("first byte %#x: taken for the other", b)
		}
	}
}

// FuzzFrame parses frames, and puts the packets of a bundle together again.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x02abcde"))
	f.Add([]byte("\x01\x00\x04\xb0" + strings.Repeat("a", 2*leastPacket+1)))
	f.Add([]byte("\x02\x00\x00\x0c12345678"))
	f.Add([]byte("\x03\x00\x00\x0c12345678"))
	f.Add([]byte("\x01\x00\xff\xffabcde"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, ok := readFrame(b)
		if !ok {
			return
		}
		if !isFrame(b) {
			t.Error("a frame that looks like QUIC")
		}
		var again []byte
		for n := 0; len(fr.packets) > 0; n++ {
			p := fr.next()
			if len(p) == 0 || len(p) > fr.size || n > len(b) {
				t.Fatalf("packet %d of %d bytes, size %d", n, len(p), fr.size)
			}
			again = append(again, p...)
		}
		if fr.kind == kindBundle && !bytes.Equal(again, b[frameHeader:]) {
			t.Error("a bundle's packets are not what was in it")
		}
		if fr.kind != kindBundle && len(fr.token) != tokenLen {
			t.Errorf("token %x", fr.token)
		}
	})
}

func TestBundled(t *testing.T) {
	for _, tt := range []struct{ size, limit, want int }{
		{1400, 0, 1}, {1400, 1400, 1}, {1400, 2803, 1}, {1400, 2804, 2}, {1452, 8328, 5}, {1200, 2404, 2}, {1199, 8000, 1}, {0, 8000, 1}, {1400, 1, 1},
	} {
		if got := bundled(tt.size, tt.limit); got != tt.want {
			t.Errorf("%d bytes in %d: %d, want %d", tt.size, tt.limit, got, tt.want)
		}
	}
}

func TestProbing(t *testing.T) {
	const most = 9000
	now := time.Now()
	next := func(l *largePackets, most int, lossy bool) ([]byte, bool) {
		now = now.Add(answerTime)
		return l.nextProbe(most, lossy, 0, now)
	}
	read := func(b []byte, ok bool) frame {
		t.Helper()
		f, read := readFrame(b)
		if !ok || !read || f.kind != kindProbe {
			t.Fatalf("no probe: %x", b)
		}
		return f
	}
	none := func(l *largePackets) {
		t.Helper()
		if b, ok := next(l, most, false); ok {
			t.Fatalf("a probe of %d bytes", len(b))
		}
	}
	t.Run("answered", func(t *testing.T) {
		var l largePackets
		none(&l)
		l.allow(8300)
		f := read(next(&l, most, false))
		if f.size != 8300 || l.answerArrived(8299, f.token) || l.answerArrived(8300, make([]byte, tokenLen)) || l.limit.Load() != 0 {
			t.Fatal("an answer to another probe counts")
		}
		if !l.answerArrived(8300, f.token) || l.answerArrived(8300, f.token) || l.limit.Load() != 8300 {
			t.Fatalf("answered: limit %d", l.limit.Load())
		}
		none(&l)
		if l.limitTo(5000); l.limit.Load() != 5000 {
			t.Errorf("limit %d, want 5000", l.limit.Load())
		}
		if l.disable(); l.limit.Load() != 0 {
			t.Error("not stopped")
		}
		none(&l)
		l.reset()
		none(&l)
	})
	t.Run("doubted", func(t *testing.T) {
		var l largePackets
		l.allow(8300)
		f := read(next(&l, most, false))
		if !l.answerArrived(8300, f.token) {
			t.Fatal("not answered")
		}
		doubt := func(want bool) {
			t.Helper()
			if b, ok := next(&l, most, true); ok != want || want && len(b) != 8300 {
				t.Fatalf("probe of %d bytes, want one: %v", len(b), want)
			}
		}
		doubt(true)
		if _, ok := l.nextProbe(most, true, 0, now); ok {
			t.Error("two at once")
		}
		doubt(true)
		l.answerArrived(8300, f.token)
		none(&l)
		for range maxUnanswered {
			doubt(true)
		}
		if l.limit.Load() == 0 {
			t.Error("ended before the last probe had time")
		}
		doubt(false)
		if l.limit.Load() != 0 {
			t.Error("bundles that nobody answers for")
		}
	})
	t.Run("never answered", func(t *testing.T) {
		var l largePackets
		l.allow(8900)
		for _, want := range []int{8900, 8900, secondChance, secondChance, thirdChance, thirdChance} {
			if f := read(next(&l, most, false)); f.size != want {
				t.Errorf("probe of %d bytes, want %d", f.size, want)
			}
		}
		none(&l)
	})
	// Over a long path or from a busy host, answers come later than several checks.
	for name, tt := range map[string]struct {
		takes, known time.Duration // the round trip, and what is known of it
		lossy        bool
	}{
		"long path":             {2 * time.Second, 2 * time.Second, false},
		"long lossy path":       {2 * time.Second, 2 * time.Second, true},
		"suddenly a long path":  {2 * time.Second, 10 * time.Millisecond, false},
		"after the last chance": {10 * time.Second, 10 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			var l largePackets
			l.allow(8300)
			answers := map[time.Time]frame{}
			for start := now; now.Sub(start) < 5*tt.takes; now = now.Add(watchEvery) {
				if f, ok := answers[now]; ok {
					l.answerArrived(f.size, f.token)
				}
				if b, ok := l.nextProbe(most, tt.lossy, tt.known, now); ok {
					answers[now.Add(tt.takes)] = read(b, ok)
				}
				if now.Sub(start) > tt.takes && l.limit.Load() != 8300 {
					t.Fatalf("bundles of up to %d bytes after %v, though all probes are answered", l.limit.Load(), now.Sub(start))
				}
			}
		})
	}
	t.Run("answer from before", func(t *testing.T) {
		var l largePackets
		l.allow(8300)
		f := read(next(&l, most, false))
		l.limitTo(5000)
		if l.answerArrived(8300, f.token) || l.limit.Load() != 0 {
			t.Error("an answer counts that was on its way when the path became narrow")
		}
	})
	t.Run("acceptor", func(t *testing.T) {
		var l largePackets
		l.allow(0)
		none(&l)
		if !l.probeArrived(8300) || l.probeArrived(8300) {
			t.Error("only the first probe is news")
		}
		if f := read(next(&l, 5000, false)); f.size != 5000 {
			t.Errorf("probe of %d bytes from a host that sends 5000", f.size)
		}
	})
	t.Run("ordinary path", func(t *testing.T) {
		var l largePackets
		l.allow(1400)
		none(&l)
	})
}
