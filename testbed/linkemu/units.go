package linkemu

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The units are those of tc(8): rates in powers of 1000 bits, sizes in powers of 1024 bytes. tc's "bps"
// (bytes per second) and its bare "k" and "m" are refused, for they are misread too easily.

// rateUnits are ordered so that the first suffix that fits is the right one.
var rateUnits = [...]struct {
	suffix string
	exp    int // power of ten
}{{"gbit", 9}, {"mbit", 6}, {"kbit", 3}, {"bit", 0}, {"", 0}}

// ParseRate reads a rate such as "20mbit", "1.5gbit" or "64000" in bits per second, from 0 (not limited)
// to [MaxRate].
func ParseRate(s string) (int64, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	for _, u := range rateUnits {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		v, err := decimal(number, u.exp)
		if err != nil || v > float64(MaxRate) || (v > 0 && v < 1) {
			break
		}
		return int64(math.Round(v)), nil
	}
	return 0, fmt.Errorf("rate %q: want a number with bit, kbit, mbit or gbit, at most %s, such as 20mbit",
		s, FormatRate(MaxRate))
}

// FormatRate writes a rate so that [ParseRate] reads the same again.
func FormatRate(rate int64) string {
	for _, u := range rateUnits {
		unit := int64(math.Pow10(u.exp))
		if rate != 0 && rate%unit == 0 {
			return strconv.FormatInt(rate/unit, 10) + u.suffix
		}
	}
	return strconv.FormatInt(rate, 10)
}

// ParseLoss reads a loss such as "1%" or "0.5%" as a probability from 0 to 1. The sign is required,
// because a bare 1 could mean either, except for a plain 0.
func ParseLoss(s string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := decimal(strings.TrimSpace(number), -2)
	if err != nil || v > 1 || (!percent && v != 0) {
		return 0, fmt.Errorf("loss %q: want a percentage from 0%% to 100%%, such as 1%%", s)
	}
	return v, nil
}

// FormatLoss writes a probability so that [ParseLoss] reads the same again. The decimal point is moved
// in the text: a multiplication by 100 would round.
func FormatLoss(loss float64) string {
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(loss, 'f', -1, 64), ".")
	fraction += strings.Repeat("0", max(0, 2-len(fraction)))
	whole = strings.TrimLeft(whole+fraction[:2], "0")
	if whole == "" {
		whole = "0"
	}
	if rest := fraction[2:]; rest != "" {
		whole += "." + rest
	}
	return whole + "%"
}

// ParseMTU reads a number of bytes, from 0 (not limited) to 65535.
func ParseMTU(s string) (int, error) {
	v, err := strconv.ParseUint(strings.TrimSpace(s), 10, 16)
	if err != nil {
		return 0, fmt.Errorf("mtu %q: want a number of bytes from 0 (not limited) to %d", s, math.MaxUint16)
	}
	return int(v), nil
}

// sizeUnits are ordered so that the first suffix that fits is the right one.
var sizeUnits = [...]struct {
	suffix string
	bytes  int64
}{{"mib", 1 << 20}, {"mb", 1 << 20}, {"kib", 1 << 10}, {"kb", 1 << 10}, {"b", 1}, {"", 1}}

// ParseQueue reads the bound of a queue: bytes ("64kb", "100000", "1mb") or the time that it takes to
// drain ("50ms", at most [MaxDelay]). One of the results is 0; both are for "0", which asks for the default.
func ParseQueue(s string) (bytes int, wait time.Duration, err error) {
	text := strings.ToLower(strings.TrimSpace(s))
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err == nil && n >= 0 && n <= math.MaxInt32/u.bytes {
			return int(n * u.bytes), 0, nil
		}
		break
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 && d <= MaxDelay {
		return 0, d, nil
	}
	return 0, 0, fmt.Errorf("queue %q: want bytes, such as 64kb or 100000, or the time to drain it, such as 50ms", s)
}

// FormatQueue writes the bound of a queue so that [ParseQueue] reads the same again; wait counts if
// bytes is 0.
func FormatQueue(bytes int, wait time.Duration) string {
	switch {
	case bytes == 0 && wait != 0:
		return wait.String()
	case bytes != 0 && bytes%(1<<20) == 0:
		return strconv.Itoa(bytes>>20) + "mb"
	case bytes != 0 && bytes%(1<<10) == 0:
		return strconv.Itoa(bytes>>10) + "kb"
	}
	return strconv.Itoa(bytes)
}

// decimal reads a plain decimal number that is not negative and moves its point by exp. The exponent is
// added to the text, so that the result is the float64 nearest to what was written, and so that numbers
// which bring an exponent, a sign or a word ("inf") of their own are refused.
func decimal(s string, exp int) (float64, error) {
	s = strings.TrimSpace(s)
	if s == "" || strings.Trim(s, "0123456789.") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(s+"e"+strconv.Itoa(exp), 64)
}
