package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"

	"braid/client"
	"braid/node"
)

const (
	// settling is the time between a change of a directory and the look at it. Files are often
	// written in several steps.
	settling = 500 * time.Millisecond
	// lookEvery finds what no notification tells of, on network file systems for example, and a
	// directory that was missing.
	lookEvery = time.Minute
	// maxSeen bounds the files that are remembered, and looked at each time.
	maxSeen = 10_000
)

// watcher adds the .torrent files of a directory.
type watcher struct {
	node *node.Node
	log  *slog.Logger
	seen map[string]stamp // files that need not be read again, by name
	dir  string           // that seen is about, and that is followed
}

// stamp tells whether a file is still the same.
type stamp struct {
	size    int64
	changed time.Time
	// again has the file tried at each look, since no look finds this stamp: the system has refused
	// something, for example because space is missing. When that ends, the file does not change.
	again bool
}

// run looks at the directory of the settings when it changes, when the settings do, and at times.
func (w *watcher) run(ctx context.Context, settings <-chan struct{}) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		w.log.Warn("changes of the watch directory are noticed late: the system does not report them",
			"error", err)
		notify = &fsnotify.Watcher{}
	} else {
		defer notify.Close()
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-settings:
			due.Reset(0)
		case <-notify.Events:
			due.Reset(settling)
		case err := <-notify.Errors:
			if err != nil {
				w.log.Warn("watch directory", "error", err)
			}
		case <-tick.C:
			due.Reset(0)
		case <-due.C:
			s := w.node.Settings().Watch
			if notify.Events != nil {
				w.follow(notify, s.Dir)
			}
			w.look(ctx, s)
		}
	}
}

// follow has the changes of a directory reported. It is called before each look: a directory that
// has gone and come back is another one for the system.
func (w *watcher) follow(notify *fsnotify.Watcher, dir string) {
	if dir != w.dir {
		_ = notify.Remove(w.dir) // it may have gone
	}
	if dir != "" {
		_ = notify.Add(dir) // without it, the looks at times are left
	}
}

var errTooMany = fmt.Errorf("only %d .torrent files of the directory are looked at: "+
	"move others elsewhere, or have files renamed or deleted", maxSeen)

// look adds the new .torrent files of the directory.
func (w *watcher) look(ctx context.Context, s node.Watch) {
	if s.Dir != w.dir {
		w.dir = s.Dir
		clear(w.seen)
	}
	if s.Dir == "" {
		return
	}
	all, whole, err := node.TorrentFiles(s.Dir, maxSeen)
	switch {
	case err != nil:
		w.complain(s.Dir, stamp{}, err)
		return
	case !whole:
		w.complain(s.Dir, stamp{}, errTooMany)
	default:
		delete(w.seen, s.Dir)
	}
	for _, f := range all {
		name, now := f.Path, stamp{size: f.Size(), changed: f.ModTime()}
		if w.seen[name] == now || ctx.Err() != nil {
			continue
		}
		if err := w.add(ctx, name, s.Then); err != nil {
			now.again = errors.As(err, new(*fs.PathError))
			w.complain(name, now, err)
			continue
		}
		w.remember(name, now)
	}
}

// complain logs what is wrong with a file, once until it changes.
func (w *watcher) complain(name string, now stamp, err error) {
	if old, ok := w.seen[name]; !ok || old != now {
		w.log.Warn("watch directory: not added", "file", name, "error", err)
	}
	w.remember(name, now)
}

func (w *watcher) remember(name string, now stamp) {
	if len(w.seen) >= 2*maxSeen {
		clear(w.seen)
	}
	w.seen[name] = now
}

// add adds the torrent of a file, and does with the file what the settings say.
func (w *watcher) add(ctx context.Context, name, then string) error {
	src, err := client.OpenSource(ctx, name)
	if err != nil {
		return err
	}
	o := node.Options{Source: src, Trackers: node.ParseTrackers(src, w.log)}
	if _, err := w.node.Add(ctx, o); err != nil && !errors.Is(err, node.ErrExists) {
		return err
	}
	switch then {
	case "delete":
		err = os.Remove(name)
	case "rename":
		err = os.Rename(name, name+".added")
	}
	if err != nil { // not wrapped: the torrent must not be added again if the user removes it
		return errors.New("the torrent is added, but its file stays: " + err.Error())
	}
	return nil
}
