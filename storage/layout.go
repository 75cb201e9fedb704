// Package storage keeps the data of torrents on disk, and a record of the parts that are right.
//
// It owns the directory that a torrent is downloaded into: which names may appear there, the files,
// and the record of verified pieces and of the blocks of others. It refuses torrents whose names
// lead out of that directory. It also reads data that it does not own, for seeding, checking and
// making torrents, and then writes nothing.
package storage

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/anacrolix/torrent/metainfo"
)

// MaxFiles bounds the files of a torrent, padding included. A million take a gigabyte of memory.
const MaxFiles = 1 << 18

// maxDirs bounds its directories. Each takes 4 KiB of the disk, even for files without a byte.
const maxDirs = MaxFiles

// Bounds of torrents. They are far above every honest torrent. A crafted one could otherwise take
// all memory, or have names that the file system refuses in the middle of a download.
const (
	maxDepth     = 64
	maxComponent = 255
	maxPath      = 2048
	// maxPiece bounds the cost of a wrong block: its whole piece is fetched again. Real torrents
	// have pieces of at most 16 MiB, rarely 64.
	maxPiece = 256 << 20
	// maxLength keeps the number of blocks within 32 bits, with which the engine counts them.
	maxLength = 32 << 40
)

// recordDir is braid's own directory below the data. No torrent may write there.
const recordDir = ".braid"

// partSuffix marks an incomplete file.
const partSuffix = ".part"

// partName is the path of a file while it is incomplete.
func partName(file string) string { return withSuffix(file, partSuffix) }

// withSuffix is the path of a file with a suffix. A name without room for it is cut; a hash keeps
// the name apart from others that begin alike.
func withSuffix(file, suffix string) string {
	dir, name := path.Split(file)
	if len(name) > maxComponent-len(suffix) {
		sum := fmt.Sprintf("-%x", sha1.Sum([]byte(name)))
		name = strings.ToValidUTF8(name[:maxComponent-len(suffix)-len(sum)], "") + sum
	}
	return dir + name + suffix
}

// bothNames are the paths of a file when it is complete, and while it is not.
func bothNames(file string) [2]string { return [2]string{file, partName(file)} }

// File is one file of a torrent.
type File struct {
	// Path below the data directory, with slashes: the torrent's name, then for a torrent of
	// several files the directories and the name of the file.
	Path   string `json:"path"`
	Length int64  `json:"length"`
	// Offset of the first byte in the torrent's data. Bytes between files (padding) are zero.
	Offset int64 `json:"-"`
}

// Layout is the checked shape of a torrent's data: every path stays within the data directory, on
// every system, and no two are the same.
type Layout struct {
	Name  string
	Files []File
	// Symlinks are the paths of symbolic links (BEP 47). They are not made: a link could lead a
	// later write anywhere.
	Symlinks    []string
	PieceLength int64
	Length      int64 // of all pieces, in bytes
	hashes      []byte
}

// Pieces is the number of pieces.
func (l Layout) Pieces() int {
	if l.PieceLength == 0 {
		return 0
	}
	return int((l.Length + l.PieceLength - 1) / l.PieceLength)
}

// PieceRange is the first byte of a piece in the torrent's data, and its length.
func (l Layout) PieceRange(piece int) (offset, length int64) {
	offset = int64(piece) * l.PieceLength
	return offset, min(l.PieceLength, l.Length-offset)
}

func (l Layout) pieceHash(piece int) [sha1.Size]byte {
	return [sha1.Size]byte(l.hashes[sha1.Size*piece:])
}

// FilePieces is the range of pieces, the last excluded, that hold bytes of the file.
func (l Layout) FilePieces(f File) (begin, end int) {
	if f.Length == 0 {
		return 0, 0
	}
	return int(f.Offset / l.PieceLength), int((f.Offset + f.Length + l.PieceLength - 1) / l.PieceLength)
}

// Span calls do for each file that holds some of the n bytes of the torrent's data at off: bytes
// from to to of them are in file i, from its byte at. Padding has no file.
func (l Layout) Span(off int64, n int, do func(i int, at int64, from, to int) error) error {
	all := l.Files
	end := off + int64(n)
	first := sort.Search(len(all), func(i int) bool { return all[i].Offset+all[i].Length > off })
	for i := first; i < len(all) && all[i].Offset < end; i++ {
		if all[i].Length == 0 {
			continue
		}
		from, to := max(off, all[i].Offset), min(end, all[i].Offset+all[i].Length)
		if err := do(i, from-all[i].Offset, int(from-off), int(to-off)); err != nil {
			return err
		}
	}
	return nil
}

// IsPadding tells whether a file of a torrent is padding (BEP 47): zeros that let the next file
// begin with a piece.
func IsPadding(f metainfo.FileInfo) bool { return strings.Contains(f.Attr, "p") }

// NewLayout checks what a torrent says of its files.
func NewLayout(info *metainfo.Info) (Layout, error) {
	l, err := newLayout(info)
	if err != nil {
		return Layout{}, fmt.Errorf("torrent %q: %w", info.BestName(), err)
	}
	return l, nil
}

