package linkemu

import (
	"math"
	"testing"
	"time"
)

func TestParseLoss(t *testing.T) {
	for s, want := range map[string]float64{"1%": .01, "0.1%": .001, "100%": 1, "0": 0, "0%": 0, " 12.5 % ": .125, ".5%": .005} {
		if got, err := ParseLoss(s); got != want || err != nil {
			t.Errorf("ParseLoss(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "%", "1", "0.01", "-1%", "101%", "nan%", "inf%", "1e1%", "1%%"} {
		if got, err := ParseLoss(s); err == nil {
			t.Errorf("ParseLoss(%q) = %v, want an error", s, got)
		}
	}
}

func TestParseQueue(t *testing.T) {
	for s, want := range map[string]struct {
		bytes int
		wait  time.Duration
	}{
		"64kb": {64000, 0}, "64KiB": {64 << 10, 0}, "100000B": {100000, 0}, "1.5 MiB": {3 << 19, 0},
		"50ms": {0, 50 * ms}, "1.5s": {0, 1500 * ms}, "0": {}, "1m": {0, time.Minute},
	} {
		bytes, wait, err := ParseQueue(s)
		if bytes != want.bytes || wait != want.wait || err != nil {
			t.Errorf("ParseQueue(%q) = %d, %s, %v; want %d, %s", s, bytes, wait, err, want.bytes, want.wait)
		}
	}
	for _, s := range []string{"", "kb", "-1", "-1kb", "-5ms", "64k", "2min", "2m", "100000", "9999999999B", "4096MB", "1h", "ms"} {
		if bytes, wait, err := ParseQueue(s); err == nil {
			t.Errorf("ParseQueue(%q) = %d, %s; want an error", s, bytes, wait)
		}
	}
}

func TestParseMTU(t *testing.T) {
	for s, want := range map[string]int{"0": 0, "1300": 1300, " 65535 ": 65535} {
		if got, err := ParseMTU(s); got != want || err != nil {
			t.Errorf("ParseMTU(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "-1", "65536", "1k", "1.5"} {
		if got, err := ParseMTU(s); err == nil {
			t.Errorf("ParseMTU(%q) = %d, want an error", s, got)
		}
	}
}

func TestConfigString(t *testing.T) {
	for want, c := range map[string]Config{
		"unlimited":           {},
		"rate 20mbit":         {Rate: 20e6},
		"delay 10ms loss 1%":  {Delay: 10 * ms, Loss: .01},
		"rate 1500kbit down":  {Rate: 15e5, Down: true},
		"jitter 1ms":          {Jitter: ms},
		"mtu 1300 too-big":    {MTU: 1300, TooBig: true},
		"queue 64KiB":         {QueueBytes: 64 << 10},
		"queue 1B queue 50ms": {QueueBytes: 1, QueueTime: 50 * ms},
	} {
		if got := c.String(); got != want {
			t.Errorf("%+v is %q, want %q", c, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []Config{{}, {Rate: MaxRate, Delay: MaxDelay, Jitter: MaxDelay, Loss: 1, QueueTime: MaxDelay, QueueBytes: math.MaxInt32, Down: true}} {
		if err := c.Validate(); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
	for _, c := range []Config{{Rate: -1}, {Rate: MaxRate + 1}, {Delay: -1}, {Delay: MaxDelay + 1}, {Jitter: -1}, {Jitter: MaxDelay + 1},
		{Loss: -.1}, {Loss: 1.1}, {Loss: math.NaN()}, {QueueBytes: -1}, {QueueBytes: math.MaxInt32 + 1}, {QueueTime: -1}, {QueueTime: MaxDelay + 1}} {
		if err := c.Validate(); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// Whatever the parsers accept is valid and survives being written and read again.
func FuzzUnits(f *testing.F) {
	for _, s := range []string{"20mbit", "1.5gbit", "64000", "8bit", "1%", "0.3%", "33.333333333333336%", "64kb", "100000b", "50ms", "1m", "1e6", "-1", ".", "",
		"0.0000000000000000000000001%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		check := func(c Config) {
			if err := c.Validate(); err != nil {
				t.Errorf("%q was accepted: %v", s, err)
			}
		}
		if loss, err := ParseLoss(s); err == nil {
			check(Config{Loss: loss})
			if again, err := ParseLoss(FormatLoss(loss)); again != loss || err != nil {
				t.Errorf("%q: %v, written %q, read %v, %v", s, loss, FormatLoss(loss), again, err)
			}
		}
		if bytes, wait, err := ParseQueue(s); err == nil {
			check(Config{QueueBytes: bytes, QueueTime: wait})
			if b, w, err := ParseQueue(FormatQueue(bytes, wait)); b != bytes || w != wait || err != nil {
				t.Errorf("%q: %d %s, written %q, read %d %s, %v", s, bytes, wait, FormatQueue(bytes, wait), b, w, err)
			}
		}
	})
}
