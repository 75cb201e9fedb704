package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/pathsel"
	"braid/units"
)

func limitFlags() []cli.Flag {
	return inCategory("Limits (of the peers' messages; packet headers come on top)",
		&rateFlag{
			Name: "upload-rate",
			Usage: "send at most `RATE` to all peers together, such as 10Mbit/s or 1.5MB/s; " +
				"shared fairly between networks, their hosts, and peers",
		},
		&rateFlag{
			Name:  "download-rate",
			Usage: "receive at most `RATE` from all peers together",
		},
		listFlag("rate-limit", "limit all connections together, in each direction, whose path has "+
			"an interface that matches: `PATTERN=RATE` such as '1-ff00:0:110#2=10mbit', "+
			"'1-ff00:0:110=20mbit', or '1=50mbit' for an ISD (repeatable)"),
	)
}

// limits reads the flags.
func (f *flags) limits() client.Limits {
	rate := func(name string) int64 {
		r := f.Int64(name)
		if err := checkLimit(r); err != nil && f.IsSet(name) {
			f.wrong("--%s %s: %w", name, units.FormatRate(r), err)
		}
		return r
	}
	l := client.Limits{Upload: rate("upload-rate"), Download: rate("download-rate")}
	for _, s := range f.StringSlice("rate-limit") {
		p, err := parsePathLimit(s)
		if err != nil {
			f.wrong("--rate-limit %q: %w", s, err)
		}
		l.Paths = append(l.Paths, p)
	}
	return l
}

func parsePathLimit(s string) (client.PathLimit, error) {
	pattern, rate, ok := strings.Cut(s, "=")
	if !ok {
		return client.PathLimit{}, fmt.Errorf("want PATTERN=RATE, such as 1-ff00:0:110#2=10mbit")
	}
	p, err := pathsel.ParsePattern(pattern)
	if err != nil {
		return client.PathLimit{}, fmt.Errorf(
			"%w; a pattern is ISD, ISD-AS or ISD-AS#IF, with 0 for any", err)
	}
	r, err := units.ParseRate(rate)
	if err == nil {
		err = checkLimit(r)
	}
	return client.PathLimit{Pattern: p, Rate: r}, err
}

// checkLimit refuses rates that are too low for any connection.
func checkLimit(rate int64) error {
	if rate < client.MinRate {
		return fmt.Errorf("want at least %s", units.FormatRate(client.MinRate))
	}
	return nil
}
