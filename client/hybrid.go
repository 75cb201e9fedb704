package client

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/anacrolix/torrent/bencode"
	"github.com/anacrolix/torrent/metainfo"

	"braid/storage"
	"braid/units/bencoding"
)

// A hybrid torrent (BEP 52) describes the same files twice: for v1, with padding files (BEP 47) so
// that every file begins with a piece, and for v2. braid uses the v1 half, which is an ordinary
// torrent. It checks that the v2 half agrees, and then forgets the v2 half.

// parseInfo reads an info dictionary made by a stranger. It removes the v2 half; hybrid tells
// whether there was one.
func parseInfo(b []byte) (info metainfo.Info, layout storage.Layout, hybrid bool, err error) {
	if err := scanInfo(newReader(b)); err != nil {
		return info, layout, false, fmt.Errorf("malformed info dictionary: %w", err)
	}
	if err := bencode.Unmarshal(b, &info); err != nil {
		return info, layout, false, fmt.Errorf("malformed info dictionary: %w", err)
	}
	if layout, err = storage.NewLayout(&info); err != nil {
		return info, layout, false, err
	}
	if hybrid = info.HasV2(); hybrid {
		if err := agree(&info); err != nil {
			err = fmt.Errorf("its halves for BitTorrent v1 and v2 disagree: %w", err)
			return info, layout, false, err
		}
		info.MetaVersion, info.FileTree = 0, metainfo.FileTree{}
	}
	return info, layout, hybrid, nil
}

// Bounds of the piece length. With shorter pieces there would be too many hashes; with longer ones,
// a peer needs long to get a piece that it can pass on.
const (
	minPieceLength = 16 << 10
	maxPieceLength = 64 << 20
)

// maxTree bounds the bytes of a file tree. Bytes count once for each directory above them, since
// the engine's decoder copies them that often.
const maxTree = 128 << 20

// scanInfo reads past an info dictionary, and checks its bounds.
func scanInfo(b *bencoding.Reader) error {
	return b.Dict(func(key []byte) error {
		switch kind := b.Kind(); {
		case string(key) == "files" && kind == 'l':
			files := 0
			return b.List(func() error {
				if files++; files > storage.MaxFiles {
					return fmt.Errorf("more than the %d files that are accepted", storage.MaxFiles)
				}
				return b.Skip()
			})
		case string(key) == "file tree" && kind == 'd':
			copied, err := scanTree(b)
			if err == nil && copied > maxTree {
				err = fmt.Errorf("a file tree too deep for its size: "+
					"more than the %d MiB that are accepted", maxTree>>20)
			}
			return err
		}
		return b.Skip()
	})
}

// scanTree reads past a directory of a file tree, and counts bytes as maxTree says.
func scanTree(b *bencoding.Reader) (copied int64, err error) {
	from := b.At()
	err = b.Dict(func([]byte) error {
		if b.Kind() != 'd' {
			return b.Skip()
		}
		n, err := scanTree(b)
		copied += n
		return err
	})
	return copied + int64(b.At()-from), err
}

// agree compares the halves of a hybrid: the names, lengths, order and places of the files, and the
// number of pieces. It cannot compare hashes without the data: braid trusts the v1 hashes, as in a
// torrent without a v2 half.
func agree(info *metainfo.Info) error {
	// The engine uses the piece length and the file tree before it gets the v1 half alone.
	if p := info.PieceLength; p < minPieceLength || p&(p-1) != 0 {
		return fmt.Errorf("pieces of %d bytes: v2 wants a power of two from 16 KiB on", p)
	}
	if err := info.FileTree.Validate(); err != nil {
		return err
	}
	v1, stop := iter.Pull(info.UpvertedV1Files())
	defer stop()
	var pieces int64
	for f := range info.UpvertedFilesIter() { // of the file tree
		own, ok := v1()
		for ok && storage.IsPadding(own) {
			own, ok = v1()
		}
		path := own.BestPath()
		if len(info.Files) == 0 {
			path = []string{info.BestName()}
		}
		switch {
		case !ok:
			return fmt.Errorf("file %q is in the v2 half only", f.Path)
		case !slices.Equal(path, f.Path):
			return fmt.Errorf("file %q in the v1 half is %q in the v2 half", path, f.Path)
		case own.Length != f.Length:
			return fmt.Errorf("file %q has %d bytes in the v1 half, %d in the v2 half",
				f.Path, own.Length, f.Length)
		case f.Length > 0 && own.TorrentOffset != f.TorrentOffset:
			return fmt.Errorf("file %q does not begin with a piece in the v1 half", f.Path)
		}
		pieces += (f.Length + info.PieceLength - 1) / info.PieceLength
	}
	for own, ok := v1(); ok; own, ok = v1() {
		if !storage.IsPadding(own) {
			return fmt.Errorf("file %q is in the v1 half only", own.BestPath())
		}
	}
	if pieces != int64(len(info.Pieces)/20) {
		return errors.New("they differ in the number of pieces")
	}
	return nil
}

// v1Length is the length of all pieces of the v1 half, in bytes.
func v1Length(info *metainfo.Info) (n int64) {
	for f := range info.UpvertedV1Files() {
		n += f.Length
	}
	return n
}

// Bounds of bencoded bytes from strangers.
const (
	// maxValues bounds strings, numbers, lists and dictionaries, keys included. A file takes 7 of
	// them, 24 in a hybrid torrent. Decoding this many takes about 200 MB and a second or two.
	maxValues = 3 << 20
	// maxNesting bounds nested lists and dictionaries. The engine's decoder has the same bound.
	maxNesting = 64
)

func newReader(b []byte) *bencoding.Reader {
	return bencoding.NewReader(b, bencoding.Limits{Values: maxValues, Depth: maxNesting})
}
