package node

import (
	"context"
	"log/slog"
	"os"

	"braid/client"
	"braid/storage"
)

// Describe asks peers for the description of a magnet link, without adding the torrent. It returns
// other sources unchanged.
func (n *Node) Describe(ctx context.Context, o Options) (client.Source, error) {
	if !o.Source.IsMagnet() {
		return o.Source, nil
	}
	dir, err := os.MkdirTemp("", "braid-list-")
	if err != nil {
		return o.Source, err
	}
	defer os.RemoveAll(dir)
	store := storage.OpenVerified(dir, slog.New(slog.DiscardHandler))
	r := &run{}
	options := client.Options{Peers: o.Peers, StopTimeout: o.StopTimeout, Describe: true}
	if r.transfer, err = n.session.Add(o.Source, store, options); err != nil {
		return o.Source, err
	}
	defer r.transfer.Close()
	searches, err := newTorrent(n, o).search(r)
	if err != nil {
		return o.Source, err
	}
	defer closeAll(searches)
	select {
	case <-r.transfer.Done():
	case <-ctx.Done():
		return o.Source, context.Cause(ctx)
	}
	if err := r.transfer.Progress().Err; err != nil {
		return o.Source, err
	}
	return r.transfer.Described()
}
