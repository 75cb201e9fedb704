package node

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"braid/storage"
)

var errBusy = errors.New("its data is being checked or moved just now; try again afterwards")

// Rename gives another path to a file of the torrent, or to a directory with all its files, even
// while the torrent runs. Both paths are as in Files. The first element of all paths, the name of
// the torrent's data, can be replaced, too. On disk only files of the torrent are renamed, and
// nothing is overwritten. In a database files have no names, so only the names that users see
// change.
//
// If the process is killed during Rename, the files have either all their old or all their new
// names after the next Open. Errors wrap fs.ErrNotExist, if the torrent has no such file or
// directory, and fs.ErrExist, if there is one with the new name.
func (t *Torrent) Rename(from, to string) error {
	if err := t.rename(from, to); err != nil {
		return fmt.Errorf("torrent %s: %w", t.Options().title(), err)
	}
	t.changed("renamed")
	return nil
}

func (t *Torrent) rename(from, to string) error {
	if t.State() == Moving || !t.lockSoon() {
		return errBusy
	}
	defer t.op.Unlock()
	o, state := t.Options(), t.State()
	switch {
	case state == Moving:
		return errBusy
	case state == Removed:
		return errors.New("it is removed")
	case o.Source.IsMagnet():
		return errors.New("its files are not known yet")
	}
	if err := t.refuseGone(); err != nil {
		return err
	}
	l, changed, err := o.Source.Layout.Rename(from, to)
	if err != nil || len(changed) == 0 {
		return err
	}
	if strings.HasPrefix(l.Name, ".") && l.Name != o.Source.Layout.Name && !o.Storage.AllowDotfiles {
		return storage.ErrDotName
	}
	if err := o.stored().CheckRename(changed); err != nil {
		return err
	}
	t.setRenaming(changed)
	if err := t.keep(); err != nil {
		t.setRenaming(nil)
		return err
	}
	open := false
	if r := t.current(); r != nil {
		open, err = storage.RenameOpen(r.store.Store, t.hash, changed)
	}
	if !open {
		err = o.stored().Rename(t.node.ctx, changed)
	}
	if err == nil {
		err = t.takeNames(changed)
	}
	t.setRenaming(nil)
	return errors.Join(err, t.keep())
}

// renameWait bounds how long Rename waits until a start or stop of the torrent has ended.
const renameWait = 5 * time.Second

// lockSoon tries to lock op for renameWait.
func (t *Torrent) lockSoon() bool {
	late := time.After(renameWait)
	for !t.op.TryLock() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-late:
			return false
		case <-t.node.ctx.Done():
			return false
		}
	}
	return true
}

func (t *Torrent) setRenaming(changed storage.Names) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renaming = changed
}

// takeNames changes the names of files in the torrent's options. The user's patterns match the old
// names, so it replaces them with the numbers of the matching files.
func (t *Torrent) takeNames(changed storage.Names) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.options
	l, err := o.Source.Layout.Renamed(changed)
	if err != nil {
		return err
	}
	if err := o.SetFiles(nil); err != nil {
		return err
	}
	names := maps.Clone(o.Names)
	if names == nil {
		names = storage.Names{}
	}
	maps.Copy(names, changed)
	if l.Name != o.Source.Layout.Name {
		o.Name = ""
	}
	o.Names, o.Source.Layout, o.Source.Name = names, l, l.Name
	t.options = o
	return nil
}

// finishRename continues a rename that an earlier process has begun.
func (t *Torrent) finishRename() error {
	changed := t.renaming
	if changed == nil {
		return nil
	}
	if err := t.refuseGone(); err != nil {
		return err
	}
	if err := t.options.stored().Rename(t.node.ctx, changed); err != nil {
		return err
	}
	if err := t.takeNames(changed); err != nil {
		return err
	}
	t.setRenaming(nil)
	return t.keep()
}

// maxName bounds the name that the user gives to a torrent, in bytes.
const maxName = 255

func checkName(name string) error {
	isText := utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
	if len(name) > maxName || !isText {
		return fmt.Errorf("name %q: want at most %d bytes of text without control characters",
			name, maxName)
	}
	return nil
}
