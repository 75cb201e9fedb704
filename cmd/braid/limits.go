package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/pathsel"
	"braid/testbed/linkemu"
)

func limitFlags() []cli.Flag {
	const category = "Limits (of what peers send each other; headers come on top)"
	return []cli.Flag{
		&cli.StringFlag{Name: "upload-rate", Category: category, Usage: "send at most `RATE` to all peers together, such as 10mbit or 1.5MB/s; shared fairly between networks, their hosts, and peers"},
		&cli.StringFlag{Name: "download-rate", Category: category, Usage: "receive at most `RATE` from all peers together"},
		&cli.StringSliceFlag{Name: "rate-limit", Category: category, Config: cli.StringConfig{TrimSpace: true},
			Usage: "`PATTERN=RATE` for all connections together, in each direction, whose path has an interface that matches: '1-ff00:0:110#2=10mbit', '1-ff00:0:110=20mbit', or '1=50mbit' for an ISD (repeatable)"},
	}
}

// parseLimits reads the flags.
func parseLimits(cmd *cli.Command) (client.Limits, error) {
	var l client.Limits
	for _, f := range []struct {
		name string
		to   *int64
	}{{"upload-rate", &l.Upload}, {"download-rate", &l.Download}} {
		if !cmd.IsSet(f.name) {
			continue
		}
		var err error
		if *f.to, err = parseRate(cmd.String(f.name)); err != nil {
			return l, usageErrorf("--%s: %w", f.name, err)
		}
	}
	for _, s := range cmd.StringSlice("rate-limit") {
		p, err := parsePathLimit(s)
		if err != nil {
			return l, usageErrorf("--rate-limit %q: %w", s, err)
		}
		l.Paths = append(l.Paths, p)
	}
	return l, nil
}

func parsePathLimit(s string) (client.PathLimit, error) {
	pattern, rate, ok := strings.Cut(s, "=")
	if !ok {
		return client.PathLimit{}, fmt.Errorf("want PATTERN=RATE, such as 1-ff00:0:110#2=10mbit")
	}
	p, err := pathsel.ParsePattern(pattern)
	if err != nil {
		return client.PathLimit{}, fmt.Errorf("%w; a pattern is ISD, ISD-AS or ISD-AS#IF, with 0 for any", err)
	}
	r, err := parseRate(rate)
	return client.PathLimit{Pattern: p, Rate: r}, err
}

// byteUnits are of what other programs call a rate; the rest is linkemu's. B is a byte and b is none, for they are
// mixed up too easily.
var byteUnits = []struct {
	suffix string
	factor float64
}{{"GB/s", 8e9}, {"MB/s", 8e6}, {"kB/s", 8e3}, {"KB/s", 8e3}, {"GiB/s", 8 << 30}, {"MiB/s", 8 << 20}, {"KiB/s", 8 << 10}}

// parseRate reads a rate in bits per second.
func parseRate(s string) (rate int64, err error) {
	text := strings.TrimSpace(s)
	rate, err = linkemu.ParseRate(text)
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(text, u.suffix)
		number = strings.TrimSpace(number)
		if !ok || number == "" || strings.Trim(number, "0123456789.") != "" {
			continue
		}
		var v float64
		if v, err = strconv.ParseFloat(number, 64); err == nil && v*u.factor <= float64(linkemu.MaxRate) {
			rate = int64(v * u.factor)
		} else {
			err = strconv.ErrRange
		}
		break
	}
	if err != nil || rate < client.MinRate {
		return 0, fmt.Errorf("rate %q: want a number with kbit, mbit, gbit, kB/s, MB/s or GB/s, from %s to %s, such as 10mbit or 1.5MB/s",
			s, linkemu.FormatRate(client.MinRate), linkemu.FormatRate(linkemu.MaxRate))
	}
	return rate, nil
}
