package storage

import (
	"fmt"
	"path/filepath"

	"github.com/anacrolix/torrent/metainfo"

	"braid/storage/durable"
)

// KeptTorrent is the file in a data directory that holds what peers have said of a magnet link, as a .torrent file. A download
// keeps it, so that the link says what the data should be without asking anybody again.
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
