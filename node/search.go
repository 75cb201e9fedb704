package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"braid/client"
	"braid/storage"
	"braid/tracker"
)

// TrackerStatus is the state of a tracker of a torrent.
type TrackerStatus struct {
	client.TrackerState
	Tier int       // from 0; -1: another tracker has named it
	Last time.Time // of the last answer or failure; zero: none yet
	// Next is when it is asked again. It is asked earlier if the torrent has too few peers. Zero:
	// unknown or never.
	Next time.Time
	// In its last answer: the counts of the swarm, the number of peers, and a warning.
	Seeds, Leechers int64
	Peers           int
	Warning         string
}

// Trackers returns the trackers of the torrent, by tier and URL, also those that are asked only if
// others fail.
func (t *Torrent) Trackers() (out []TrackerStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := map[string]bool{}
	for i, tier := range t.options.Trackers {
		for _, u := range tier {
			s := t.trackers[u.String()]
			s.URL, s.Tier = u.String(), i
			if !seen[s.URL] {
				out = append(out, s)
			}
			seen[s.URL] = true
		}
	}
	for url, s := range t.trackers {
		if !seen[url] {
			s.Tier = -1
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b TrackerStatus) int {
		return cmp.Or(cmp.Compare(uint(a.Tier), uint(b.Tier)), cmp.Compare(a.URL, b.URL))
	})
	return out
}

// trackerErrorLocked returns an error only if the last requests to all trackers have failed. Of
// their errors, it is the one of the tracker whose URL sorts first.
func (t *Torrent) trackerErrorLocked() (text string) {
	first := ""
	for u, s := range t.trackers {
		if s.Answered {
			return ""
		}
		if s.Err != nil && (first == "" || u < first) {
			first, text = u, s.Err.Error()
		}
	}
	return text
}

// search starts the searches of all sources.
func (t *Torrent) search(r *run) (out []Search, err error) {
	o, n := t.Options(), t.node
	s := Swarm{
		InfoHash: t.hash,
		PeerID:   n.session.PeerID(),
		Trackers: o.Trackers,
		Listen:   n.Listening(),
		Nodes:    parseNodes(o.Source.Nodes),
		Private:  func() bool { return isPrivate(o.Source, r.transfer) },
		Progress: r.transfer.Progress,
		Found:    r.transfer.Found,
		Hint:     r.transfer.Hint,
		Asked: func(x TrackerStatus) {
			t.mu.Lock()
			before := t.trackers[x.URL]
			if x.Last = before.Last; x.Answered || x.Err != nil {
				x.Last = time.Now()
			}
			if !x.Answered { // keep the counts of the last answer
				x.Seeds, x.Leechers, x.Peers = before.Seeds, before.Leechers, before.Peers
			}
			t.trackers[x.URL] = x
			t.mu.Unlock()
			x.URL = tracker.RedactURL(x.URL) // everybody sees the cause of a stall
			r.transfer.TrackerState(x.TrackerState)
		},
		Logger: t.logger().With("torrent", o.Source.Name),
	}
	for _, source := range n.sources {
		x, e := source.Start(s)
		switch {
		case e == nil:
			out = append(out, x)
		case !errors.Is(e, ErrNoWay):
			closeAll(out)
			return nil, fmt.Errorf("announce %s: %w", o.Source.Name, e)
		case len(o.Trackers) > 0:
			err = fmt.Errorf("announce %s: %w", o.Source.Name, e)
		}
	}
	if err == nil || len(out) > 0 {
		return out, nil
	}
	if o.MustFind {
		return nil, err
	}
	n.log.Warn("peers must find this braid in another way", "torrent", o.Source.Name, "reason", err)
	return nil, nil
}

// Announce asks all trackers now or, if that is too soon for a tracker, as soon as it allows.
func (t *Torrent) Announce() {
	r := t.current()
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.searches {
		x.Announce()
	}
}

func closeAll(searches []Search) {
	var all sync.WaitGroup
	for _, x := range searches {
		all.Go(x.Close)
	}
	all.Wait()
}

func (r *run) takeSearches() []Search {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.searches
	r.searches = nil
	return all
}

// searchAgain ends the searches of a run, and starts new ones with the torrent's current trackers.
func (t *Torrent) searchAgain(r *run) {
	r.sourcing.Lock()
	defer r.sourcing.Unlock()
	closeAll(r.takeSearches())
	if r.ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	clear(t.trackers)
	t.mu.Unlock()
	r.transfer.ForgetTrackers()
	searches, err := t.search(r)
	if err != nil {
		t.logger().Error("the torrent is not announced", "error", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.searches = searches
	if !r.completed.IsZero() { // onDone has told the searches before these, and tells nobody again
		for _, x := range searches {
			x.Hungry(false)
		}
	}
}

// Describe asks peers for the description of a magnet link, without adding the torrent. It returns
// other sources unchanged.
func (n *Node) Describe(ctx context.Context, o Options) (client.Source, error) {
	if !o.Source.IsMagnet() {
		return o.Source, nil
	}
	dir, err := os.MkdirTemp("", "braid-list-")
	if err != nil {
		return o.Source, err
	}
	defer os.RemoveAll(dir)
	store := storage.OpenVerified(dir, slog.New(slog.DiscardHandler))
	r := &run{}
	options := client.Options{Peers: o.Peers, StopTimeout: o.StopTimeout, Describe: true}
	if r.transfer, err = n.session.Add(o.Source, store, options); err != nil {
		return o.Source, err
	}
	defer r.transfer.Close()
	searches, err := newTorrent(n, o).search(r)
	if err != nil {
		return o.Source, err
	}
	defer closeAll(searches)
	select {
	case <-r.transfer.Done():
	case <-ctx.Done():
		return o.Source, context.Cause(ctx)
	}
	if err := r.transfer.Progress().Err; err != nil {
		return o.Source, err
	}
	return r.transfer.Described()
}
