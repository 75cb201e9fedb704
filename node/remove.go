package node

import (
	"context"
	"fmt"

	"braid/storage"
)

// stored is where the data of the torrent lies.
func (o Options) stored() storage.Stored {
	return storage.Stored{Kind: o.Storage.Kind, Dir: o.Storage.Dir, Hash: o.Source.InfoHash, Layout: o.Source.Layout}
}

// deleteData deletes the data of a torrent that was removed.
func (t *Torrent) deleteData(ctx context.Context) error {
	o := t.Options()
	if o.Source.IsMagnet() || o.Storage.Dir == "" {
		return nil // nothing has come
	}
	if err := o.stored().Delete(ctx, o.Storage.Complete); err != nil {
		return fmt.Errorf("remove torrent %s: its data is left behind: %w", o.title(), err)
	}
	return nil
}
