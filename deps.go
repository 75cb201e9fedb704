//go:build deps

package braid

import (
	_ "github.com/anacrolix/torrent"
	_ "github.com/quic-go/quic-go"
	_ "github.com/scionproto/scion/pkg/snet"
	_ "github.com/urfave/cli/v3"
	_ "go.etcd.io/bbolt"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/time/rate"
	_ "gopkg.in/yaml.v3"
)
