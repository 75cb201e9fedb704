package storage

import (
	"fmt"
	"path/filepath"

	"github.com/anacrolix/torrent/metainfo"

	"braid/storage/durable"
)

// KeptTorrent is the name of the .torrent file that a download of a magnet link keeps in the data
// directory. With it the link can be used later without asking peers for the metadata again.
func KeptTorrent(dir string, hash metainfo.Hash) string {
	return filepath.Join(dir, recordDir, hash.HexString()+".torrent")
}

// KeepTorrent writes that file. A store from OpenVerified keeps nothing.
func KeepTorrent(st Store, hash metainfo.Hash, torrent []byte) error {
	s, ok := st.(*store)
	if !ok {
		return nil
	}
	if err := durable.Replace(s.options.system, s.root, filepath.Join(recordDir, hash.HexString()+".torrent"), torrent); err != nil {
		return fmt.Errorf("keep what is in the magnet link: %w", err)
	}
	return nil
}
