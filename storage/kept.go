package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/anacrolix/torrent/metainfo"
)

// KeptTorrent is the file in a data directory that holds what peers have said of a magnet link, as a .torrent file. A download
// keeps it, so that the link says what the data should be without asking anybody again.
func KeptTorrent(dir string, hash metainfo.Hash) string {
	return filepath.Join(dir, recordDir, hash.HexString()+".torrent")
}

// KeepTorrent writes that file. A store from OpenVerified keeps nothing.
func KeepTorrent(st Store, hash metainfo.Hash, torrent []byte) (err error) {
	s, ok := st.(*store)
	if !ok {
		return nil
	}
	name := KeptTorrent(s.dir, hash)
	// Only one store has the directory, so the name of the unfinished file is free.
	if err = os.WriteFile(name+partSuffix, torrent, 0o644); err == nil {
		err = os.Rename(name+partSuffix, name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keep what is in the magnet link: %w", err), os.RemoveAll(name+partSuffix))
	}
	return nil
}
