package storage

import (
	"bytes"
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

// What a download may write to. A torrent chooses the names of its files, and a file of that name may be there already, and
// be the user's own. Before anything is written:
//
//  1. Names that begin with a dot, and names that this file system takes for one, are refused.
//  2. Every place that the download may write to is looked at, without following links.
//  3. A file is ours if the record has it as it is, if it ends in .part and the record had one there, or if a download
//     that was killed may have made it. Of any other one a piece must be right: then it is an earlier download of the same torrent, say by another client.
//  4. Whatever else is in the way stops the download, or is replaced or set aside, as the user wants.
//  5. The record is told which files the download may make (record.open). All others that appear later are not ours.

// Existing says what happens to files that are in the way of a download and not its own.
type Existing int

const (
	KeepExisting    Existing = iota // the download stops and names them
	ReplaceExisting                 // files that may be written to are deleted
	RenameExisting                  // they get another name
)

// OnExisting says what happens to files that are in the way and not the download's own. tell, if not nil, is called with the path
// of each that was moved, and its new one, which is empty if it was deleted.
func OnExisting(e Existing, tell func(path, aside string)) Option {
	return func(o *options) { o.existing, o.tell = e, tell }
}

// AllowDotfiles lets a torrent's name begin with a dot.
func AllowDotfiles() Option { return func(o *options) { o.dotfiles = true } }

// asideSuffix is that of files that were set aside, which may be followed by a number.
const (
	asideSuffix = ".before-download"
	mostAsides  = 1000 // of one name: more means that something else is wrong
)

// Claim makes sure that a download in a store from Open may write to its files, hashing what is there already as far as it
// takes. Opening the torrent in the store does the same, if it was not done before. progress may be nil; it gets the number
// of bytes that were hashed.
func Claim(ctx context.Context, st Store, l Layout, hash metainfo.Hash, progress func(bytes int64)) error {
	s, ok := st.(*store)
	if !ok || s.kind == KindBolt {
		return nil // it writes to no file that a torrent can name
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

// claims are the files that the user wants, and those that share a piece with one: both are written to.
func claims(hash metainfo.Hash, l Layout, wanted func(metainfo.Hash, Layout) []bool) []bool {
	mine := slices.Repeat([]bool{true}, len(l.Files))
	if wanted != nil {
		mine = wanted(hash, l)
	}
	pieces := make([]bool, l.Pieces())
	for i, f := range l.Files {
		if mine[i] {
			begin, end := l.FilePieces(f)
			for p := begin; p < end; p++ {
				pieces[p] = true
			}
		}
	}
	for i, f := range l.Files {
		begin, end := l.FilePieces(f)
		mine[i] = mine[i] || slices.Contains(pieces[begin:end], true)
	}
	return mine
}

// claimer looks at what is there.
type claimer struct {
	root   *os.Root
	layout Layout
	seen   map[string]bool // of directories: they are there, and are directories
	names  []string        // of each file: its present one, if it is there
	before []fs.FileInfo   // nil: it is not there
	inWay  []obstacle
}

// obstacle is something that is not ours.
type obstacle struct {
	path string
	mode fs.FileMode
}

func (s *store) claim(ctx context.Context, l Layout, hash metainfo.Hash, progress func(int64)) (mine []bool, err error) {
	if strings.HasPrefix(l.Name, ".") && !s.options.dotfiles {
		return nil, fmt.Errorf("the name %q begins with a dot, as names of settings do: --allow-dotfiles accepts it", l.Name)
	}
	if err := s.refuseTwins(l); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	mine = claims(hash, l, s.options.wanted)
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
		st := c.before[i]
		switch {
		case st == nil || saved.Owned.has(i):
			continue
		case both:
			part, err := root.Lstat(filepath.FromSlash(f.Path + partSuffix))
			if err != nil {
				return nil, err
			}
			if saved.stamp(i) != stampFrom(part) {
				c.inWay = append(c.inWay, obstacle{f.Path + partSuffix, part.Mode()})
			}
		case c.names[i] != f.Path && (saved.stamp(i) != noFile || lost):
			continue // only ours is named like that, where there was one; somebody has changed it
		}
		if saved.stamp(i) != stampFrom(st) && !(f.Length == 0 && st.Size() == 0) {
			suspects = append(suspects, i)
		}
	}
	foreign, err := c.foreign(ctx, suspects, progress)
	if err != nil {
		return nil, fmt.Errorf("check the files that are there already: %w", err)
	}
	for _, i := range foreign {
		c.inWay = append(c.inWay, obstacle{filepath.ToSlash(c.names[i]), c.before[i].Mode()})
	}
	return mine, c.clear(s.dir, s.options.existing, s.options.tell)
}

// look finds what is at a file's place. It is true if both a complete file and one that is not are there.
func (c *claimer) look(i int) (both bool, err error) {
	p := c.layout.Files[i].Path
	if ok, err := c.directory(path.Dir(p)); err != nil || !ok {
		return false, err
	}
	for _, name := range []string{p, p + partSuffix} {
		st, err := c.root.Lstat(filepath.FromSlash(name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return false, err
		case !st.Mode().IsRegular():
			c.inWay = append(c.inWay, obstacle{name, st.Mode()})
		case c.before[i] != nil:
			return true, nil
		default:
			c.names[i], c.before[i] = filepath.FromSlash(name), st
		}
	}
	return false, nil
}

// directory tells whether a directory is there.
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
			c.inWay = append(c.inWay, obstacle{p, st.Mode()})
		}
	}
	c.seen[p] = there
	return there, nil
}

