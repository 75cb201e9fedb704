package mirror

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"braid/client"
	"braid/node"
	"braid/node/event"
	"braid/storage"
)

const (
	// newTorrents bounds the descriptions that one look fetches, so that the first torrents of a
	// long list are added soon. The next look fetches more.
	newTorrents = 256
	// asking bounds the requests to servers at a time. describing bounds the wait for a peer that
	// describes a magnet link, and waiting the links for which peers are asked at a time: with a
	// few, links that nobody describes would delay all others.
	asking     = 4
	waiting    = 64
	describing = time.Minute
	// failedWait is the time between a failed look and the next one. It doubles with each further
	// failure, up to the interval.
	failedWait = time.Minute
	// retryAfter is the time between two restarts of failed torrents. A start may hash large files,
	// and a directory is looked at every ten seconds.
	retryAfter = 10 * time.Minute
)

// Config describes a mirror.
type Config struct {
	// Node is a service of this mirror's own: all of its torrents belong to the mirror.
	Node   *node.Node
	Source string // a directory, a file, or a URL
	Dir    string // of the data
	State  string // a file that remembers the offers
	Filter Filter
	Limits Limits
	// Options returns how a torrent is added.
	Options func(client.Source) (node.Options, error)
	// Tell gets each event.
	Tell   func(event.Mirror)
	Logger *slog.Logger
}

// Mirror keeps a copy of what a source offers. Its methods are for one goroutine.
type Mirror struct {
	Config
	source   source
	offered  map[string]Torrent       // by the offer's link
	ready    map[string]client.Source // read in this look, by info hash
	misses   map[string]int           // by link: looks in a row that failed to read the torrent
	reported map[string]string        // the last event, by info hash or link

	descriptions singleflight.Group // by info hash
	retried      time.Time          // when failed torrents were last restarted
}

// saved is the content of the state file.
type saved struct {
	Source string             `json:"source"`
	Answer answer             `json:"answer"`
	Known  map[string]Torrent `json:"known"`
	Misses map[string]int     `json:"misses,omitempty"`
}

// Open returns a mirror that knows the offers in its state file.
func Open(cfg Config) (*Mirror, error) {
	if err := cfg.Filter.Check(); err != nil {
		return nil, err
	}
	m := &Mirror{
		Config:   cfg,
		offered:  map[string]Torrent{},
		misses:   map[string]int{},
		reported: map[string]string{},
	}
	m.source = source{name: cfg.Source, scion: cfg.Node.HTTP()}
	b, err := os.ReadFile(cfg.State)
	if errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the mirror: %w", err)
	}
	var s saved
	if err := json.Unmarshal(b, &s); err != nil || s.Source != cfg.Source {
		cfg.Logger.Warn("the state of the mirror is not used, and made anew",
			"file", cfg.State, "error", err)
		return m, nil
	}
	m.source.asked = s.Answer
	maps.Copy(m.offered, s.Known)
	maps.Copy(m.misses, s.Misses)
	return m, nil
}

// Look reads the list once, and adds and removes torrents. It returns errors of the list and of the
// state file, which are events, too. Errors of single torrents are only events.
func (m *Mirror) Look(ctx context.Context) error {
	err := m.look(ctx)
	if err != nil && ctx.Err() == nil {
		m.Tell(event.Mirror{Event: "mirror", Action: "failed", Reason: err.Error()})
	}
	return err
}

func (m *Mirror) look(ctx context.Context) error {
	unchanged, err := m.source.look(ctx)
	if err != nil {
		return err
	}
	var wanted, others []Offer
	for _, o := range m.source.asked.Offers {
		if o.Hash != "" && o.Hash != m.offered[o.Link].Hash {
			delete(m.offered, o.Link) // the link now leads to another torrent
		}
		if m.Filter.Wants(o.Title) {
			wanted = append(wanted, o)
		} else {
			others = append(others, o)
		}
	}
	m.ready = map[string]client.Source{}
	defer func() { m.ready = nil }()
	offered, unknown, err := m.resolve(ctx, wanted)
	if err != nil {
		return err
	}
	held := m.held()
	kept, open, err := m.keep(ctx, others, held, offered)
	if err != nil {
		return err
	}
	offered, unknown = append(offered, kept...), unknown+open
	m.forget()
	m.say("", event.Mirror{
		Action: "looked",
		Reason: found(m.source.asked, len(wanted), unknown, unchanged),
	})
	free, _, err := storage.DiskSpace(m.Dir)
	if err != nil {
		free = -1
		m.Logger.Warn("the free space is not known, so it is not limited",
			"directory", m.Dir, "error", err)
	}
	unsure := unknown > 0 || m.source.asked.Cut
	for _, s := range Plan(offered, held, unsure, free, m.Limits) {
		if err := m.carryOut(ctx, s); err != nil {
			return err
		}
	}
	m.retry(ctx)
	return m.save()
}

