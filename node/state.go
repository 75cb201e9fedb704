package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"braid/client"
	"braid/pathsel"
	"braid/tracker"
)

// A node with a state directory keeps two files there for each torrent: HASH.torrent, the torrent
// itself, which a magnet link lacks, and HASH.json, its options and counters. Both are replaced as
// a whole, so that a killed process leaves either the old or the new one.

// saved is the content of HASH.json.
type saved struct {
	Magnet       string              `json:"magnet"` // also of a .torrent file: it has the name, trackers and web seeds
	Added        time.Time           `json:"added"`
	Storage      Storage             `json:"storage"`
	Trackers     [][]savedTracker    `json:"trackers"`
	Peers        []string            `json:"peers,omitempty"`
	Selection    client.Selection    `json:"selection"`
	SuperSeeding client.SuperSeeding `json:"super_seeding"`
	Goal         Goal                `json:"goal"`
	StopTimeout  time.Duration       `json:"stop_timeout,omitempty"`
	Paused       bool                `json:"paused,omitempty"`
	Upload       int64               `json:"upload_bit_s,omitempty"`
	Download     int64               `json:"download_bit_s,omitempty"`
	Paths        []savedLimit        `json:"path_limits,omitempty"`
	Fetched      int64               `json:"fetched_bytes"`
	Sent         int64               `json:"sent_bytes"`
}

type savedTracker struct {
	URL    string `json:"url"`
	ByUser bool   `json:"by_user,omitempty"`
}

type savedLimit struct {
	Pattern string `json:"pattern"`
	Rate    int64  `json:"bit_s"`
}

// saveEvery bounds how much of a torrent's counters a killed process loses.
const saveEvery = time.Minute

func (n *Node) stateFile(infoHash, ext string) string { return filepath.Join(n.state, infoHash+ext) }

// save writes the torrent's files. A failure is logged: the torrent runs without them.
func (t *Torrent) save() {
	if t.node.state == "" {
		return
	}
	t.saving.Lock()
	defer t.saving.Unlock()
	if t.State() == Removed {
		return
	}
	o, p := t.Options(), t.Progress()
	s := saved{
		Magnet: o.Source.Magnet(o.Source.Peers...), Added: t.added, Storage: o.Storage, Selection: o.Selection,
		SuperSeeding: o.SuperSeeding, Goal: o.Goal, StopTimeout: o.StopTimeout, Paused: o.Paused, Fetched: p.Fetched, Sent: p.Sent,
	}
	s.Upload, s.Download = o.Limits.Upload, o.Limits.Download
	for _, p := range o.Limits.Paths {
		s.Paths = append(s.Paths, savedLimit{p.Pattern.String(), p.Rate})
	}
	for _, p := range o.Peers {
		s.Peers = append(s.Peers, p.String())
	}
	for _, urls := range o.Trackers {
		var tier []savedTracker
		for _, u := range urls {
			tier = append(tier, savedTracker{u.String(), u.ByUser()})
		}
		s.Trackers = append(s.Trackers, tier)
	}
	b, err := json.Marshal(s)
	if err == nil && !t.kept && !o.Source.IsMagnet() {
		err = ReplaceFile(t.node.stateFile(t.InfoHash(), ".torrent"), o.Source.Torrent(), true)
	}
	if err == nil {
		t.kept = true
		err = ReplaceFile(t.node.stateFile(t.InfoHash(), ".json"), b, true)
	}
	if err != nil {
		t.node.log.Warn("the state of a torrent cannot be saved", "torrent", o.title(), "error", err)
	}
}

// unsave deletes the files of a removed torrent.
func (t *Torrent) unsave() {
	if t.node.state == "" {
		return
	}
	t.saving.Lock()
	defer t.saving.Unlock()
	for _, ext := range []string{".json", ".torrent"} {
		if err := os.Remove(t.node.stateFile(t.InfoHash(), ext)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.node.log.Warn("the state of a removed torrent is left behind", "error", err)
		}
	}
}

// Restore adds the torrents that the state directory holds. Those that cannot be added are in the
// error; the others run.
func (n *Node) Restore(ctx context.Context) error {
	names, err := filepath.Glob(filepath.Join(n.state, "*.json"))
	if err != nil || n.state == "" {
		return err
	}
	var errs []error
	for _, name := range names {
		if err := n.restore(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("restore %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (n *Node) restore(ctx context.Context, name string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var s saved
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	o := Options{
		Storage: s.Storage, Selection: s.Selection, SuperSeeding: s.SuperSeeding, Goal: s.Goal, StopTimeout: s.StopTimeout, Paused: s.Paused,
	}
	if o.Source, err = s.source(strings.TrimSuffix(name, ".json") + ".torrent"); err != nil {
		return err
	}
	o.Limits.Upload, o.Limits.Download = s.Upload, s.Download
	for _, x := range s.Paths {
		p, err := pathsel.ParsePattern(x.Pattern)
		if err != nil {
			return err
		}
		o.Limits.Paths = append(o.Limits.Paths, client.PathLimit{Pattern: p, Rate: x.Rate})
	}
	for _, text := range s.Peers {
		p, err := client.ParsePeer(text)
		if err != nil {
			return err
		}
		o.Peers = append(o.Peers, p)
	}
	for _, saved := range s.Trackers {
		var tier []tracker.URL
		for _, x := range saved {
			u, err := tracker.ParseURL(x.URL)
			if err != nil {
				return err
			}
			if x.ByUser {
				u = u.OfUser()
			}
			tier = append(tier, u)
		}
		o.Trackers = append(o.Trackers, tier)
	}
	t := newTorrent(n, o)
	t.added, t.past.Fetched, t.past.Sent = s.Added, s.Fetched, s.Sent
	_, err = n.add(ctx, t)
	return err
}

// source is the torrent that was saved, with what peers or the .torrent file said is in it.
func (s saved) source(torrent string) (client.Source, error) {
	magnet, err := client.ParseMagnet(s.Magnet)
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
	src.Trackers, src.Peers, src.WebSeeds = magnet.Trackers, magnet.Peers, magnet.WebSeeds
	return src, err
}

// ReplaceFile writes a file as a whole: whoever reads it, even after a crash of this process, finds
// the old content or the new one. If it is to be durable, that holds for a crash of the machine,
// too.
func ReplaceFile(name string, b []byte, durable bool) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".braid-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if e := f.Chmod(0o644); err == nil {
		err = e
	}
	if durable && err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
