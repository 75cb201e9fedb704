package commands

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/commands/flags"
	"braid/pathsel"
	"braid/units"
)

func limitFlags() []cli.Flag {
	return flags.InCategory("Limits (of the peers' messages; packet headers come on top)",
		&flags.RateFlag{
			Name:      "upload-rate",
			Validator: checkLimit,
			Usage: "send at most `RATE` to all peers together, such as 10Mbit/s or 1.5MB/s; " +
				"shared fairly between networks, their hosts, and peers",
		},
		&flags.RateFlag{
			Name:      "download-rate",
			Validator: checkLimit,
			Usage:     "receive at most `RATE` from all peers together",
		},
		flags.List("rate-limit", "limit all connections together, in each direction, whose path "+
			"has an interface that matches: `PATTERN=RATE` such as '1-ff00:0:110#2=10mbit', "+
			"'1-ff00:0:110=20mbit', or '1=50mbit' for an ISD (repeatable)"),
	)
}

// limits reads the flags.
func (f *cmdline) limits() client.Limits {
	return client.Limits{
		Upload:   f.Int64("upload-rate"),
		Download: f.Int64("download-rate"),
		Paths:    flags.ReadAll(f, "rate-limit", parsePathLimit),
	}
}

func parsePathLimit(s string) (l client.PathLimit, err error) {
	pattern, rate, ok := strings.Cut(s, "=")
	if !ok {
		return l, fmt.Errorf("%q: want PATTERN=RATE, such as 1-ff00:0:110#2=10mbit", s)
	}
	if l.Pattern, err = pathsel.ParsePattern(pattern); err != nil {
		return l, fmt.Errorf(
			"%q: %w; a pattern is ISD, ISD-AS or ISD-AS#IF, with 0 for any", s, err)
	}
	if l.Rate, err = units.ParseRate(rate); err == nil {
		err = checkLimit(l.Rate)
	}
	if err != nil {
		return l, fmt.Errorf("%q: %w", s, err)
	}
	return l, nil
}

// checkLimit refuses rates that are too low for any connection.
func checkLimit(rate int64) error {
	if rate < client.MinRate {
		return fmt.Errorf("want at least %s", units.FormatRate(client.MinRate))
	}
	return nil
}
