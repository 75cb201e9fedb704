package node

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"braid/client"
)

// Priority orders torrents in the queue.
type Priority int

// The priorities. A torrent with a higher one comes before all torrents with a lower one.
const (
	PriorityLow    Priority = -1
	PriorityNormal Priority = 0
	PriorityHigh   Priority = 1
)

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

// SetFiles changes the priorities of files, by their index from 0. Other files keep theirs.
func (o *Options) SetFiles(files map[int]client.Priority) error {
	if o.Source.IsMagnet() {
		return errors.New("the torrent's files are not known yet: " +
			"set their priorities when a peer has described the magnet link")
	}
	s := o.Selection
	all := s.Files(o.Source.Layout)
	for i, p := range files {
		if i < 0 || i >= len(all) {
			return fmt.Errorf("file %d: the torrent has files 1 to %d", i+1, len(all))
		}
		if p < client.Skip || p > client.High {
			return fmt.Errorf("file %d with priority %d: there is no such priority", i+1, p)
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
	o.Selection = s
	return s.Check(o.Source.Layout)
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

// Change calls a function that changes the torrent's options, and checks them. Then they take
// effect at once, and are kept. An error of the function is returned as it is, and nothing changes.
//
// The function may change the name, labels, priority, selection, super-seeding, goal, rates,
// IgnoreGlobal, policy, peer limit and trackers. It replaces slices rather than changing them in
// place, and calls no methods of the torrent.
//
// If the change selects files that were not selected before, the download is started again, since
// the store must check whether files of other programs have their names.
func (t *Torrent) Change(change func(*Options) error) error {
	t.setting.Lock()
	defer t.setting.Unlock()
	t.mu.Lock()
	before, r := t.options, t.run
	o := before
	refused := change(&o)
	err := refused
	if err == nil {
		err = o.check()
	}
	limited := !reflect.DeepEqual(before.Rates, o.Rates)
	if err == nil && (limited || before.IgnoreGlobal != o.IgnoreGlobal) && t.limiter == nil {
		err = errNotAdjustable
	}
	if err == nil {
		t.options = o
	}
	t.mu.Unlock()
	switch {
	case refused != nil:
		return refused
	case err == nil:
		t.carryOut(r, before, o)
		err = t.keep()
	}
	if err != nil {
		return fmt.Errorf("change torrent %s: %w", before.title(), err)
	}
	if limited {
		t.changed("limited")
	} else {
		t.changed("changed")
	}
	t.node.poke()
	return nil
}

// SetPosition moves the torrent to a position in the queue, from 0. Torrents behind it move back.
func (t *Torrent) SetPosition(to int) error {
	return t.node.Reorder(func(queue []*Torrent) (next, moved []*Torrent) {
		at := slices.Index(queue, t)
		if at < 0 {
			return queue, nil // it is removed
		}
		queue = slices.Delete(queue, at, at+1)
		return slices.Insert(queue, max(0, min(to, len(queue))), t), []*Torrent{t}
	})
}

// carryOut applies new options to the torrent and to its current run, which may be nil.
func (t *Torrent) carryOut(r *run, before, o Options) {
	if !reflect.DeepEqual(before.Rates, o.Rates) {
		l, _ := o.Rates.Limits() // they are valid
		t.limiter.Set(l)
	}
	if before.IgnoreGlobal != o.IgnoreGlobal {
		t.limiter.SetAlone(o.IgnoreGlobal)
	}
	more := wantsMore(o, before.Selection)
	selects := !reflect.DeepEqual(before.Selection, o.Selection)
	if r == nil {
		if selects {
			now := o.shapeOf(t.right())
			t.mu.Lock()
			t.complete = t.complete && !more
			t.setShape(now)
			t.mu.Unlock()
		}
		return
	}
	r.transfer.SetMaxPeers(cmp.Or(o.PeerLimit, t.node.Settings().PeerLimit))
	if o.Policy != before.Policy {
		p, _ := o.Policy.Parse() // it is valid
		r.transfer.SetPolicy(p)
	}
	if !more && selects {
		if err := r.transfer.Select(o.Selection); err != nil {
			t.node.log.Warn("the priorities of files take effect at the next start",
				"torrent", o.title(), "error", err)
		}
	}
	if more || before.SuperSeeding != o.SuperSeeding {
		t.node.background(func() { t.restart(func(*Options) {}) })
	} else if !reflect.DeepEqual(before.Trackers, o.Trackers) {
		t.node.background(func() { t.searchAgain(r) })
	}
}