// keep returns the torrents that stay although the filter does not want them. The filter decides
// what is added. A torrent that this node holds stays as long as it is offered. Before torrents are
// removed, keep reads all offers whose torrent is not known: a held torrent may have a new link.
// unknown is the number of offers that could not be read.
func (m *Mirror) keep(
	ctx context.Context, others []Offer, held, offered []Torrent,
) (kept []Torrent, unknown int, err error) {
	gone := map[string]Torrent{} // by info hash
	for _, t := range held {
		gone[t.Hash] = t
	}
	for _, t := range offered {
		delete(gone, t.Hash)
	}
	take := func(hash string) {
		if t, ok := gone[hash]; ok {
			delete(gone, hash)
			kept = append(kept, t)
		}
	}
	var open []Offer
	for _, o := range others {
		if hash := m.hashOf(o); hash != "" {
			take(hash)
		} else {
			open = append(open, o)
		}
	}
	if len(gone) == 0 || !m.Limits.Delete {
		return kept, 0, nil
	}
	read, unknown, err := m.resolve(ctx, open)
	for _, t := range read {
		take(t.Hash)
	}
	return kept, unknown, err
}

// hashOf returns the info hash of an offer, or "" if it is not known.
func (m *Mirror) hashOf(o Offer) string {
	hash := cmp.Or(m.offered[o.Link].Hash, o.Hash)
	if src, err := client.ParseMagnet(o.Link); err == nil && hash == "" {
		hash = src.InfoHash.HexString()
	}
	return hash
}

// found describes the list for the event.
func found(a answer, wanted, unknown int, unchanged bool) string {
	text := fmt.Sprintf("torrents offered: %d, wanted: %d", len(a.Offers), wanted)
	if a.Cut {
		text += fmt.Sprintf("; of a list with more than %d entries, the rest is left out", maxOffers)
	}
	if unknown > 0 {
		text += fmt.Sprintf("; it is not known yet what is in %d", unknown)
	}
	if unchanged {
		text += "; the list has not changed"
	}
	return text
}

// resolve reads the torrents of the offers. unknown counts the offers whose torrent could not be
// read yet.
func (m *Mirror) resolve(
	ctx context.Context, wanted []Offer,
) (offered []Torrent, unknown int, err error) {
	var open []Offer
	for _, o := range wanted {
		if _, ok := m.offered[o.Link]; !ok {
			open = append(open, o)
		}
	}
	// Offers that have failed before come last, so that the others need not wait for them.
	slices.SortStableFunc(open, func(a, b Offer) int { return m.misses[a.Link] - m.misses[b.Link] })
	var mu sync.Mutex
	var files, magnets errgroup.Group
	files.SetLimit(asking)
	magnets.SetLimit(waiting)
	for _, o := range open[:min(len(open), newTorrents)] {
		group := &files
		if isMagnet(o.Link) {
			group = &magnets
		}
		group.Go(func() error {
			src, err := m.describe(ctx, o)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				m.offered[o.Link] = Torrent{
					Hash: src.InfoHash.HexString(),
					Name: src.Name,
					Size: src.Layout.Length,
				}
				m.ready[src.InfoHash.HexString()] = src
			} else if m.misses[o.Link]++; ctx.Err() == nil {
				m.say(o.Link, event.Mirror{
					Action:   "failed",
					Torrent:  o.Title,
					InfoHash: o.Hash,
					Reason:   err.Error(),
				})
			}
			return nil
		})
	}
	_, _ = files.Wait(), magnets.Wait() // no function fails
	for _, o := range wanted {
		if t, ok := m.offered[o.Link]; ok {
			offered = append(offered, t)
		} else {
			unknown++
		}
	}
	return offered, unknown, ctx.Err()
}

// describe reads the torrent of an offer. If it is a magnet link, peers are asked for the
// description.
func (m *Mirror) describe(ctx context.Context, o Offer) (client.Source, error) {
	src, err := m.source.torrent(ctx, o)
	if err != nil || !src.IsMagnet() {
		return src, err
	}
	if t, err := m.Node.Torrent(src.InfoHash.HexString()); err == nil && !t.Source().IsMagnet() {
		return t.Source(), nil // it is held
	}
	options, err := m.Options(src)
	if err != nil {
		return src, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, describing, errNotDescribed)
	defer cancel()
	// Several links may lead to one torrent, which is described for all of them.
	described, err, _ := m.descriptions.Do(src.InfoHash.HexString(), func() (any, error) {
		return m.Node.Describe(ctx, options)
	})
	return described.(client.Source), err
}

var errNotDescribed = fmt.Errorf("no peer has said within %v what is in the magnet link",
	describing)

