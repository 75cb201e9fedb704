package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/anacrolix/torrent/metainfo"
)

// Which files a download may write to. A torrent chooses the names of its files, and the user may
// have a file of that name. So before anything is written:
//
//  1. Names that begin with a dot are refused, and names that are the same for this file system.
//  2. All paths that the download may write to are looked at, without following links.
//  3. A file belongs to the download if it is as in the record, if its name ends in .part and the
//     record had one there, or if a killed download may have made it. Any other file belongs to it
//     if one of its pieces is right: it comes from an earlier download of the same torrent, maybe
//     by another client.
//  4. All other files stop the download, or are replaced or set aside, as the user wants.
//  5. The files that the download may make are recorded (openRecord) until they are complete. Files
//     that appear later do not belong to it.

// Existing says what happens to files that are in the way of a download and do not belong to it.
type Existing int

const (
	KeepExisting    Existing = iota // the download stops and names them
	ReplaceExisting                 // they are deleted, unless they are write-protected
	RenameExisting                  // they get another name
)

// asideSuffix is that of files that were set aside; a number may follow it.
const (
	asideSuffix = ".before-download"
	mostAsides  = 1000 // of one name
)

// Claim makes sure that a download in a store from Open may write to its files. It hashes existing
// files as far as necessary. Opening the torrent calls it if nobody has. progress may be nil; it
// gets the number of hashed bytes.
func Claim(ctx context.Context, st Store, l Layout, hash metainfo.Hash, progress func(bytes int64)) error {
	s := writable(st)
	if s == nil || s.kind == KindBolt {
		return nil // the database is the only file, and no torrent can name it
	}
	mine, err := s.claim(ctx, l, hash, progress)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed[hash] = mine
	return nil
}

// claims returns the files that a download writes to: those that the user wants, and those that
// share a piece with one.
func claims(hash metainfo.Hash, l Layout, wanted func(metainfo.Hash, Layout) []bool) []bool {
	mine := slices.Repeat([]bool{true}, len(l.Files))
	if wanted != nil {
		mine = wanted(hash, l)
	}
	pieces := l.PiecesOf(mine)
	for i, f := range l.Files {
		begin, end := l.FilePieces(f)
		mine[i] = mine[i] || slices.Contains(pieces[begin:end], true)
	}
	return mine
}

// claimer looks at existing files.
type claimer struct {
	root   *os.Root
	layout Layout
	seen   map[string]bool // of each path of a directory: the directory exists
	names  []string        // of each file: its present name, if it exists
	before []fs.FileInfo   // of each file; nil: it does not exist
	inWay  []obstacle
}

// obstacle is a file or directory in the way that does not belong to the download.
type obstacle struct {
	path   string
	mode   fs.FileMode
	unread error // why it is not known whether a piece of it is right
}

func (s *store) claim(
	ctx context.Context, l Layout, hash metainfo.Hash, progress func(int64),
) (mine []bool, err error) {
	if strings.HasPrefix(l.Name, ".") && !s.options.AllowDotfiles {
		return nil, fmt.Errorf("%w: %q", ErrDotName, l.Name)
	}
	if err := s.refuseTwins(l); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	mine = claims(hash, l, s.options.Wanted)
	c := &claimer{
		root: root, layout: l, seen: map[string]bool{".": true},
		names: make([]string, len(l.Files)), before: make([]fs.FileInfo, len(l.Files)),
	}
	saved, lost, err := s.loadRecord(hash, l)
	if err != nil {
		return nil, err
	}
	var suspects []int
	for i, f := range l.Files {
		if !mine[i] {
			continue
		}
		both, err := c.look(i)
		if err != nil {
			return nil, err
		}
		st, owned := c.before[i], saved.Owned.has(i)
		switch {
		case st == nil || owned && !both:
			continue
		case both && !owned:
			part, err := root.Lstat(filepath.FromSlash(partName(f.Path)))
			if err != nil {
				return nil, err
			}
			if saved.stamp(i) != stampFrom(part) {
				c.inWay = append(c.inWay, obstacle{path: partName(f.Path), mode: part.Mode()})
			}
		case c.names[i] != f.Path && (saved.stamp(i) != noFile || lost):
			continue // the download made a file of this name, and somebody has changed it
		}
		if saved.stamp(i) != stampFrom(st) && !(f.Length == 0 && st.Size() == 0) {
			suspects = append(suspects, i)
		}
	}
	foreign, err := c.foreign(ctx, suspects, progress)
	if err != nil {
		return nil, fmt.Errorf("check the files that are there already: %w", err)
	}
	for _, i := range suspects {
		if unread, ok := foreign[i]; ok {
			name := filepath.ToSlash(c.names[i])
			c.inWay = append(c.inWay, obstacle{name, c.before[i].Mode(), unread})
		}
	}
	return mine, c.clear(s.dir, s.options)
}

