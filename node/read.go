package node

import (
	"context"
	"errors"
	"fmt"
	"io"

	"braid/scionnet"
)

// ErrNotRunning says that a torrent does not run just now, so that its data cannot be read.
var ErrNotRunning = errors.New("the torrent does not run")

// OpenFile returns a reader of a file, which is named by its place in the layout of Source. It
// returns verified data only, waits for what is missing, and has that requested first: see
// client.FileReader. The context ends its reads.
func (t *Torrent) OpenFile(ctx context.Context, file int) (io.ReadSeekCloser, error) {
	r := t.current()
	if r == nil {
		return nil, fmt.Errorf("torrent %s is %s: %w",
			t.Options().title(), t.State(), ErrNotRunning)
	}
	f, err := r.transfer.OpenFile(ctx, file)
	if err != nil {
		return nil, err // not a nil *client.FileReader, which would be a reader
	}
	return f, nil
}

// OpenHTTP opens a port of the node's SCION host for HTTP/3. The caller closes it before the node.
func (n *Node) OpenHTTP(ctx context.Context, port uint16) (*scionnet.HTTP, error) {
	if n.host == nil {
		return nil, errors.New("open a port for HTTP/3: this node is not on SCION")
	}
	return n.host.OpenHTTP(ctx, port)
}
