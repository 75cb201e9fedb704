// Package units reads rates, sizes and durations as people write them, for all flags and files of
// braid.
//
// It reads everything that braid prints: a number, optional spaces, and a unit. Only 0 needs no
// unit: without one, some programs mean bits and others kilobytes. Ambiguous units are refused too:
// Mb/s and Mbps (bits or bytes?), and K or M alone (powers of 1000 or of 1024?).
package units

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// MaxRate is the highest rate that can be written, in bit/s.
const MaxRate int64 = 1e12

// The errors name the units; the caller adds the text and where it was found.
var (
	errRate = errors.New("want a number with kbit/s, Mbit/s or Gbit/s, or with kB/s, MB/s or GB/s, " +
		"such as 10Mbit/s")
	errSize = errors.New("want a number with B, kB, MB, GB (powers of 1000) or KiB, MiB, GiB (powers of 1024), " +
		"such as 256KiB")
	errDuration = errors.New("want a number with ms, s, m, h or d, such as 500ms or 1h30m")
)

var quantity = regexp.MustCompile(`^([0-9]+\.?[0-9]*|\.[0-9]+)\s*([a-zA-Zµμ/]*)$`)

// split parts a number from its unit.
func split(s string) (number, unit string, ok bool) {
	m := quantity.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

func isZero(number string) bool { return strings.Trim(number, "0.") == "" }

// scaled returns number * factor * 10^exp, rounded. The exponent is appended to the text, since a
// product of floats would not be exact.
func scaled(number string, factor int64, exp int) (float64, error) {
	v, err := strconv.ParseFloat(number+"e"+strconv.Itoa(exp), 64)
	return math.Round(v * float64(factor)), err
}

// Units of bits are powers of 1000, in upper or lower case. B is a byte; b alone is no unit.
var (
	bitExp    = map[string]int{"bit": 0, "kbit": 3, "mbit": 6, "gbit": 9, "tbit": 12}
	byteUnits = map[string]struct {
		factor int64
		exp    int
	}{
		"B": {1, 0}, "kB": {1, 3}, "KB": {1, 3}, "MB": {1, 6}, "GB": {1, 9}, "TB": {1, 12},
		"KiB": {1 << 10, 0}, "MiB": {1 << 20, 0}, "GiB": {1 << 30, 0}, "TiB": {1 << 40, 0},
	}
)

// ParseRate reads a rate in bit/s, from 0 to [MaxRate]: 10Mbit/s, 10 Mbit/s, 10mbit, 1.5MB/s. A
// rate above 0 is at least 1 bit/s.
func ParseRate(s string) (int64, error) {
	number, unit, ok := split(s)
	if !ok {
		return 0, errRate
	}
	factor, exp := int64(1), 0
	bare, perSecond := strings.CutSuffix(unit, "/s")
	if u, isByte := byteUnits[bare]; isByte && perSecond {
		factor, exp = 8*u.factor, u.exp
	} else if exp, ok = bitExp[strings.TrimSuffix(strings.ToLower(unit), "/s")]; !ok {
		if unit != "" || !isZero(number) {
			return 0, errRate
		}
	}
	v, err := scaled(number, factor, exp)
	switch {
	case err != nil || v > float64(MaxRate):
		return 0, fmt.Errorf("want at most %s", FormatRate(MaxRate))
	case v < 1 && !isZero(number):
		return 0, errors.New("want at least 1bit/s")
	}
	return int64(v), nil
}

// FormatRate writes a rate exactly, so that [ParseRate] reads the same again.
func FormatRate(rate int64) string {
	return format(rate, named{"bit", 1}, named{"kbit", 1e3}, named{"mbit", 1e6}, named{"gbit", 1e9})
}

type named struct {
	name string
	size int64
}

// format writes a number in the unit that gives the smallest integer.
func format(n int64, units ...named) string {
	if n == 0 {
		return "0"
	}
	best := units[0]
	for _, u := range units[1:] {
		if n%u.size == 0 && u.size > best.size {
			best = u
		}
	}
	return strconv.FormatInt(n/best.size, 10) + best.name
}

// ParseSize reads a number of bytes: 20MB, 256 KiB, 1.5GiB, in letters of either case.
func ParseSize(s string) (int64, error) {
	number, unit, ok := split(s)
	if !ok {
		return 0, errSize
	}
	u, known := byteUnits["B"], unit == "" && isZero(number)
	for name, v := range byteUnits {
		if strings.EqualFold(name, unit) {
			u, known = v, true
		}
	}
	if !known {
		return 0, errSize
	}
	v, err := scaled(number, u.factor, u.exp)
	if err != nil || v >= math.MaxInt64 {
		return 0, errors.New("this is more than can be counted")
	}
	return int64(v), nil
}

// FormatSize writes a number of bytes exactly, so that [ParseSize] reads the same again.
func FormatSize(n int64) string {
	return format(n, named{"B", 1}, named{"kB", 1e3}, named{"KiB", 1 << 10}, named{"MB", 1e6},
		named{"MiB", 1 << 20}, named{"GB", 1e9}, named{"GiB", 1 << 30})
}

var timePart = regexp.MustCompile(`^([0-9]+\.?[0-9]*|\.[0-9]+)\s*([a-zµμ]+)\s*`)

// ParseDuration reads a time that is not negative: 30ms, 1.5 s, 1h30m, 2d, and all that
// [time.Duration] prints.
func ParseDuration(s string) (time.Duration, error) {
	rest := strings.TrimSpace(s)
	if number, unit, ok := split(rest); ok && unit == "" && isZero(number) {
		return 0, nil
	}
	var sum time.Duration
	for first := true; first || rest != ""; first = false {
		m := timePart.FindStringSubmatch(rest)
		if m == nil {
			return 0, errDuration
		}
		unit, times := m[2], time.Duration(1)
		switch unit {
		case "d":
			unit, times = "h", 24
		case "min":
			unit = "m"
		case "sec":
			unit = "s"
		}
		d, err := time.ParseDuration(m[1] + unit)
		if err != nil {
			return 0, errDuration
		}
		if d > (math.MaxInt64-sum)/times {
			return 0, errors.New("this is longer than can be counted")
		}
		sum, rest = sum+d*times, rest[len(m[0]):]
	}
	return sum, nil
}

// Duration is a [time.Duration] in a file, written like 30m.
type Duration time.Duration

// D is the duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes what UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what [ParseDuration] does.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("time %q: %w", b, err)
	}
	*d = Duration(v)
	return nil
}
