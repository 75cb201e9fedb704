package main

import (
	"github.com/urfave/cli/v3"

	"braid/client"
)

func superSeedingFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "super-seeding", Value: "off",
		Usage: "show each piece to one peer first, so that each is sent once before one is sent twice: `WHEN` is auto (until another peer has everything), on or off. For a seed of many peers that know each other; one that is alone is slower with it",
	}
}

func parseSuperSeeding(cmd *cli.Command) (client.SuperSeeding, error) {
	s, err := client.ParseSuperSeeding(cmd.String("super-seeding"))
	if err != nil {
		return 0, usageErrorf("--%w", err)
	}
	return s, nil
}
