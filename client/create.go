package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/anacrolix/torrent/bencode"
	"github.com/anacrolix/torrent/metainfo"

	"braid/storage"
)

// CreateOptions are the options of Create. The zero value will do.
type CreateOptions struct {
	PieceLength int64 // bytes, a power of two; 0: chosen from the size
	// ShortPieces also allows pieces of any length below 16 KiB, the most that a peer requests at a
	// time (BEP 3). Peers then request a piece at a time. Such torrents are for studies.
	ShortPieces bool
	Trackers    [][]string // tiers of announce URLs (BEP 12)
	WebSeeds    []string   // URLs of servers with the same data (BEP 19)
	Comment     string
	Private     bool   // BEP 27
	Source      string // a text that changes the info hash: where the torrent is published
	Name        string // of the file or directory in the torrent; empty: that of the root
	// Exclude are patterns of files and directories below the root that are left out, as in
	// Selection.Select but without numbers.
	Exclude []string
	// Only are paths below the root, in the system's form. All other files are left out; if it is
	// empty, none are.
	Only []string
	// Progress, if not nil, is called with the bytes hashed so far and the size, from several
	// goroutines.
	Progress func(done, total int64)
	// Skipped, if not nil, is called with each file and directory that cannot be part of a torrent,
	// and the reason.
	Skipped func(path, reason string)
}

// Check returns an error if no torrent can have these options.
func (o CreateOptions) Check() error {
	p := cmp.Or(o.PieceLength, minPieceLength)
	isUsual := p >= minPieceLength && p <= maxPieceLength && p&(p-1) == 0
	isShort := o.ShortPieces && p > 0 && p < minPieceLength
	if !isUsual && !isShort {
		return fmt.Errorf("piece length %d: want a power of two from 16 KiB to 64 MiB", p)
	}
	sample := metainfo.Info{
		Name: cmp.Or(o.Name, "name"), PieceLength: p, Pieces: make([]byte, 20), Length: 1,
	}
	_, err := storage.NewLayout(&sample)
	return err
}

// Created is a new torrent.
type Created struct {
	Torrent []byte // the .torrent file
	Source  Source
}

// Create makes a torrent of a file or a directory. The same data gives the same info hash: files
// are in the byte order of their names, and there is no date.
func Create(ctx context.Context, root string, opts CreateOptions) (Created, error) {
	c, err := create(ctx, root, opts)
	if err != nil {
		return Created{}, fmt.Errorf("create a torrent of %s: %w", root, err)
	}
	return c, nil
}

func create(ctx context.Context, root string, opts CreateOptions) (Created, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return Created{}, err
	}
	opts.Name = cmp.Or(opts.Name, filepath.Base(root))
	if err := opts.Check(); err != nil {
		return Created{}, err
	}
	info := metainfo.Info{Name: opts.Name, Source: opts.Source}
	real, err := filepath.EvalSymlinks(root) // the root may be a link to a file
	if err != nil {
		return Created{}, err
	}
	before, _ := Stamp(ctx, real, opts) // collect fails for the same reasons, and says more
	total, err := collect(ctx, root, &info, opts)
	if err != nil {
		return Created{}, err
	}
	if total == 0 {
		return Created{}, errors.New("there is no data in it")
	}
	if info.PieceLength = opts.PieceLength; info.PieceLength == 0 {
		info.PieceLength = pieceLength(total)
	}
	if opts.Private {
		info.Private = new(true)
	}
	// NewLayout wants a hash for each piece. The right ones are computed below, if the layout is
	// good.
	info.Pieces = make([]byte, 20*((total+info.PieceLength-1)/info.PieceLength))
	if _, err := storage.NewLayout(&info); err != nil {
		return Created{}, err
	}
	onDisk := info
	onDisk.Name = filepath.Base(real)
	layout, err := storage.NewLayout(&onDisk)
	if err != nil {
		return Created{}, err
	}
	progress := func(int64) {}
	if opts.Progress != nil {
		progress = func(done int64) { opts.Progress(done, total) }
	}
	if info.Pieces, err = storage.Hash(ctx, layout, filepath.Dir(real), progress); err != nil {
		return Created{}, err
	}
	if after, err := Stamp(ctx, real, opts); err != nil || after != before {
		return Created{}, errors.Join(err, ErrChanging)
	}
	s := Source{Creator: "braid", Comment: opts.Comment, WebSeeds: opts.WebSeeds}
	if s.infoBytes, err = bencode.Marshal(info); err != nil {
		return Created{}, err
	}
	b, err := s.File(opts.Trackers)
	if err != nil {
		return Created{}, err
	}
	s, err = ParseTorrent(b)
	return Created{Torrent: b, Source: s}, err
}

