package node

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"braid/client"
	"braid/storage"
	"braid/storage/durable"
)

// A node with a state directory keeps these files there:
//
//	HASH.torrent   the .torrent file; a magnet link has none until peers have described it
//	HASH.json      the torrent's options; without this file the node does not have the torrent
//	HASH.peers     peers that have delivered data of it
//	queue.json     the order of the torrents, if that is not the order in which they were added
//	settings.json  the node's settings
//	counters.json  the counters and the progress of each torrent
//
// Each file is replaced as a whole, so that a killed process leaves either the old or the new one.
// A change of options or settings is on disk when the call returns. The counters of all torrents
// are written together once a minute, since each write waits for the disk.

// saved is the content of HASH.json: the options, and other properties of the torrent.
type saved struct {
	Options
	// Magnet has the name, trackers, peers and web seeds, also of a torrent with a .torrent file.
	Magnet    string        `json:"magnet"`
	HTTPSeeds []string      `json:"http_seeds,omitempty"` // web seeds that Magnet cannot have
	Nodes     []string      `json:"nodes,omitempty"`      // of a DHT
	Renaming  storage.Names `json:"renaming,omitempty"`   // the new names of files
	Comment   string        `json:"comment,omitempty"`
	Creator   string        `json:"creator,omitempty"`
	Created   time.Time     `json:"created,omitzero"`
	Added     time.Time     `json:"added"`
	Completed time.Time     `json:"completed,omitzero"`
	Served    string        `json:"served,omitempty"` // the reason, if it is or was Served
	Forced    bool          `json:"forced,omitempty"`
	Arriving  bool          `json:"arriving,omitempty"`  // its data must move to CompleteDir
	Due       bool          `json:"due,omitempty"`       // the program must run for it
	Removing  bool          `json:"removing,omitempty"`  // it is being removed with its data
	NextMove  *move         `json:"next_move,omitempty"` // it has not begun
	MoveTo    string        `json:"move_to,omitempty"`   // its data is being copied there
	Leaving   string        `json:"leaving,omitempty"`   // where old data must be deleted
	Verify    bool          `json:"verify,omitempty"`    // its check has not ended
}

func (n *Node) stateFile(infoHash, ext string) string { return filepath.Join(n.state, infoHash+ext) }

// read reads a file in the state directory. If the file is missing, the value does not change.
func (n *Node) read(name string, to any) error {
	if n.state == "" {
		return nil
	}
	return ReadJSON(filepath.Join(n.state, name), to)
}

// write replaces a file in the state directory, if the node has one. A file that has the content
// already stays: the disk may be full.
func (n *Node) write(name string, v any) error {
	if n.state == "" {
		return nil
	}
	name = filepath.Join(n.state, name)
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, b) {
		return nil
	}
	return ReplaceFile(name, b, true)
}

// save is keep, with errors in the log: the torrent runs on.
func (t *Torrent) save() {
	if err := t.keep(); err != nil {
		t.node.log.Warn("the state of a torrent cannot be saved",
			"torrent", t.Options().title(), "error", err)
	}
}

// keep writes the torrent's files if they have changed. Each write waits for the disk, which may be
// full. Without the comparison, thousands of torrents took minutes to restore and to close.
func (t *Torrent) keep() error {
	if t.node.state == "" {
		return nil
	}
	t.saving.Lock()
	defer t.saving.Unlock()
	if t.State() == Removed {
		return nil
	}
	o := t.Options()
	if !t.kept && !o.Source.IsMagnet() {
		name := t.node.stateFile(t.InfoHash(), ".torrent")
		if err := ReplaceFile(name, o.Source.Torrent(), true); err != nil {
			return err
		}
		t.kept = true
	}
	b, err := json.Marshal(t.saved())
	if err != nil {
		return err
	}
	sum := sha256.Sum256(b)
	if sum == t.onDisk {
		return nil
	}
	t.onDisk = [sha256.Size]byte{} // after an error nobody knows what the file says
	if err := ReplaceFile(t.node.stateFile(t.InfoHash(), ".json"), b, true); err != nil {
		return err
	}
	t.onDisk = sum
	return nil
}

