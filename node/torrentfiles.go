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

// TorrentFiles returns the .torrent files among the first entries of a directory, at most most
// entries, and whether these are all. It ignores symbolic links, since strangers may be able to
// write there.
func TorrentFiles(dir string, most int) (out []TorrentFile, whole bool, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, false, err
	}
	defer d.Close()
	entries, err := d.ReadDir(most + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	for _, e := range entries[:min(len(entries), most)] {
		info, err := e.Info()
		isTorrent := strings.EqualFold(filepath.Ext(e.Name()), ".torrent")
		if err == nil && isTorrent && info.Mode().IsRegular() {
			out = append(out, TorrentFile{info, filepath.Join(dir, e.Name())})
		}
	}
	return out, len(entries) <= most, nil
}
