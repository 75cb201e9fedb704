// Package foreign is shared by the interfaces of other clients: transmission and qbittorrent. It
// moves torrents in the queue, reads torrents that a user names, and converts values.
package foreign

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"braid/client"
)

// ErrFetch says that the server with a .torrent file has not sent one.
var ErrFetch = errors.New("the torrent cannot be fetched")

// Source reads the torrent that a user of an interface names: a magnet link, an info hash, the http
// or https URL of a .torrent file, which is fetched with the cookies, or the absolute path of such
// a file on this machine.
func Source(ctx context.Context, name, cookies string) (client.Source, error) {
	if IsHash(name) {
		name = "magnet:?xt=urn:btih:" + name
	}
	scheme, _, _ := strings.Cut(strings.ToLower(name), ":")
	switch {
	case scheme == "http" || scheme == "https":
		src, err := client.Fetch{URL: name, Cookies: cookies}.Source(ctx)
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrFetch, err)
		}
		return src, err
	case scheme == "magnet":
		return client.ParseMagnet(name)
	case filepath.IsAbs(name):
		return client.OpenSource(ctx, name)
	}
	return client.Source{}, fmt.Errorf("%q is no URL, no magnet link and no absolute path", name)
}

// IsHash tells whether a text is an info hash in hexadecimal digits.
func IsHash(s string) bool {
	return len(s) == 40 && strings.Trim(strings.ToLower(s), "0123456789abcdef") == ""
}
