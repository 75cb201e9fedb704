package node

import (
	"cmp"
	"slices"
	"time"

	"braid/client"
)

// Status is a torrent at one moment, with everything that lists of torrents show.
type Status struct {
	Options         // how the torrent was added, with later changes
	client.Progress // its counters begin when the torrent was added; without Paths

	InfoHash, Name string
	Number         int // see Torrent.Number
	State          State
	Reason         string // why it is in this state, or what it waits for; may be empty
	// Started is the time of the last start. At Completed the wanted data was complete for the
	// first time. At LastActive payload was last transferred. Zero: never.
	Added, Started, Completed, LastActive time.Time
	ActiveFor, SeedingFor                 time.Duration // since it was added, also in earlier processes
	Ratio                                 float64       // of Sent to Total; 0 while that is unknown
	Remaining                             time.Duration // until complete, at this rate; -1: unknown
	Peers                                 int           // with a connection that carries data
	Sending                               int           // peers that send us data
	Getting                               int           // peers that get data from us
	Paths                                 int           // path-level peers with such a connection
	Stalled                               bool          // see Queue.Stalled
	QueuePosition                         int           // from 0
	Forced                                bool          // it runs in any case, whatever the queue allows
	Moving                                bool          // its data is being moved, or soon will be
	Verifying                             bool          // it is Starting only for a check of its data
	TrackerError                          string        // of one tracker, if all have failed
}

// Overview returns the status of all torrents, in the order of the queue, and the totals.
func (n *Node) Overview() ([]Status, Totals) {
	ever, all, unrestored := n.sums()
	out := make([]Status, len(all))
	stalled := n.Settings().Queue.stalled()
	for i, t := range all {
		out[i] = t.status(stalled)
		out[i].QueuePosition = i
		ever.add(out[i].Fetched, out[i].Sent)
	}
	for _, c := range unrestored {
		ever.add(c.Fetched, c.Sent)
	}
	return out, ever
}

// Statuses returns the status of all torrents, in the order of the queue.
func (n *Node) Statuses() []Status {
	all, _ := n.Overview()
	return all
}

// Status returns the torrent's status.
func (t *Torrent) Status() Status {
	s := t.status(t.node.Settings().Queue.stalled())
	s.QueuePosition = slices.Index(t.node.Torrents(), t)
	return s
}

func (t *Torrent) status(stalled time.Duration) Status {
	now := time.Now()
	p := t.Progress()
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.countersLocked(now)
	s := Status{
		Options:    t.options,
		Progress:   p,
		InfoHash:   t.InfoHash(),
		Number:     t.number,
		Name:       p.Name,
		State:      t.state,
		Reason:     cmp.Or(p.Waiting, t.reason),
		Added:      t.added,
		Started:    t.started,
		Completed:  t.completed,
		LastActive: c.LastActive,
		ActiveFor:  c.Active,
		SeedingFor: c.Seeding,
		Remaining:  -1,
		Forced:     t.forced,
		Moving:     t.moving,
		Verifying:  t.verifying,
	}
	s.Progress.Paths = nil
	if s.Storage.Dir == "" {
		s.Storage.Dir = t.node.Dir()
	}
	if p.Err != nil {
		s.State = Failed
	}
	if p.Total > 0 {
		s.Ratio = float64(p.Sent) / float64(p.Total)
	}
	if t.state == Running && p.Phase == client.Downloading && p.ReadRate > 0 {
		left := float64(max(0, p.Total-p.Have)) * 8 / p.ReadRate // seconds
		s.Remaining = time.Duration(left * float64(time.Second)).Round(time.Second)
	}
	s.Stalled = t.stalledLocked(now, stalled)
	s.count(p)
	s.TrackerError = t.trackerErrorLocked()
	return s
}

// count counts peers and paths.
func (s *Status) count(p client.Progress) {
	s.Peers = ConnectedPeers(p)
	s.Sending = countPeers(p, func(x client.PathProgress) bool { return x.ReadRate > 0 })
	s.Getting = countPeers(p, func(x client.PathProgress) bool { return x.WriteRate > 0 })
	for _, x := range p.Paths {
		if x.State.Carries() {
			s.Paths++
		}
	}
}
