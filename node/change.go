package node

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"braid/client"
	"braid/tracker"
)

// Priority orders torrents in the queue.
type Priority int

// The priorities. A torrent with a higher one comes before all torrents with a lower one.
const (
	PriorityLow    Priority = -1
	PriorityNormal Priority = 0
	PriorityHigh   Priority = 1
)

// Change is a change of a torrent's options. A nil field leaves the option as it is.
type Change struct {
	Name     *string // for users; empty: that of the torrent. No file is renamed: see Torrent.Rename
	Labels   *[]string
	Priority *Priority
	// Files are priorities of files by their index from 0 on. Other files keep theirs.
	Files      map[int]client.Priority
	Sequential *bool
	Rates      *Rates // in addition to the node's
	// HonourGlobal is false if the node's rates do not apply to the torrent.
	HonourGlobal *bool
	Goal         *Goal
	Trackers     *[][]tracker.URL // tiers
	PeerLimit    *int             // peers that it dials; 0: the node's
	Policy       *Policy          // in addition to the node's
	// QueuePosition is counted from 0. Torrents behind it move back.
	QueuePosition *int
	SuperSeeding  *client.SuperSeeding
}

// Bounds of the lists that a user can give a torrent.
const (
	maxLabels   = 64
	maxLabel    = 128 // bytes
	maxTrackers = 256
)

// check returns an error if options are invalid.
func (o Options) check() error {
	if err := checkName(o.Name); err != nil {
		return err
	}
	if len(o.Labels) > maxLabels {
		return fmt.Errorf("%d labels: at most %d", len(o.Labels), maxLabels)
	}
	for _, l := range o.Labels {
		if l == "" || len(l) > maxLabel || strings.ContainsAny(l, ",\n") {
			return fmt.Errorf("label %q: want 1 to %d bytes without a comma", l, maxLabel)
		}
	}
	if o.Priority < PriorityLow || o.Priority > PriorityHigh {
		return fmt.Errorf("priority %d: want -1, 0 or 1", o.Priority)
	}
	if _, err := o.Rates.Limits(); err != nil {
		return err
	}
	if n := len(slices.Concat(o.Trackers...)); n > maxTrackers {
		return fmt.Errorf("%d trackers: at most %d", n, maxTrackers)
	}
	if o.PeerLimit < 0 || o.PeerLimit > maxPeerLimit {
		return fmt.Errorf("a limit of %d peers: want 0 to %d", o.PeerLimit, maxPeerLimit)
	}
	if _, err := o.Policy.Parse(); err != nil {
		return err
	}
	return o.Goal.check()
}

// set changes an option if the change is not nil.
func set[T any](option, changed *T) {
	if changed != nil {
		*option = *changed
	}
}

// apply returns the options after the change.
func (c Change) apply(o Options) (_ Options, err error) {
	set(&o.Name, c.Name)
	set(&o.Labels, c.Labels)
	set(&o.Priority, c.Priority)
	set(&o.Selection.Sequential, c.Sequential)
	set(&o.Rates, c.Rates)
	set(&o.Goal, c.Goal)
	set(&o.Trackers, c.Trackers)
	set(&o.PeerLimit, c.PeerLimit)
	set(&o.Policy, c.Policy)
	set(&o.SuperSeeding, c.SuperSeeding)
	if c.HonourGlobal != nil {
		o.IgnoreGlobal = !*c.HonourGlobal
	}
	if len(c.Files) > 0 {
		if o.Selection, err = withFiles(o, c.Files); err != nil {
			return o, err
		}
	}
	return o, o.check()
}