func (t *Torrent) saved() saved {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.options
	return saved{
		Options:   o,
		Magnet:    o.Source.Magnet(o.Source.Peers...),
		HTTPSeeds: o.Source.HTTPSeeds,
		Nodes:     o.Source.Nodes,
		Renaming:  t.renaming,
		Comment:   o.Source.Comment,
		Creator:   o.Source.Creator,
		Created:   o.Source.Created,
		Added:     t.added,
		Completed: t.completed,
		Served:    t.reason,
		Forced:    t.forced,
		Arriving:  t.arriving,
		Due:       t.due,
		Removing:  t.removing,
		NextMove:  t.nextMove,
		MoveTo:    t.moveTo,
		Leaving:   t.leaving,
		Verify:    t.unverified,
	}
}

// unsave deletes the files of a removed torrent, HASH.json first: without it Restore ignores the
// others.
func (t *Torrent) unsave() {
	if t.node.state == "" {
		return
	}
	t.saving.Lock()
	defer t.saving.Unlock()
	for _, ext := range []string{".json", ".torrent", ".peers"} {
		err := os.Remove(t.node.stateFile(t.InfoHash(), ext))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.node.log.Warn("the state of a removed torrent is left behind", "error", err)
		}
	}
	if err := syncDir(t.node.state); err != nil {
		t.node.log.Warn("the state of a removed torrent may come back after a crash", "error", err)
	}
}

// isTorrentState tells whether a name is that of a HASH.json.
var isTorrentState = regexp.MustCompile(`^[0-9a-f]{40}\.json$`).MatchString

// Restore adds the torrents in the state directory, in their order. The error names those that
// cannot be restored; all others are added.
func (n *Node) Restore(ctx context.Context) error {
	if n.state == "" {
		return nil
	}
	all, removing, err := n.restoredAll()
	errs := []error{err}
	order, err := n.loadOrder()
	if err != nil {
		n.log.Error("the order of all torrents is lost: it cannot be read",
			"file", filepath.Join(n.state, orderFile), "error", err)
	}
	place := func(t *Torrent) int {
		if i, ok := order[t.InfoHash()]; ok {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(all, func(a, b *Torrent) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), a.added.Compare(b.added))
	})
	var moving []*Torrent
	for _, t := range all {
		moves, unverified := t.moving, t.unverified // before it may start
		switch _, err := n.add(ctx, t); {
		case err != nil:
			errs = append(errs, fmt.Errorf("restore %s: %w", t.InfoHash(), err))
		case moves:
			moving = append(moving, t)
		case unverified:
			errs = append(errs, t.Verify())
		}
	}
	// Only now it is known which files the torrents share.
	for _, t := range moving {
		n.background(t.finishMoves)
	}
	for _, t := range removing { // the last process has ended before it was removed
		err := t.deleteData(ctx)
		if ctx.Err() == nil { // otherwise the next process deletes it
			t.unsave()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("restore %s: %w", t.InfoHash(), err))
		}
	}
	return errors.Join(errs...)
}

// restoredAll reads the torrents in the state directory. The data of those in removing is still to
// be deleted.
func (n *Node) restoredAll() (all, removing []*Torrent, err error) {
	entries, err := os.ReadDir(n.state)
	if err != nil {
		return nil, nil, fmt.Errorf("restore torrents: %w", err)
	}
	var errs []error
	_, _, known := n.sums()
	for _, e := range entries {
		if !isTorrentState(e.Name()) {
			continue
		}
		t, err := n.restored(filepath.Join(n.state, e.Name()))
		if err == nil && t.removing {
			removing = append(removing, t)
			continue
		}
		if err == nil {
			t.restoreCounters(known[t.InfoHash()])
			err = t.finishRename()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("restore %s: %w", e.Name(), err))
			continue
		}
		all = append(all, t)
	}
	return all, removing, errors.Join(errs...)
}

// restoreCounters takes over the saved counters. If a process was killed, they may be older than
// the torrent's options and its completion. Then the completion record tells the progress, unless a
// check has found it wrong.
func (t *Torrent) restoreCounters(c counters) {
	same := c.Shape.Total == t.last.Total
	if same {
		t.setShape(c.Shape)
	}
	older := !t.completed.IsZero() && t.last.Have < t.last.Total && !t.options.Storage.Recheck
	if !same || older {
		t.lookAtRecord()
	}
	t.past, t.past.Shape = c, shape{}
}

