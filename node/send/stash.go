package send

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"braid/client"
	"braid/node"
)

// Files are the files and directories of one send: those at Only below Root, or all of Root,
// without those that match Exclude (see client.CreateOptions).
type Files struct {
	Root          string // absolute
	Only, Exclude []string
}

// Select returns the files for the paths that a user names. Several paths keep their places below
// the deepest directory that holds all of them.
func Select(paths []string) (f Files, err error) {
	var all []string
	for _, named := range paths {
		p := named
		if p == "" { // filepath.Abs takes it for the current directory
			return f, errors.New("a path is empty: name a file or directory, or . for this one")
		}
		if p, err = filepath.Abs(p); err == nil {
			p, err = filepath.EvalSymlinks(p)
		}
		if err != nil {
			return f, fmt.Errorf("cannot send %s: %w; check the path and your rights",
				named, reason(err))
		}
		all = append(all, p)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) == 1 {
		if filepath.Dir(all[0]) == all[0] {
			return f, fmt.Errorf("%s has no name: send the directories in it", all[0])
		}
		return Files{Root: all[0]}, nil
	}
	root := filepath.Dir(all[0])
	for _, p := range all {
		for !isBelow(p, root) {
			root = filepath.Dir(root)
		}
	}
	if filepath.Dir(root) == root {
		return f, errors.New("the paths have only the root directory in common: send them one by one")
	}
	for _, p := range all {
		below, err := filepath.Rel(root, p)
		if err != nil {
			return f, err
		}
		covered := slices.ContainsFunc(f.Only, func(o string) bool {
			return isBelow(p, filepath.Join(root, o))
		})
		if !covered {
			f.Only = append(f.Only, below)
		}
	}
	f.Root = root
	return f, nil
}

// reason returns an error without its system call and path, since the path may be a link's target.
func reason(err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		return at.Err
	}
	return err
}

// isBelow tells whether a path is a directory or in it. Every path is below the root.
func isBelow(path, dir string) bool {
	isRoot := filepath.Dir(dir) == dir
	return path == dir || isRoot || strings.HasPrefix(path, dir+string(filepath.Separator))
}

// Stamp is client.Stamp of the files. Other files below Root are not part of it, since one that
// changes all the time would prevent every publication.
func (f Files) Stamp(ctx context.Context) (string, error) {
	return client.Stamp(ctx, f.Root, client.CreateOptions{Only: f.Only, Exclude: f.Exclude})
}

// rest is how long files must not change before they are published. While a file is being written,
// its size or time changes.
const rest = 2 * time.Second

// AtRest waits until the files have another stamp and no longer change. It returns only the
// context's error. complain gets errors of reading the files, such as a missing directory, and nil
// once it works again.
func (f Files) AtRest(
	ctx context.Context, not string, complain func(error),
) (stamp string, err error) {
	var since time.Time
	for {
		began := time.Now()
		now, err := f.Stamp(ctx)
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		complain(err)
		switch {
		case err != nil || now != stamp:
			stamp, since = now, began
		case stamp != not && began.Sub(since) >= rest:
			return stamp, nil
		}
		// Many files take long to look at: most of the time is left to others.
		pause := max(rest/4, 10*time.Since(began))
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// Stash is the saved state of a sender, with which it prints the same line when it is started
// again. Only the user can read its file.
type Stash struct {
	Key       Key    `json:"key"`
	Stamp     string `json:"stamp"` // of the files when Torrent was made
	SCIONPort uint16 `json:"scion_port"`
	IPPort    uint16 `json:"ip_port"`
	// The ports of the news.
	NewsSCIONPort uint16 `json:"news_scion_port,omitempty"`
	NewsIPPort    uint16 `json:"news_ip_port,omitempty"`
	Torrent       []byte `json:"torrent,omitempty"` // the .torrent file

	dir, name string
}

// maxStashes bounds the remembered senders; the oldest are forgotten. maxStash bounds one file.
const (
	maxStashes = 256
	maxStash   = 2 * client.MaxTorrentFile
)

// OpenStash returns what is remembered of the files in that directory, or a new stash with a new
// key.
func OpenStash(dir string, f Files) (*Stash, error) {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.Chmod(dir, 0o700) // nobody else may read a key
	}
	if err != nil {
		return nil, fmt.Errorf("remember the key: %w", err)
	}
	sum := sha256.Sum256([]byte(strings.Join(append([]string{f.Root}, f.Only...), "\x00")))
	s := &Stash{dir: dir, name: hex.EncodeToString(sum[:12]) + ".json"}
	name := filepath.Join(dir, s.name)
	if st, err := os.Stat(name); err == nil && st.Size() <= maxStash {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("remember the key: %w", err)
		}
		if json.Unmarshal(b, s) == nil && s.Key != (Key{}) {
			return s, nil
		}
	}
	*s = Stash{Key: NewKey(), dir: dir, name: s.name} // there is none, or it is damaged
	return s, nil
}

// Source returns the torrent of files that have not changed since it was made.
func (s *Stash) Source(stamp string) (client.Source, bool) {
	if s.Stamp != stamp || len(s.Torrent) == 0 {
		return client.Source{}, false
	}
	src, err := client.ParseTorrent(s.Torrent)
	return src, err == nil
}

// Save writes the stash, and forgets the oldest ones if there are too many.
func (s *Stash) Save() error {
	b, err := json.Marshal(s)
	if err == nil {
		err = node.ReplaceSecret(filepath.Join(s.dir, s.name), b)
	}
	if err != nil {
		return fmt.Errorf("remember the key: %w", err)
	}
	s.prune()
	return nil
}

// prune ignores errors: a file that it cannot delete costs only disk space.
func (s *Stash) prune() {
	files, err := os.ReadDir(s.dir)
	if err != nil || len(files) <= maxStashes {
		return
	}
	slices.SortFunc(files, func(a, b os.DirEntry) int { return modified(b).Compare(modified(a)) })
	for _, f := range files[maxStashes:] {
		_ = os.Remove(filepath.Join(s.dir, f.Name()))
	}
}

// modified returns when a file was written; zero if that is unknown.
func modified(f os.DirEntry) time.Time {
	st, err := f.Info()
	if err != nil {
		return time.Time{}
	}
	return st.ModTime()
}