// ErrChanging is in errors about files of which no torrent could be made because they change.
var ErrChanging = errors.New("files have changed while they were hashed")

// Stamp hashes the names, sizes, modification times and permissions of the files that Create would
// read. While the stamp stays the same, so does the torrent. Permissions count, since a file may
// become readable.
func Stamp(ctx context.Context, root string, opts CreateOptions) (string, error) {
	h := sha256.New()
	opts.Skipped = nil
	err := EachFile(ctx, root, opts, func(rel string, st fs.FileInfo) {
		fmt.Fprintf(h, "%q %d %d %v\n", rel, st.Size(), st.ModTime().UnixNano(), st.Mode())
	})
	if err != nil {
		return "", fmt.Errorf("look at the files: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// collect lists the regular files below root in order, and adds up their sizes.
func collect(
	ctx context.Context, root string, info *metainfo.Info, opts CreateOptions,
) (total int64, err error) {
	st, err := os.Stat(root)
	if err != nil {
		return 0, err
	}
	if st.Mode().IsRegular() {
		info.Length = st.Size()
		return st.Size(), nil
	}
	if !st.IsDir() {
		return 0, errors.New("neither a file nor a directory")
	}
	if l, err := os.Lstat(root); err == nil && !l.IsDir() {
		return 0, errors.New("a symbolic link to a directory; name the directory itself")
	}
	err = EachFile(ctx, root, opts, func(rel string, st fs.FileInfo) {
		info.Files = append(info.Files, metainfo.FileInfo{
			Length: st.Size(), Path: strings.Split(filepath.ToSlash(rel), "/"),
		})
		total += st.Size()
	})
	slices.SortFunc(info.Files, func(a, b metainfo.FileInfo) int {
		return slices.Compare(a.Path, b.Path)
	})
	return total, err
}

// EachFile calls visit for each regular file of which Create makes a torrent, with its path below
// the root. The path of a root that is a file is ".".
func EachFile(
	ctx context.Context, root string, opts CreateOptions, visit func(rel string, st fs.FileInfo),
) (err error) {
	skipped := opts.Skipped
	if skipped == nil {
		skipped = func(string, string) {}
	}
	walk := func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		matches := func(pattern string) bool { return matchBelow(pattern, rel) }
		excluded := name != root && slices.ContainsFunc(opts.Exclude, matches)
		if d.IsDir() {
			if excluded {
				return fs.SkipDir
			}
			if name != root && d.Name() == ".braid" {
				skipped(name, "braid's own record")
				return fs.SkipDir
			}
			return nil
		}
		if excluded {
			return nil
		}
		if !d.Type().IsRegular() {
			skipped(name, "not a regular file")
			return nil
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		visit(rel, st)
		return nil
	}
	only := opts.Only
	if len(only) == 0 {
		only = []string{"."}
	}
	for _, below := range only {
		if err == nil {
			err = filepath.WalkDir(filepath.Join(root, below), walk)
		}
	}
	return err
}

// matchBelow tells whether a pattern matches a file or directory by its path below the root, or by
// its name. The names of directories above it do not count.
func matchBelow(pattern, rel string) bool {
	rel = filepath.ToSlash(rel)
	if strings.Contains(pattern, "/") {
		return matchName(strings.Trim(pattern, "/"), rel)
	}
	return matchName(pattern, path.Base(rel))
}

// pieceLength is a good piece length for that much data: about 1500 pieces, from 64 KiB to 16 MiB
// each. With fewer, peers wait long for whole pieces; with more, the torrent is large and checking
// slow.
func pieceLength(total int64) int64 {
	const least, most, pieces = 64 << 10, 16 << 20, 1500
	p := int64(least)
	for p < most && total/p > pieces {
		p *= 2
	}
	return p
}