// forget drops what is known of offers that are no longer on the list.
func (m *Mirror) forget() {
	links := map[string]bool{"": true}
	for _, o := range m.source.asked.Offers {
		links[o.Link] = true
	}
	for _, t := range m.Node.Torrents() {
		links[t.InfoHash()] = true
	}
	for link, t := range m.offered {
		if !links[link] {
			delete(m.offered, link)
		} else {
			links[t.Hash] = true
		}
	}
	for link := range m.misses {
		if _, ok := m.offered[link]; ok || !links[link] {
			delete(m.misses, link)
		}
	}
	for key := range m.reported {
		if !links[key] {
			delete(m.reported, key)
		}
	}
}

// held returns the torrents of the node.
func (m *Mirror) held() (all []Torrent) {
	for _, t := range m.Node.Torrents() {
		src, p := t.Source(), t.Progress()
		all = append(all, Torrent{t.InfoHash(), src.Name, src.Layout.Length, p.Missing})
	}
	return all
}

// carryOut does one step. A step that fails is an event; carryOut returns only the context's error.
func (m *Mirror) carryOut(ctx context.Context, s Step) (err error) {
	e := event.Mirror{
		Action:   string(s.Action),
		Torrent:  s.Torrent.Name,
		InfoHash: s.Torrent.Hash,
		Bytes:    s.Torrent.Size,
		Reason:   s.Reason,
	}
	switch s.Action {
	case Remove:
		err = m.remove(s.Torrent.Hash)
	case Add:
		e.Dir, err = m.add(ctx, s)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		e.Action, e.Dir, e.Reason = "failed", "", err.Error()
	}
	m.say(s.Torrent.Hash, e)
	return nil
}

// remove removes a torrent with its data, and the directory that only it has.
func (m *Mirror) remove(hash string) error {
	t, err := m.Node.Torrent(hash)
	if err != nil {
		return err
	}
	dir := t.Options().Storage.Dir
	if err := m.Node.Remove(hash, true); err != nil {
		return err
	}
	if dir != m.Dir {
		_ = os.Remove(dir) // fails, rightly, if other files are in it
	}
	return nil
}

// add adds a torrent to the node. If an earlier look has read the torrent, it is read again: only
// its name and size were kept.
func (m *Mirror) add(ctx context.Context, s Step) (dir string, err error) {
	src, ok := m.ready[s.Torrent.Hash]
	if !ok {
		i := slices.IndexFunc(m.source.asked.Offers, func(o Offer) bool {
			return m.offered[o.Link].Hash == s.Torrent.Hash
		})
		if i < 0 {
			return "", errors.New("it is no longer offered")
		}
		if src, err = m.describe(ctx, m.source.asked.Offers[i]); err != nil {
			return "", err
		}
		if src.InfoHash.HexString() != s.Torrent.Hash {
			delete(m.offered, m.source.asked.Offers[i].Link)
			return "", errors.New("its link now leads to another torrent, which the next look adds")
		}
	}
	o, err := m.Options(src)
	if err != nil {
		return "", err
	}
	if o.Storage.Dir = m.Dir; s.Apart {
		o.Storage.Dir = filepath.Join(m.Dir, s.Torrent.Hash[:12])
		if err := os.MkdirAll(o.Storage.Dir, 0o755); err != nil {
			return "", err
		}
	}
	_, err = m.Node.Add(ctx, o)
	return o.Storage.Dir, err
}

// retry restarts failed torrents, now and then.
func (m *Mirror) retry(ctx context.Context) {
	if time.Since(m.retried) < retryAfter {
		return
	}
	m.retried = time.Now()
	for _, t := range m.Node.Torrents() {
		if err := t.Progress().Err; err == nil {
			continue
		}
		if err := t.Resume(ctx); err != nil {
			m.Logger.Info("a failed torrent cannot be restarted",
				"torrent", t.InfoHash(), "error", err)
		}
	}
}

// say reports an event, unless the last event with this key was the same.
func (m *Mirror) say(key string, e event.Mirror) {
	e.Event = "mirror"
	if text := e.Action + e.Reason; m.reported[key] != text {
		m.reported[key] = text
		m.Tell(e)
	}
}

func (m *Mirror) save() error {
	return node.WriteJSON(m.State, saved{m.Source, m.source.asked, m.offered, m.misses}, true)
}

// Run looks at the list at once and then every interval, until the context ends. After a failed
// look, the next one comes sooner.
func (m *Mirror) Run(ctx context.Context, every time.Duration) {
	for failed := failedWait; ctx.Err() == nil; {
		began := time.Now()
		if m.Look(ctx) == nil {
			node.Wait(ctx, every-time.Since(began))
			failed = failedWait
		} else { // Look has reported the error
			node.Wait(ctx, min(failed, every))
			failed = min(2*failed, every)
		}
	}
}
