package flags

import (
	"time"

	"github.com/urfave/cli/v3"

	"braid/pathsel"
	"braid/scionnet"
)

// Selector choose a selector.
func Selector() []cli.Flag {
	return []cli.Flag{
		String("path-selection", "adaptive", "which paths to a peer to use: `NAME` is "+
			"adaptive (paths that add bandwidth), all, first, or slots (the published algorithm)"),
		Period("initial-deadline", 2*time.Second, "slots: wait at most `TIME` for "+
			"handshakes before the first selection"),
		Period("slot", time.Second, "slots: select every `TIME`"),
		Int("min-weight", 25, "slots: keep paths with at least `PERCENT` of the best one's "+
			"weight"),
		List("without", "select paths without `WHAT`, to measure its effect: handshake, "+
			"bandwidth, disjointness or exploration (repeatable)"),
	}
}

// ReadSelector reads the flags that choose a selector.
func ReadSelector(f *Reader) pathsel.Selector {
	c := pathsel.Config{
		InitialDeadline: f.Duration("initial-deadline"),
		Slot:            f.Duration("slot"),
		MinWeight:       f.Int("min-weight"),
	}
	f.Wantf(c.MinWeight >= 1 && c.MinWeight <= 100,
		"--min-weight %d: want 1 to 100 percent", c.MinWeight)
	var err error
	if c.Without, err = pathsel.ParseWithout(f.StringSlice("without")); err != nil {
		f.Wrongf("--without: %w", err)
	}
	return Read(f, "path-selection", c.New)
}

func Congestion() cli.Flag {
	return String("congestion", string(scionnet.DefaultCongestion), "`NAME` of the "+
		"congestion controller of connections over SCION and QUIC: bbr or newreno")
}