// look finds the file at its final name or with .part, and tells whether both exist.
func (c *claimer) look(i int) (both bool, err error) {
	p := c.layout.Files[i].Path
	if ok, err := c.directory(path.Dir(p)); err != nil || !ok {
		return false, err
	}
	for _, name := range bothNames(p) {
		st, err := c.root.Lstat(filepath.FromSlash(name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return false, err
		case !st.Mode().IsRegular():
			c.inWay = append(c.inWay, obstacle{path: name, mode: st.Mode()})
		case c.before[i] != nil:
			return true, nil
		default:
			c.names[i], c.before[i] = filepath.FromSlash(name), st
		}
	}
	return false, nil
}

// directory tells whether a directory exists.
func (c *claimer) directory(p string) (bool, error) {
	if there, ok := c.seen[p]; ok {
		return there, nil
	}
	there, err := c.directory(path.Dir(p))
	if err != nil {
		return false, err
	}
	if there {
		st, err := c.root.Lstat(filepath.FromSlash(p))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if there = err == nil && st.IsDir(); err == nil && !there {
			c.inWay = append(c.inWay, obstacle{path: p, mode: st.Mode()})
		}
	}
	c.seen[p] = there
	return there, nil
}

// foreign returns the suspects without a right piece. The error, if any, says why one is not known.
func (c *claimer) foreign(
	ctx context.Context, suspects []int, progress func(int64),
) (out map[int]error, err error) {
	l := c.layout
	data, err := readFiles(c.root.Name(), l, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, data.close()) }()
	for i, f := range l.Files {
		data.final[i] = c.names[i] != filepath.FromSlash(partName(f.Path))
	}
	buf := make([]byte, hashPart)
	out = map[int]error{}
	hashes := map[int]error{} // of each hashed piece; nil: it is right
	hashed := int64(0)
	for _, i := range suspects {
		f := l.Files[i]
		begin, end := l.FilePieces(f)
		ours, unread := false, error(nil)
		for p := begin; p < end && !ours; p++ {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			off, n := l.PieceRange(p)
			if c.before[i].Size() < min(f.Length, off+n-f.Offset) {
				break // it ends before
			}
			failed, done := hashes[p]
			if !done {
				var sum metainfo.Hash
				sum, failed = sumOf(l, data, p, buf)
				switch {
				case tooManyOpen(failed):
					return nil, failed
				case failed == nil && sum != l.pieceHash(p):
					failed = errWrong
				}
				hashes[p] = failed
				if hashed += n; progress != nil {
					progress(hashed)
				}
			}
			ours = failed == nil
			if errors.Is(failed, fs.ErrPermission) {
				unread = failed
			}
		}
		if !ours {
			out[i] = unread
		}
	}
	return out, nil
}

// clear removes the obstacles, or returns an error that names them.
func (c *claimer) clear(dir string, opts Options) error {
	if len(c.inWay) == 0 {
		return nil
	}
	if opts.Existing == KeepExisting {
		return c.refusal(dir, c.inWay)
	}
	var kept []obstacle
	for _, o := range c.inWay {
		name, aside := filepath.FromSlash(o.path), ""
		switch {
		case opts.Existing == RenameExisting:
			var err error
			if aside, err = c.asideName(name); err != nil {
				return err
			}
			if err := c.root.Rename(name, aside); err != nil {
				return fmt.Errorf("set %s aside: %w", o.path, err)
			}
			aside = filepath.Join(dir, aside)
		case !o.mode.IsRegular() || isProtected(o.mode):
			kept = append(kept, o)
			continue
		default:
			if err := c.root.Remove(name); err != nil {
				return fmt.Errorf("replace %s: %w", o.path, err)
			}
		}
		if opts.Moved != nil {
			opts.Moved(filepath.Join(dir, name), aside)
		}
	}
	if len(kept) > 0 {
		return c.refusal(dir, kept)
	}
	return nil
}

func (c *claimer) asideName(name string) (string, error) {
	for n := range mostAsides {
		suffix := asideSuffix
		if n > 0 {
			suffix = fmt.Sprintf("%s-%d", suffix, n+1)
		}
		aside := filepath.FromSlash(withSuffix(filepath.ToSlash(name), suffix))
		if _, err := c.root.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			return aside, nil
		}
	}
	return "", fmt.Errorf("set %s aside: there are %d such files already", name, mostAsides)
}

// refusal returns an error that names some of the obstacles.
func (c *claimer) refusal(dir string, inWay []obstacle) error {
	const most = 5
	var out []string
	for _, o := range inWay[:min(len(inWay), most)] {
		out = append(out, fmt.Sprintf("%s is %s", filepath.Join(dir, filepath.FromSlash(o.path)), o.what()))
	}
	if n := len(inWay) - most; n > 0 {
		out = append(out, fmt.Sprintf("%d more are in the way", n))
	}
	err := ErrInTheWay
	if slices.ContainsFunc(inWay, func(o obstacle) bool {
		return o.mode.IsRegular() && !isProtected(o.mode) && o.unread == nil
	}) {
		err = ErrReplaceable
	}
	return fmt.Errorf("%w: %s", err, strings.Join(out, ", "))
}

var (
	// ErrInTheWay is in errors about files that stop a download because they do not belong to it.
	// They can be set aside (RenameExisting).
	ErrInTheWay = errors.New("nothing was written")
	// ErrReplaceable is an ErrInTheWay; at least one of the files can also be replaced
	// (ReplaceExisting).
	ErrReplaceable = fmt.Errorf("%w", ErrInTheWay)
	// ErrDotName is in errors about a torrent that Options.AllowDotfiles would accept.
	ErrDotName = errors.New("the torrent's name begins with a dot, as names of settings do")
)

func (o obstacle) what() string {
	switch {
	case o.mode&fs.ModeSymlink != 0:
		return "a symbolic link, which a download does not follow"
	case o.mode.IsDir():
		return "a directory"
	case !o.mode.IsRegular():
		return "not a regular file"
	case o.unread != nil:
		return fmt.Sprintf("a file that cannot be checked: %v", o.unread)
	case isProtected(o.mode):
		return "a write-protected file that is not of this torrent"
	}
	return "a file that is not of this torrent: no piece of it is right"
}

// isProtected tells whether a file is write-protected. That counts also for root, who could write
// to it.
func isProtected(m fs.FileMode) bool { return m.Perm()&0o200 == 0 }
