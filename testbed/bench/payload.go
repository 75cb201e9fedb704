package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"braid/client"
	"braid/testbed"
)

// Payload is a file of random bytes and its torrent, for benchmarks of whole downloads.
type Payload struct {
	Dir     string
	Data    string // the file
	Torrent string
	Bytes   int64
}

// MakePayload writes a payload into a new folder below dir. A piece length of 0 leaves the choice
// to braid.
func MakePayload(ctx context.Context, dir string, size, pieceLength int64) (Payload, error) {
	dir, err := os.MkdirTemp(dir, "payload-")
	if err != nil {
		return Payload{}, fmt.Errorf("make the payload: %w", err)
	}
	p := Payload{dir, filepath.Join(dir, "payload"), filepath.Join(dir, "payload.torrent"), size}
	if err := testbed.RandomFile(p.Data, [32]byte{1}, size); err != nil {
		return p, err
	}
	c, err := client.Create(ctx, p.Data, client.CreateOptions{PieceLength: pieceLength})
	if err != nil {
		return p, err
	}
	return p, os.WriteFile(p.Torrent, c.Torrent, 0o600)
}

// Seed starts a braid with these flags that serves the payload. It returns when the seeder is
// ready, with the seeder's address.
func (p Payload) Seed(ctx context.Context, braid string, flags ...string) (*Process, string, error) {
	command := []string{
		braid, "seed", p.Torrent, "--data", p.Dir, "--json", "--no-trackers",
		"--identity", filepath.Join(p.Dir, "seeder.pem"),
	}
	s, err := Start(ctx, AnyCore, nil, append(command, flags...)...)
	if err != nil {
		return nil, "", err
	}
	addrs, err := s.Ready()
	if err != nil {
		return nil, "", err
	}
	return s, addrs[0], nil
}
