package client

import (
	"io"
	"time"

	"braid/pathsel"
	"braid/scionnet"
)

// chooser asks the selector which paths to use.
type chooser struct {
	*core
	seed    uint64         // for the selector's draws
	memory  pathsel.Memory // of its last plan
	restEnd time.Time      // until then it is asked only because of an event
	waiting string         // what it is waiting for; empty if there is a path
	hints   pathsel.Hints
	// unwanted is the number of missing bytes that the selection leaves out, from the last look.
	// The next look is not before lookAgain.
	unwanted  int64
	lookAgain time.Time
	trace     io.Writer // nil: none, or it could not be written
}

// view is what the selector sees. It changes nothing.
func (c *chooser) view() pathsel.View {
	v := pathsel.View{
		Now: time.Now(), MaxPaths: c.cfg.MaxPaths, Preference: c.preference(),
		Seed: c.seed, Memory: c.memory,
	}
	if c.isDescribed() {
		_, missing := c.torrent.Bytes()
		v.Remaining = uint64(max(0, missing-c.unwanted))
	}
	for s := range c.peers.paths() {
		if s.of.banned || s.unlisted && !s.candidate.State.Open() {
			continue
		}
		x := s.candidate
		x.Hint = c.hints.Rank(x.Path)
		v.Candidates = append(v.Candidates, x)
	}
	return v
}

// look finds out how much is missing that the selection leaves out. It goes over all pieces.
func (c *chooser) look() {
	now := time.Now()
	if c.isDone || c.want == nil || !c.want.partial || now.Before(c.lookAgain) {
		return
	}
	c.unwanted = c.want.unwanted(c.torrent)
	c.lookAgain = sparingly(now)
}

// preference is the preference of the transfer's own policy or, without one, of the session's.
func (c *chooser) preference() pathsel.Preference {
	both := c.policies()
	if own := both[1].Preference; len(own) > 0 {
		return own
	}
	return both[0].Preference
}

func (c *chooser) choose() []pathsel.Decision {
	switch {
	case c.isDone && c.err == nil && c.want != nil:
		return c.dialAsSeed(time.Now())
	case c.isDone || c.hasAll():
		// The data is complete, even if the engine has not said so yet, and connections to complete
		// peers have ended for that reason.
		return nil
	}
	v := c.view()
	plan := c.cfg.Selector.Decide(v)
	// With hundreds of path-level peers this takes tens of milliseconds. The limit holds without
	// events.
	c.restEnd = sparingly(v.Now)
	c.memory = plan.Memory
	c.record(v, plan)
	c.wait(plan.Waiting, len(v.Candidates) > 0)
	return plan.Decisions
}

const (
	// seedDelay is how long a complete transfer waits before it dials a peer of which it hears.
	// Peers that can dial us usually do so meanwhile, over the paths that they choose.
	seedDelay = 10 * time.Second
	// seedEvery is the least time between two attempts with a peer.
	seedEvery = 10 * time.Minute
	// seededMost is the number of connected peers at which a complete transfer dials no more.
	seededMost = 32
)

// dialAsSeed decides for a complete transfer which peers it dials: those that may need its data,
// and have not connected to it. A peer gets one connection, over the path that was tried least
// recently.
func (c *chooser) dialAsSeed(now time.Time) (out []pathsel.Decision) {
	connected := map[scionnet.Addr]bool{}
	for r := range c.peers.connected() {
		connected[r.listens()] = true
	}
	n := len(connected)
	for s := range c.peers.paths() {
		if s.candidate.State == pathsel.Opening {
			n++
		}
	}
	for _, p := range c.peers.dialled {
		useless := p.complete || p.banned || !p.peer.Dialable() || connected[p.peer.Addr()]
		if useless || n+len(out) >= seededMost {
			continue
		}
		var next *pathState
		tried := false
		for _, s := range p.paths {
			tried = tried || s.candidate.State.Open() || now.Sub(s.candidate.Since) < seedEvery
			if !s.unlisted && (next == nil || s.candidate.Since.Before(next.candidate.Since)) {
				next = s
			}
		}
		if next != nil && !tried {
			d := pathsel.Decision{Key: next.candidate.Key, Action: pathsel.Open}
			d.Reason = "the peer has not connected to this seed"
			out = append(out, d)
		}
	}
	return out
}

// wait notes what the selector is waiting for. If no path is known, such as at the beginning or
// because all peers connect to us, it waits for nothing.
func (c *chooser) wait(reason string, known bool) {
	if !known {
		reason = ""
	}
	switch {
	case reason != "" && c.waiting == "":
		c.log.Info("waiting for a path", "reason", reason)
	case reason == "" && c.waiting != "":
		c.log.Info("no longer waiting for a path")
	}
	c.waiting = reason
}

func (c *chooser) record(v pathsel.View, p pathsel.Plan) {
	if c.trace == nil {
		return
	}
	step := pathsel.Step{Selector: c.cfg.Selector.Name(), View: v, Plan: p}
	if err := pathsel.WriteStep(c.trace, step); err != nil {
		c.log.Error("the trace ends here", "error", err)
		c.trace = nil
	}
}

// maxHinted bounds the ASes for which hints are remembered. A transfer has fewer peers.
const maxHinted = 4 * MaxPeers

// hint remembers which paths to try first.
func (c *chooser) hint(h pathsel.Hints) {
	if c.hints = c.hints.Merge(h); len(c.hints) > maxHinted {
		c.hints = h
	}
	c.log.Info("path hints", "ases", len(h))
}
