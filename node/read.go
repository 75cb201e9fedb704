package node

import (
	"context"
	"errors"
	"fmt"
	"io"

	"braid/scionnet"
)

// OpenFile returns a reader of a file, by its index in the layout of Source. Reads return verified
// data only. They wait for missing data, which the torrent requests first: see client.FileReader.
// The context ends them.
func (t *Torrent) OpenFile(ctx context.Context, file int) (io.ReadSeekCloser, error) {
	r := t.current()
	if r == nil {
		return nil, fmt.Errorf("torrent %s is %s: the torrent does not run",
			t.Options().title(), t.State())
	}
	f, err := r.transfer.OpenFile(ctx, file)
	if err != nil {
		return nil, err // not f: an interface with a nil *client.FileReader is not nil
	}
	return f, nil
}

// OpenHTTP opens a port of the node's SCION host for HTTP/3. The caller must close it before the
// node.
func (n *Node) OpenHTTP(ctx context.Context, port uint16) (*scionnet.HTTP, error) {
	if n.host == nil {
		return nil, errors.New("open a port for HTTP/3: this node is not on SCION")
	}
	return n.host.OpenHTTP(ctx, port)
}
