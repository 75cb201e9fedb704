package main

import (
	"slices"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/scionnet"
	"braid/scionnet/congestion"
)

// transports are the ways in which peers may be reached.
type transports struct {
	scion bool
	ip    client.IPTransport
}

func transportFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "transport", Value: []string{"scion", "tcp"}, Config: cli.StringConfig{TrimSpace: true},
		Usage: "reach peers over `NAME`: scion, and either tcp or quic, which is what addresses on IP then mean (repeatable)"}
}

// parseTransports reads --transport.
func parseTransports(cmd *cli.Command) (t transports, err error) {
	names := cmd.StringSlice("transport")
	for _, n := range names {
		if !slices.Contains([]string{"scion", "tcp", "quic"}, n) {
			return t, usageErrorf("--transport %q: want scion, tcp or quic", n)
		}
	}
	has := func(n string) bool { return slices.Contains(names, n) }
	t.scion = has("scion")
	switch {
	case has("tcp") && has("quic"):
		return t, usageErrorf("--transport: tcp or quic, not both: nothing in the address of a peer tells which one it speaks")
	case has("quic"):
		t.ip = client.QUIC
	case !has("tcp"):
		t.ip = client.NoIP
	}
	return t, nil
}

func congestionFlag() cli.Flag {
	return &cli.StringFlag{Name: "congestion", Value: string(scionnet.DefaultCongestion),
		Usage: "congestion controller of connections over SCION and QUIC: `NAME` is bbr or newreno"}
}

// parseCongestion reads --congestion.
func parseCongestion(cmd *cli.Command) (congestion.Algorithm, error) {
	a, err := congestion.ParseAlgorithm(cmd.String("congestion"))
	if err != nil {
		return "", usageErrorf("--congestion: %w", err)
	}
	return a, nil
}
