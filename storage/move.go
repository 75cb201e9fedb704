package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"braid/storage/durable"
)

// How the data of a torrent gets to another directory, so that a process that is killed at any
// moment leaves it whole in the old place or in the new one:
//
//  1. CopyTo makes a second name for each file in the new place or, on another file system, a copy.
//     It never writes to a file that is there already.
//  2. The caller notes, durably, that the new place holds from now on.
//  3. Delete removes the files from the old place.
//
// A process that was killed in between does the same steps again. Files that step 1 has made before
// are known by being the same file, or by having the same content.

// copySuffix is that of the file below recordDir into which data is copied.
const copySuffix = ".moving"

// CopyTo makes the data of the torrent available in another directory, too, with the record of what
// is right. all is as in Belongs, and done gets the number of bytes that are there. It returns an
// error that is fs.ErrExist if other files have the names of the torrent's.
//
// No store may have the torrent open, neither here nor there.
func (s Stored) CopyTo(
	ctx context.Context, dir string, all bool, done func(bytes int64),
) (err error) {
	defer annotate(&err, "copy %s to %s", s.Layout.Name, dir)
	names, err := s.Belongs(ctx, all)
	if err != nil {
		return err
	}
	from, err := openDir(s.Dir)
	if err != nil || from == nil { // nothing was written yet
		return err
	}
	defer from.Close()
	if err := os.MkdirAll(filepath.Join(dir, recordDir), 0o755); err != nil {
		return err
	}
	to, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer to.Close()
	c := &copier{
		ctx: ctx, from: from, to: to, done: done, dirs: map[string]bool{".": true},
		temporary: path.Join(recordDir, s.Hash.HexString()+copySuffix),
	}
	if err := c.copyAll(names, s.kept()); err != nil {
		_ = removeAll(to, append(c.made, c.temporary)) // the error is what the caller must know
		return err
	}
	return nil
}

// copier brings files from one directory into another.
type copier struct {
	ctx       context.Context
	from, to  *os.Root
	temporary string
	bytes     int64
	done      func(bytes int64)
	dirs      map[string]bool // with new names
	made      []string        // files in the new place
}

func (c *copier) copyAll(names, kept []string) error {
	// Nothing is made if somebody else's file is in the way.
	for _, name := range names {
		if err := c.refuseForeign(name); err != nil {
			return err
		}
	}
	// A process that was killed may have left it, as a second name of a file that it had copied.
	if err := c.to.Remove(filepath.FromSlash(c.temporary)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		if err := c.copy(name); err != nil {
			return err
		}
	}
	for _, name := range kept {
		b, err := c.from.ReadFile(filepath.FromSlash(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = durable.Replace(durable.OS{}, c.to, filepath.FromSlash(name), b)
		}
		if err != nil {
			return err
		}
	}
	return syncDirs(durable.OS{}, c.to, c.dirs)
}

// refuseForeign returns an error if the new place has a file of that name that is not ours.
func (c *copier) refuseForeign(name string) error {
	local := filepath.FromSlash(name)
	there, err := c.to.Lstat(local)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	ours, err := c.from.Lstat(local)
	if err != nil {
		return err
	}
	if os.SameFile(there, ours) {
		return c.refuseSameName(local)
	}
	if there.Mode().IsRegular() && there.Size() == ours.Size() {
		if same, err := c.sameContent(local); err != nil || same {
			return err
		}
	}
	return fmt.Errorf("%s: %w, and is not the torrent's: move it away", name, fs.ErrExist)
}

// refuseSameName returns an error if the two places have not two names of a file but one: there,
// the file's directory is a symbolic link to the one here, for example. The file would be deleted.
func (c *copier) refuseSameName(local string) error {
	dir := filepath.Dir(local)
	there, err1 := c.to.Stat(dir)
	here, err2 := c.from.Stat(dir)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if os.SameFile(there, here) {
		return fmt.Errorf("%s is the same directory as %s: remove the link between them first",
			filepath.Join(c.to.Name(), dir), filepath.Join(c.from.Name(), dir))
	}
	return nil
}

func (c *copier) sameContent(name string) (bool, error) {
	a, err := c.from.Open(name)
	if err != nil {
		return false, err
	}
	defer a.Close()
	b, err := c.to.Open(name)
	if err != nil {
		return false, err
	}
	defer b.Close()
	x, y := make([]byte, hashPart), make([]byte, hashPart)
	for {
		if err := c.ctx.Err(); err != nil {
			return false, err
		}
		n, err1 := io.ReadFull(a, x)
		m, err2 := io.ReadFull(b, y)
		if !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		if isEnd(err1) && isEnd(err2) {
			return true, nil
		}
		if err := errors.Join(err1, err2); err != nil {
			return false, err
		}
	}
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

func (c *copier) copy(name string) error {
	local := filepath.FromSlash(name)
	for dir := range parents(name) {
		c.dirs[dir] = true
	}
	if err := c.to.MkdirAll(filepath.Dir(local), 0o755); err != nil {
		return err
	}
	st, err := c.from.Lstat(local)
	if err != nil {
		return err
	}
	_, err = c.to.Lstat(local)
	if err == nil { // an earlier process has made it
		c.add(st.Size())
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if os.Link(filepath.Join(c.from.Name(), local), filepath.Join(c.to.Name(), local)) == nil {
		c.add(st.Size())
	} else {
		// The copy is written under a name of our own, since a name of the torrent's must never
		// have half of the content.
		if err := c.write(local, st); err != nil {
			return err
		}
		if err := c.place(local); err != nil {
			return err
		}
	}
	c.made = append(c.made, name)
	return nil
}

func (c *copier) add(n int64) {
	if c.bytes += n; c.done != nil {
		c.done(c.bytes)
	}
}

// write copies a file into the temporary one, with its modification time, by which the record knows
// it.
func (c *copier) write(name string, st fs.FileInfo) (err error) {
	in, err := c.from.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	temporary := filepath.FromSlash(c.temporary)
	out, err := c.to.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, st.Mode().Perm()|0o200)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	for {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		n, err := io.CopyN(out, in, hashPart)
		c.add(n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if err := c.to.Chtimes(temporary, st.ModTime(), st.ModTime()); err != nil {
		return err
	}
	return out.Sync()
}

// place gives the temporary file its name, unless somebody else has one of that name by now.
func (c *copier) place(name string) error {
	temporary := filepath.FromSlash(c.temporary)
	if err := c.to.Link(temporary, name); err == nil {
		return c.to.Remove(temporary)
	}
	if _, err := c.to.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("%s: %w", name, fs.ErrExist))
	}
	return c.to.Rename(temporary, name) // a file system without links
}
