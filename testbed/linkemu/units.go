package linkemu

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"braid/units"
)

// ParseLoss reads a loss such as "1%" or "0.5%" as a probability from 0 to 1. It requires the
// percent sign except for 0, because a plain 1 could also be a probability.
func ParseLoss(s string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	number = strings.TrimSpace(number)
	plain := strings.Trim(number, "0123456789.") == "" // no sign, exponent, or word such as "inf"
	// The exponent is added to the text, so that the result is the float64 nearest to the number.
	v, err := strconv.ParseFloat(number+"e-2", 64)
	if err != nil || !plain || v > 1 || (!percent && v != 0) {
		return 0, fmt.Errorf("loss %q: want a percentage from 0%% to 100%%, such as 1%%", s)
	}
	return v, nil
}

// FormatLoss writes a probability so that [ParseLoss] reads the same again. It moves the decimal
// point in the text, since multiplying by 100 would round.
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

// ParseQueue reads the bound of a queue: a size (64KiB, 100kB) or the time that the queue takes to
// drain (50ms, at most [MaxDelay]). It returns 0 for the other one. "0" gives 0 for both, which is
// the default bound.
func ParseQueue(s string) (bytes int, wait time.Duration, err error) {
	if d, err := units.ParseDuration(s); err == nil && d <= MaxDelay {
		return 0, d, nil
	}
	if n, err := units.ParseSize(s); err == nil && n <= math.MaxInt32 {
		return int(n), 0, nil
	}
	return 0, 0, fmt.Errorf("queue %q: want a size such as 64KiB, or the time to drain it, such as 50ms", s)
}

// FormatQueue writes the bound of a queue so that [ParseQueue] reads the same again: bytes, or wait
// if bytes is 0.
func FormatQueue(bytes int, wait time.Duration) string {
	if bytes == 0 && wait != 0 {
		return wait.String()
	}
	return units.FormatSize(int64(bytes))
}