// withFiles returns the selection of a torrent in which some files have other priorities.
func withFiles(o Options, files map[int]client.Priority) (client.Selection, error) {
	s := o.Selection
	if o.Source.IsMagnet() {
		return s, errors.New("the torrent's files are not known yet: " +
			"set their priorities when a peer has described the magnet link")
	}
	all := s.Files(o.Source.Layout)
	for i, p := range files {
		if i < 0 || i >= len(all) {
			return s, fmt.Errorf("file %d: the torrent has files 0 to %d", i, len(all)-1)
		}
		if p < client.Skip || p > client.High {
			return s, fmt.Errorf("file %d with priority %d: there is no such priority", i, p)
		}
		all[i] = p
	}
	s.Select, s.Priorities, s.Shared = nil, nil, false
	byPriority := map[client.Priority][]int{}
	for i, p := range all {
		if p != client.Normal {
			byPriority[p] = append(byPriority[p], i+1)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(byPriority)) {
		s.Priorities = append(s.Priorities, client.FilePriority{
			Pattern:  numbersPattern(byPriority[p]),
			Priority: p,
		})
	}
	return s, s.Check(o.Source.Layout)
}

// numbersPattern writes sorted numbers as a pattern, such as #1,3-5.
func numbersPattern(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		part := strconv.Itoa(numbers[i])
		if j > i {
			part += "-" + strconv.Itoa(numbers[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return "#" + strings.Join(parts, ",")
}

// wantsMore tells whether the options select a file that the selection before did not.
func wantsMore(o Options, before client.Selection) bool {
	if o.Source.IsMagnet() {
		return false
	}
	old := before.Wants(o.Source.Layout)
	for i, now := range o.Selection.Wants(o.Source.Layout) {
		if now && !old[i] {
			return true
		}
	}
	return false
}

// Set changes the torrent's options. It checks all changes first; then they take effect at once,
// and are kept.
//
// If the change selects files that were not selected before, the download is started again, since
// the store must check whether files of other programs have their names.
func (t *Torrent) Set(c Change) error {
	t.setting.Lock()
	defer t.setting.Unlock()
	t.mu.Lock()
	before := t.options
	o, err := c.apply(before)
	if err == nil && (c.Rates != nil || c.HonourGlobal != nil) && t.limiter == nil {
		err = errNotAdjustable
	}
	if err == nil {
		t.options = o
	}
	r := t.run
	t.mu.Unlock()
	if err != nil {
		return fmt.Errorf("change torrent %s: %w", before.title(), err)
	}
	if c.QueuePosition != nil {
		if err := t.node.reorder(t, *c.QueuePosition); err != nil {
			return err
		}
	}
	t.carryOut(c, r, before, o)
	if err := t.keep(); err != nil {
		return fmt.Errorf("change torrent %s: %w", before.title(), err)
	}
	what := "changed"
	if c.Rates != nil {
		what = "limited"
	}
	t.changed(what)
	t.node.poke()
	return nil
}

// carryOut applies the new options to a running torrent.
func (t *Torrent) carryOut(c Change, r *run, before, o Options) {
	if c.Rates != nil {
		if l, err := o.Rates.Limits(); err == nil {
			t.limiter.Set(l)
		}
	}
	if c.HonourGlobal != nil {
		t.limiter.SetAlone(o.IgnoreGlobal)
	}
	if r == nil {
		t.mu.Lock()
		t.last.Total, _, t.last.Pieces = o.wanted()
		t.last.Have, t.last.Done = min(t.last.Have, t.last.Total), min(t.last.Done, t.last.Pieces)
		t.mu.Unlock()
		return
	}
	if c.PeerLimit != nil {
		r.transfer.SetMaxPeers(cmp.Or(o.PeerLimit, t.node.Settings().PeerLimit))
	}
	if c.Policy != nil {
		if p, err := o.Policy.Parse(); err == nil {
			r.transfer.SetPolicy(p)
		}
	}
	again := c.SuperSeeding != nil && before.SuperSeeding != o.SuperSeeding
	if c.Files != nil || c.Sequential != nil {
		if wantsMore(o, before.Selection) {
			again = true
		} else if err := r.transfer.Select(o.Selection); err != nil {
			t.node.log.Warn("the priorities of files take effect at the next start",
				"torrent", o.title(), "error", err)
		}
	}
	if again {
		t.node.background(func() { t.restart(func(*Options) {}) })
	} else if c.Trackers != nil {
		t.node.background(func() { t.searchAgain(r) })
	}
}