// foreign returns those of the files of which no piece is right.
func (c *claimer) foreign(ctx context.Context, suspects []int, progress func(int64)) (out []int, err error) {
	l := c.layout
	src := &filesReader{layout: l, dir: c.root.Name(), names: c.names}
	defer src.close()
	buf := make([]byte, hashPart)
	sums := map[int]bool{} // pieces that were hashed: they are right
	hashed := int64(0)
	for _, i := range suspects {
		f := l.Files[i]
		begin, end := l.FilePieces(f)
		ours := false
		for p := begin; p < end && !ours; p++ {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			off, n := l.PieceRange(p)
			if c.before[i].Size() < min(f.Length, off+n-f.Offset) {
				break // it ends before
			}
			right, done := sums[p]
			if !done {
				sum, err := sumOf(l, src, p, buf)
				right = err == nil && bytes.Equal(sum[:], l.pieceHash(p))
				sums[p] = right
				if hashed += n; progress != nil {
					progress(hashed)
				}
			}
			ours = right
		}
		if !ours {
			out = append(out, i)
		}
	}
	return out, nil
}

// clear takes away what is in the way, or says what it is.
func (c *claimer) clear(dir string, how Existing, tell func(path, aside string)) error {
	if len(c.inWay) == 0 {
		return nil
	}
	if how == KeepExisting {
		return c.refusal(dir, c.inWay)
	}
	var kept []obstacle
	for _, o := range c.inWay {
		name, aside := filepath.FromSlash(o.path), ""
		switch {
		case how == RenameExisting:
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
		if tell != nil {
			tell(filepath.Join(dir, name), aside)
		}
	}
	if len(kept) > 0 {
		return c.refusal(dir, kept)
	}
	return nil
}

func (c *claimer) asideName(name string) (string, error) {
	for n := range mostAsides {
		aside := name + asideSuffix
		if n > 0 {
			aside = fmt.Sprintf("%s-%d", aside, n+1)
		}
		if _, err := c.root.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			return aside, nil
		}
	}
	return "", fmt.Errorf("set %s aside: there are %d such files already", name, mostAsides)
}

// refusal names some of the files.
func (c *claimer) refusal(dir string, inWay []obstacle) error {
	const most = 5
	var out []string
	for _, o := range inWay[:min(len(inWay), most)] {
		out = append(out, fmt.Sprintf("%s is %s", filepath.Join(dir, filepath.FromSlash(o.path)), o.what()))
	}
	if n := len(inWay) - most; n > 0 {
		out = append(out, fmt.Sprintf("%d more are in the way", n))
	}
	advice := "--rename sets aside what is in the way, --overwrite replaces files; or download into another directory"
	if !slices.ContainsFunc(inWay, func(o obstacle) bool { return o.mode.IsRegular() && !isProtected(o.mode) }) {
		advice = "--rename sets aside what is in the way; or download into another directory"
	}
	return fmt.Errorf("%w: %s (%s)", ErrInTheWay, strings.Join(out, ", "), advice)
}

// ErrInTheWay is in errors about files that are not the download's own, which stop it.
var ErrInTheWay = errors.New("nothing was written")

func (o obstacle) what() string {
	switch {
	case o.mode&fs.ModeSymlink != 0:
		return "a symbolic link, which a download does not follow"
	case o.mode.IsDir():
		return "a directory"
	case !o.mode.IsRegular():
		return "not a regular file"
	case isProtected(o.mode):
		return "a write-protected file that is not of this torrent"
	}
	return "a file that is not of this torrent: no piece of it is right"
}

// isProtected tells whether the owner has taken the right to write away. It counts for those too who may write everywhere.
func isProtected(m fs.FileMode) bool { return m.Perm()&0o200 == 0 }