// restored reads a HASH.json.
func (n *Node) restored(name string) (*Torrent, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var s saved
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, err
	}
	o := s.Options
	if o.Source, err = s.source(strings.TrimSuffix(name, ".json") + ".torrent"); err != nil {
		return nil, err
	}
	if len(s.Names) > 0 {
		if o.Source.Layout, err = o.Source.Layout.Renamed(s.Names); err != nil {
			return nil, err
		}
		o.Source.Name = o.Source.Layout.Name
	}
	if want := strings.TrimSuffix(filepath.Base(name), ".json"); o.Source.InfoHash.HexString() != want {
		return nil, fmt.Errorf("it is of another torrent, %s", o.Source.InfoHash)
	}
	t := newTorrent(n, o)
	t.added, t.completed, t.forced, t.removing = s.Added, s.Completed, s.Forced, s.Removing
	t.arriving, t.due, t.unverified = s.Arriving, s.Due, s.Verify
	_, missing := os.Stat(strings.TrimSuffix(name, ".json") + ".torrent")
	t.kept = missing == nil // otherwise the description may lie with the data, which can move
	if s.Served != "" {
		t.state, t.reason = Served, s.Served
		close(t.done)
		close(t.ended)
	}
	if t.moveTo, t.leaving = s.MoveTo, s.Leaving; t.moveTo != "" || t.leaving != "" {
		t.state = Moving
	}
	t.nextMove = s.NextMove
	t.moving = t.state == Moving || t.nextMove != nil
	t.renaming = s.Renaming
	t.deliverers = n.loadPeers(t.InfoHash())
	t.onDisk = sha256.Sum256(b)
	return t, nil
}

// source returns the saved torrent. Its description comes from the .torrent file or, if that is
// missing, from the directory of its data.
func (s saved) source(torrent string) (client.Source, error) {
	magnet, err := client.ParseOwnMagnet(s.Magnet)
	if err != nil {
		return magnet, err
	}
	b, err := os.ReadFile(torrent)
	if errors.Is(err, os.ErrNotExist) {
		return magnet.WithKept(s.Storage.Dir), nil
	}
	if err != nil {
		return magnet, err
	}
	src, err := client.ParseTorrent(b)
	src.Trackers, src.Peers, src.Nodes = magnet.Trackers, magnet.Peers, s.Nodes
	src.HTTPSeeds, src.WebSeeds = s.HTTPSeeds, slices.Concat(s.HTTPSeeds, magnet.WebSeeds)
	src.Comment, src.Creator, src.Created = s.Comment, s.Creator, s.Created
	return src, err
}

// ReadJSON reads a file of WriteJSON. If the file is missing, the value does not change.
func ReadJSON(name string, to any) error {
	b, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(b, to)
}

// WriteJSON makes a value the content of a file, like ReplaceFile.
func WriteJSON(name string, v any, lasting bool) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return ReplaceFile(name, b, lasting)
}

// ReplaceFile replaces a file as a whole: readers find either the old or the new content, even
// after a crash of this process. If lasting is true, that holds after a crash of the machine, too.
func ReplaceFile(name string, b []byte, lasting bool) error {
	return replaceFile(name, b, 0o644, lasting)
}

// ReplaceSecret is a lasting ReplaceFile for a file that only its owner may read.
func ReplaceSecret(name string, b []byte) error { return replaceFile(name, b, 0o600, true) }

// CheckReplace returns an error if ReplaceFile could not write the file.
func CheckReplace(name string) error {
	f, err := newFile(name, 0o600)
	if err != nil {
		return writeError(name, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// newFile makes the temporary file that replaces a file. It replaces regular files only: root could
// replace /dev/null. The umask of the user holds.
func newFile(name string, mode os.FileMode) (*os.File, error) {
	if st, err := os.Stat(name); err == nil && !st.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	temporary := filepath.Join(filepath.Dir(name), ".braid-"+rand.Text())
	return os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
}

func replaceFile(name string, b []byte, mode os.FileMode, lasting bool) error {
	f, err := newFile(name, mode)
	if err != nil {
		return writeError(name, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if lasting {
		err = errors.Join(err, f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err == nil && lasting {
		err = syncDir(filepath.Dir(name))
	}
	if err != nil {
		return writeError(name, err)
	}
	return nil
}

// writeError names the file instead of the temporary one in err.
func writeError(name string, err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		err = e.Err
	} else if e, ok := errors.AsType[*os.LinkError](err); ok {
		err = e.Err
	}
	return &os.PathError{Op: "write", Path: name, Err: err}
}

// syncDir waits until the names in a directory are on disk.
func syncDir(name string) error {
	root, err := os.OpenRoot(name)
	if err != nil {
		return err
	}
	defer root.Close()
	return durable.SyncDir(durable.OS{}, root, ".")
}
