package units

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestParseRate(t *testing.T) {
	for s, want := range map[string]int64{
		"10Mbit/s": 10e6, "10 Mbit/s": 10e6, "10mbit": 10e6, "10.0 Mbit/s": 10e6, " 1.5gbit ": 15e8, "640 kbit/s": 640e3, "1.25 Gbit/s": 125e7,
		"8bit": 8, "8 bit/s": 8, "0": 0, "0mbit": 0, "0.1kbit": 100, "1000gbit": MaxRate, "1tbit": MaxRate, "100.000001mbit": 100000001, "20 MBIT": 20e6,
		"1.5MB/s": 12e6, "1.5 MB/s": 12e6, "100kB/s": 8e5, "100KB/s": 8e5, "1MiB/s": 8 << 20, "2KiB/s": 16 << 10, "0.1GB/s": 8e8,
		"125GB/s": MaxRate, "1B/s": 8, ".5mbit": 5e5,
	} {
		if got, err := ParseRate(s); got != want || err != nil {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "mbit", "10", "64000", "1.5", "-1mbit", "+1mbit", "20mbps", "20Mbps", "20m", "20mb", "1mb/s", "1.5Mb/s", "1e6", "1e3kbit",
		"infmbit", "nan", "0x10", "1_000bit", "1001gbit", "99999999999999999999999bit", "0.001bit", "1.2.3mbit", "20mbit/h", "1MB", "126GB/s", "fast",
		"10 mbit 20 mbit", "10mbit/s/s", "."} {
		if got, err := ParseRate(s); err == nil {
			t.Errorf("%q: %d, want an error", s, got)
		}
	}
	// A bare number is refused, and the error names the units.
	if _, err := ParseRate("10"); err == nil || !strings.Contains(err.Error(), "Mbit/s") || !strings.Contains(err.Error(), "MB/s") {
		t.Error(err)
	}
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{
		"20MB": 20e6, "256KiB": 256 << 10, "256 KiB": 256 << 10, "1.5 GiB": 3 << 29, "64kb": 64000, "2mib": 2 << 20,
		"16384B": 16384, "0": 0, "0 B": 0, "100b": 100, "0.5KiB": 512, "2GB": 2e9, "1TiB": 1 << 40, "953.7 MiB": 1000026931,
	} {
		if got, err := ParseSize(s); got != want || err != nil {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "16384", "1.5", "MB", "-1MB", "1e6B", "1KM", "1X", "64k", "1M", "1kbit", "99999999999999999999B", "9999999TiB", "5 s"} {
		if got, err := ParseSize(s); err == nil {
			t.Errorf("%q: %d, want an error", s, got)
		}
	}
	for n, want := range map[int64]string{0: "0", 1: "1B", 64e6: "64MB", 64 << 10: "64KiB", 1024000: "1000KiB", 1500: "1500B", 3 << 30: "3GiB"} {
		if got := FormatSize(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	if _, err := ParseSize("64"); err == nil || !strings.Contains(err.Error(), "KiB") {
		t.Error(err)
	}
}

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"30ms": 30 * time.Millisecond, "21 ms": 21 * time.Millisecond, "1.5 s": 1500 * time.Millisecond, "1h30m": 90 * time.Minute, "1m05s": 65 * time.Second,
		"1 h 30 m": 90 * time.Minute, "2d": 48 * time.Hour, "1d2h": 26 * time.Hour, "0": 0, "0s": 0, "5m37.5s": 337500 * time.Millisecond,
		"10min": 10 * time.Minute, "90 sec": 90 * time.Second, "100us": 100 * time.Microsecond, "100µs": 100 * time.Microsecond, ".5s": 500 * time.Millisecond,
		"2562047h47m16.854775807s": math.MaxInt64,
	} {
		if got, err := ParseDuration(s); got != want || err != nil {
			t.Errorf("%q: %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "10", "1.5", ".", "ms", "-5s", "+5s", "5 parsecs", "1:30", "5s5", "5S", "99999999h", "200000d", "1e3s", "..", "0.0.0"} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("%q: %v, want an error", s, got)
		}
	}
	if _, err := ParseDuration("10"); err == nil || !strings.Contains(err.Error(), "ms, s, m, h") {
		t.Error(err)
	}
}

// Whatever is read survives being written and read again.
func FuzzUnits(f *testing.F) {
	for _, s := range []string{"20mbit", "1.5 Gbit/s", "64000bit", "1.5MB/s", "64kb", "100000b", "1.5GiB", "50ms", "1h30m", "2d", "1e6", "-1", ".", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := ParseRate(s); err == nil {
			if again, err := ParseRate(FormatRate(v)); again != v || err != nil || v < 0 || v > MaxRate {
				t.Errorf("rate %q: %d, written %q, read %d, %v", s, v, FormatRate(v), again, err)
			}
		}
		if v, err := ParseSize(s); err == nil {
			again, err := ParseSize(FormatSize(v))
			if exact := v < 1<<53; err != nil || exact && again != v || v < 0 {
				t.Errorf("size %q: %d, written %q, read %d, %v", s, v, FormatSize(v), again, err)
			}
		}
		if v, err := ParseDuration(s); err == nil {
			if again, err := ParseDuration(v.String()); again != v || err != nil || v < 0 {
				t.Errorf("time %q: %d, written %q, read %d, %v", s, v, v, again, err)
			}
		}
	})
}
