package node

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// TorrentFile is a .torrent file in a directory.
type TorrentFile struct {
	fs.FileInfo
	Path string
}

// TorrentFiles returns the .torrent files in a directory, of which it reads at most so many
// entries. It passes over links: strangers may be able to write there.
func TorrentFiles(dir string, most int) (out []TorrentFile, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(most)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && strings.EqualFold(filepath.Ext(e.Name()), ".torrent") {
			out = append(out, TorrentFile{info, filepath.Join(dir, e.Name())})
		}
	}
	return out, nil
}
