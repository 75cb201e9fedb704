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

// TorrentFiles returns the .torrent files of a directory, and whether these are all: it looks at
// most at the first most entries with such a name. It ignores symbolic links, since strangers may
// be able to write there.
func TorrentFiles(dir string, most int) (out []TorrentFile, whole bool, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, false, err
	}
	defer d.Close()
	for looked := 0; ; {
		entries, err := d.ReadDir(1024) // there may be millions of other files
		for _, e := range entries {
			if !strings.EqualFold(filepath.Ext(e.Name()), ".torrent") {
				continue
			}
			if looked++; looked > most {
				return out, false, nil
			}
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
				out = append(out, TorrentFile{info, filepath.Join(dir, e.Name())})
			}
		}
		if errors.Is(err, io.EOF) {
			return out, true, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
}
