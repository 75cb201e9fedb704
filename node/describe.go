package node

import (
	"context"
	"log/slog"
	"os"

	"braid/client"
	"braid/storage"
)

// Describe asks peers what is in a magnet link, without adding or downloading the torrent. It
// returns any other source as it is.
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
	if r.transfer, err = n.session.Add(o.Source, store, client.Options{Peers: o.Peers, Describe: true}); err != nil {
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