func newLayout(info *metainfo.Info) (Layout, error) {
	if !info.HasV1() {
		return Layout{}, errors.New("it is for BitTorrent v2 only, which braid does not support; " +
			"ask for a hybrid torrent (v1 and v2)")
	}
	if info.PieceLength <= 0 || len(info.Pieces)%20 != 0 {
		return Layout{}, errors.New("the piece length or the list of piece hashes is malformed")
	}
	if info.PieceLength > maxPiece {
		return Layout{}, fmt.Errorf("pieces of %d bytes, more than the %d MiB that are accepted",
			info.PieceLength, maxPiece>>20)
	}
	name := info.BestName()
	if err := checkComponent(name); err != nil {
		return Layout{}, fmt.Errorf("its name: %w", err)
	}
	if strings.EqualFold(name, recordDir) {
		return Layout{}, fmt.Errorf("its name %s is kept for braid's own record", recordDir)
	}
	l := Layout{Name: name, PieceLength: info.PieceLength, hashes: info.Pieces}
	files := slices.Collect(info.UpvertedV1Files()) // of a hybrid too: the v1 half says where each byte is
	if len(files) > MaxFiles {
		return Layout{}, fmt.Errorf("%d files, more than the %d that are accepted", len(files), MaxFiles)
	}
	for i, f := range files {
		// Every sum is checked before it is used: lengths may be made to overflow.
		if f.Length < 0 || f.Length > maxLength || f.TorrentOffset < l.Length || f.TorrentOffset > maxLength {
			return Layout{}, fmt.Errorf("file %d: length %d at %d makes no sense", i+1, f.Length, f.TorrentOffset)
		}
		if l.Length = f.TorrentOffset + f.Length; l.Length > maxLength {
			return Layout{}, fmt.Errorf("more than the %d TiB that are accepted", maxLength>>40)
		}
		if IsPadding(f) {
			continue // zeros between files are not stored
		}
		path, err := joinPath(name, f.BestPath())
		if err != nil {
			return Layout{}, fmt.Errorf("file %d: %w", i+1, err)
		}
		if strings.Contains(f.Attr, "l") && f.Length == 0 {
			l.Symlinks = append(l.Symlinks, path)
			continue
		}
		l.Files = append(l.Files, File{Path: path, Length: f.Length, Offset: f.TorrentOffset})
	}
	if err := refuseConflicts(l.Files); err != nil {
		return Layout{}, err
	}
	if l.Pieces()*20 != len(l.hashes) {
		return Layout{}, fmt.Errorf("%d piece hashes for %d pieces", len(l.hashes)/20, l.Pieces())
	}
	return l, nil
}

// refuseConflicts returns an error if a file would have the path of another file or of a directory,
// also while it is incomplete, and if there are too many directories.
func refuseConflicts(files []File) error {
	kinds := map[string]bool{} // path: it is a directory
	for i, f := range files {
		if err := claim(kinds, f.Path); err != nil {
			return err
		}
		if len(kinds)-(i+1) > maxDirs {
			return fmt.Errorf("more than the %d directories that are accepted", maxDirs)
		}
	}
	for _, f := range files {
		if _, taken := kinds[partName(f.Path)]; taken {
			return fmt.Errorf("file %q would have the name of another, %q, while it is not complete",
				f.Path, partName(f.Path))
		}
	}
	return nil
}

func joinPath(name string, parts []string) (string, error) {
	if len(parts) >= maxDepth {
		return "", fmt.Errorf("its path has %d parts, more than the %d that are accepted", len(parts), maxDepth)
	}
	for _, p := range parts {
		if err := checkComponent(p); err != nil {
			return "", err
		}
	}
	path := strings.Join(append([]string{name}, parts...), "/")
	if len(path) > maxPath {
		return "", fmt.Errorf("its path is %d bytes long, more than the %d that are accepted", len(path), maxPath)
	}
	return path, nil
}

// checkComponent accepts plain file names. It refuses the separators of other systems too: a
// torrent with one was made to mislead somebody.
func checkComponent(s string) error {
	switch {
	case s == "":
		return errors.New("an empty name in its path")
	case s == "." || s == "..":
		return fmt.Errorf("%q in its path leads out of the directory", s)
	case strings.ContainsAny(s, "/\\\x00"):
		return fmt.Errorf("name %q holds a separator or NUL", s)
	case len(s) > maxComponent:
		return fmt.Errorf("name %q... is %d bytes long, more than file systems take", s[:32], len(s))
	case !filepath.IsLocal(s):
		return fmt.Errorf("name %q is not a plain file name on this system", s)
	}
	return nil
}

// claim notes that a path is a file and its parents are directories. It fails if one of them is
// something else already.
func claim(kinds map[string]bool, path string) error {
	if _, taken := kinds[path]; taken {
		return fmt.Errorf("path %q is there twice", path)
	}
	kinds[path] = false
	for i := strings.LastIndexByte(path, '/'); i > 0; i = strings.LastIndexByte(path[:i], '/') {
		dir, seen := kinds[path[:i]]
		if seen && !dir {
			return fmt.Errorf("path %q is both a file and a directory", path[:i])
		}
		if seen {
			return nil
		}
		kinds[path[:i]] = true
	}
	return nil
}
