package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"braid/node/event"
	"braid/pathsel"
	"braid/testbed"
)

// attempt is one run of a scenario in one variant.
type attempt struct {
	Scenario  // as it is in the variant
	*fixtures // with a network that is up
	braid     string
	lab       string // the program braid-testbed
	hooks     Hooks
	variant   Variant
	dir       string
	scratch   string // removed at the end
	data      *dataset
	peers     []*process
	flows     []*flow
	writer    *sampleWriter

	messages chan message
	done     chan struct{} // nobody reads messages any more
	schedule []action      // not in order
	zero     time.Time     // the first payload byte of a leecher; zero until then

	observing sync.WaitGroup     // other clients
	ip        *testbed.IPNetwork // nil: nobody is on IP
}

// action is something to do at a moment.
type action struct {
	when When
	plus time.Duration // after the moment
	do   func() error
}

// run, in order:
//  1. reset every link, and wait until all work
//  2. start the seeds and wait until they serve; then start the leechers
//  3. record events of peers and carry out the schedule, until all leechers have ended
//  4. end all processes, and compare the data
//  5. compute the figures
func (a *attempt) run(ctx context.Context) (Result, error) {
	defer a.observing.Wait()
	defer close(a.done)
	ctx, cancel := context.WithTimeoutCause(ctx, a.Timeout.D(), failure{fmt.Errorf("not done after %v", a.Timeout)})
	defer cancel()
	status, err := a.rest(ctx)
	if err == nil {
		a.writer, err = newSampleWriter(filepath.Join(a.dir, samplesFile), a.Scenario, time.Now())
	}
	if err != nil {
		return Result{}, err
	}
	a.writer.glance(status, nil)
	err = a.course(ctx)
	var failed failure
	if errors.As(err, &failed) {
		err = nil
	}
	if err = errors.Join(err, a.finish()); err != nil {
		return Result{}, err
	}
	for _, f := range a.flows {
		failed.error = errors.Join(failed.error, f.err)
	}
	record, err := a.writer.fold.record()
	if err != nil {
		return Result{}, errors.Join(err, failed.error)
	}
	return a.result(record, failed)
}

// failure is an error that is a result of the run: a peer or a flow failed, not the experiment.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// rest resets every link, and waits until the routers have noticed.
func (a *attempt) rest(ctx context.Context) (s testbed.Status, err error) {
	if err := a.network.SetLinks(a.topology.Links); err != nil {
		return s, err
	}
	for {
		s = a.network.Status(ctx, false)
		if !s.Healthy() {
			return s, errors.New("a process of the network has died")
		}
		if !slices.ContainsFunc(s.Links, func(l testbed.LinkStatus) bool { return !isNoticed(l.A) || !isNoticed(l.B) }) {
			return s, nil
		}
		if err := testbed.Sleep(ctx, 100*time.Millisecond); err != nil {
			return s, fmt.Errorf("wait until routers see the links as they are: %w", err)
		}
	}
}

// isNoticed tells whether a router knows the state of its link. A scenario takes links down and
// brings them up again, and a router notices this some seconds later.
func isNoticed(e testbed.LinkEndStatus) bool {
	carriesNothing := e.Config.Down || e.Config.Loss == 1
	return e.State == "unwatched" || e.State == "up" && !carriesNothing || e.State == "down" && carriesNothing
}

func (a *attempt) course(ctx context.Context) error {
	for _, t := range a.Traffic {
		f := &flow{Traffic: t}
		if err := f.prepare(ctx, a.fixtures); err != nil {
			return fmt.Errorf("traffic %s: %w", t.Name, err)
		}
		a.flows = append(a.flows, f)
		a.writer.write(Line{Kind: "path", What: f.Name, route: f.route})
		a.at(t.Start, 0, func() error {
			a.writer.event("traffic", f.Name)
			f.start()
			return nil
		})
		if t.Stop != nil {
			a.at(*t.Stop, 0, func() error { a.stopFlow(f); return nil })
		}
	}
	for _, e := range a.Events {
		a.plan(e)
	}
	if a.onIP() {
		a.ip = a.network.IP()
	}
	if a.foreign() || a.webRTC() || a.introduced() {
		if err := a.startTracker(ctx); err != nil {
			return err
		}
	}
	if err := a.findRoutes(ctx); err != nil {
		return err
	}
	for _, p := range a.Peers {
		if p.Start.immediately() {
			if err := a.start(ctx, p); err != nil {
				return err
			}
		} else {
			a.at(p.Start, 0, func() error { return a.start(ctx, p) })
		}
		for _, end := range []struct {
			what string
			when *When
			do   func(*process)
		}{{"stop", p.Stop, (*process).interrupt}, {"crash", p.Crash, (*process).kill}} {
			if end.when != nil {
				a.at(*end.when, 0, func() error {
					if ps := a.processOf(p); ps != nil {
						a.writer.event(end.what, p.Name)
						end.do(ps)
					}
					return nil
				})
			}
		}
	}
	if len(a.Peers) == 0 { // there is no first byte to wait for
		a.writer.event("zero", "")
		a.setZero(time.Now())
		a.at(When{After: a.Lasts.D()}, 0, func() error { return nil })
	}
	return a.follow(ctx, a.over)
}

func (a *attempt) at(w When, plus time.Duration, do func() error) {
	a.schedule = append(a.schedule, action{w, plus, do})
}

// plan schedules an event and its repetitions.
func (a *attempt) plan(e Event) {
	for i := range max(1, e.Times) {
		begin := time.Duration(i) * e.Every.D()
		if e.Pause != nil {
			a.at(*e.At, begin, func() error { return a.pause(e.Pause.Interface) })
			a.at(*e.At, begin+e.For.D(), func() error { return a.resume(e.Pause.Interface) })
			continue
		}
		a.at(*e.At, begin, func() error { return a.change(e.change) })
		if e.For > 0 {
			link := a.topology.Links[a.topology.LinkAt(e.Link.Interface)]
			a.at(*e.At, begin+e.For.D(), func() error { return a.change(e.change.Undo(link.Config)) })
		}
	}
}

func (a *attempt) change(c testbed.LinkChange) error {
	err := a.network.Change(c)
	a.writer.write(Line{Kind: "event", What: "link", At: c.Interface.String(), Change: &c})
	return err
}

func (a *attempt) pause(at pathsel.Interface) error {
	ends, err := a.network.Pause(at)
	a.writer.write(Line{Kind: "event", What: "pause", At: at.String(), route: route{Interfaces: ends}})
	return err
}

func (a *attempt) resume(at pathsel.Interface) error {
	err := a.network.Resume(at)
	a.writer.event("resume", at.String())
	return err
}

func (a *attempt) stopFlow(f *flow) {
	if f.stop == nil {
		return
	}
	a.writer.event("traffic-end", f.Name)
	a.writer.write(Line{Kind: "traffic", What: f.Name, Bytes: f.bytes.Load()})
	f.stop()
	f.stop = nil
	f.working.Wait()
}

// setZero is called at the first payload byte, from which the scenario's times count.
func (a *attempt) setZero(at time.Time) {
	a.zero = at
	a.glance() // processor time counts from here
}

// follow carries out the schedule and records events of peers, until a condition holds.
func (a *attempt) follow(ctx context.Context, over func() bool) error {
	glances := time.NewTicker(glanceEvery)
	defer glances.Stop()
	for !over() {
		var due <-chan time.Time
		i, when := a.nextAction()
		if i >= 0 {
			due = time.After(time.Until(when))
		}
		var err error
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case m := <-a.messages:
			if err = a.hear(m); err == nil {
				err = a.stuck()
			}
		case <-due:
			do := a.schedule[i].do
			a.schedule = slices.Delete(a.schedule, i, i+1)
			err = do()
		case <-glances.C:
			a.glance()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// over tells whether all leechers have ended.
func (a *attempt) over() bool {
	if len(a.Peers) == 0 {
		return time.Since(a.zero) >= a.Lasts.D()
	}
	// A run also waits for leechers that start later.
	return !slices.ContainsFunc(a.Peers, func(p Peer) bool {
		ps := a.processOf(p)
		return p.Role == Leech && (ps == nil || !ps.ended && !ps.done)
	})
}

// processOf returns the process of a peer; nil before its start.
func (a *attempt) processOf(p Peer) *process {
	i := slices.IndexFunc(a.peers, func(x *process) bool { return x.peer.Name == p.Name })
	if i < 0 {
		return nil
	}
	return a.peers[i]
}

// stuck returns a failure if a leecher waits for a part of the data, and nobody downloads any more.
func (a *attempt) stuck() error {
	var waits Peer
	part := a.part()
	for _, p := range a.Peers {
		ps := a.processOf(p)
		switch {
		case p.Role != Leech || ps != nil && (ps.ended || ps.done):
		case ps != nil || p.Start.Done <= part:
			return nil // it downloads or will
		default:
			waits = p
		}
	}
	if waits.Name == "" {
		return nil
	}
	return failure{fmt.Errorf("peer %s starts at %.4g%% of the data, "+
		"but the other leechers have ended at %.4g%%", waits.Name, 100*waits.Start.Done, 100*part)}
}

// nextAction returns the action that is due next; -1 if there is none whose time is known.
func (a *attempt) nextAction() (index int, when time.Time) {
	index = -1
	for i, x := range a.schedule {
		if a.zero.IsZero() || x.when.Done > 0 {
			continue
		}
		at := a.zero.Add(x.when.After + x.plus)
		if index < 0 || at.Before(when) {
			index, when = i, at
		}
	}
	return index, when
}

// hear handles a message of a peer.
func (a *attempt) hear(m message) error {
	p := m.from
	if m.end != nil {
		a.ended(p)
		s := p.cmd.ProcessState
		a.writer.write(Line{Kind: "process", What: p.peer.Name, CPU: (s.UserTime() + s.SystemTime()).Seconds()})
		ends := p.peer.Role == Leech && (p.peer.Client == Braid || p.peer.Client == Iperf3) // when it is done
		if !p.stopped && (!ends || !errors.Is(m.end, io.EOF)) {
			return failure{fmt.Errorf("peer %s ended: %w: %s", p.peer.Name, m.end, p.lastWords())}
		}
		return nil
	}
	a.writer.writeAt(m.at, Line{Kind: "peer", What: p.peer.Name, Event: m.line, said: m.said})
	if a.hooks.Heard != nil {
		a.hooks.Heard(a.variant, p.peer.Name, m.said)
	}
	if e, ok := m.said.(*event.Ready); ok {
		p.ready = true
		// A gateway is found by its tracker, a web seed by its HTTP server.
		if at := slices.Concat(e.Trackers, e.HTTP, e.Listen); len(at) > 0 {
			p.listen = at[0]
		}
	}
	if f := a.writer.fold; p.peer.Role == Leech {
		p.done = f.leechers[p.peer.Name].Complete
		if a.zero.IsZero() && f.hasZero {
			a.setZero(m.at)
		}
		a.resolve()
	}
	return nil
}

func (a *attempt) ended(p *process) {
	p.ended = true
	a.writer.event("end", p.peer.Name)
}

// resolve schedules the actions whose part of the data has been reached.
func (a *attempt) resolve() {
	if a.zero.IsZero() {
		return
	}
	part := a.part()
	for i, x := range a.schedule {
		if x.when.Done > 0 && part >= x.when.Done {
			a.schedule[i].when = When{After: time.Since(a.zero)}
		}
	}
}

// part returns the part of their data that all leechers together have.
func (a *attempt) part() float64 {
	var want float64
	for _, p := range a.Peers {
		if p.Role == Leech {
			want += float64(a.torrentsOf(p)) * float64(a.Size)
		}
	}
	return a.writer.fold.fetched() / want
}

// glance writes samples of links, processes and flows.
func (a *attempt) glance() {
	a.writer.glance(a.network.Glance(), a.peers)
	for _, f := range a.flows {
		a.writer.write(Line{Kind: "traffic", What: f.Name, Bytes: f.bytes.Load()})
	}
}

// finish ends all flows and processes of the run, and waits for them.
func (a *attempt) finish() error {
	var errs []error
	for _, e := range a.Events {
		if e.Pause != nil { // its router may still be stopped
			errs = append(errs, a.network.Resume(e.Pause.Interface))
		}
	}
	for _, f := range a.flows {
		a.stopFlow(f)
	}
	a.writer.glance(a.network.Status(context.Background(), false), a.peers)
	for _, p := range a.peers {
		switch {
		case p.ended:
		case p.peer.Client == Braid:
			p.interrupt()
		default:
			p.kill() // some clients take long to end
		}
	}
	patience := time.NewTimer(20 * time.Second)
	defer patience.Stop()
	for slices.ContainsFunc(a.peers, func(p *process) bool { return !p.ended }) {
		select {
		case m := <-a.messages:
			if m.end != nil {
				a.ended(m.from)
			}
		case <-patience.C:
			for _, p := range a.peers {
				if !p.ended {
					p.kill()
				}
			}
		}
	}
	for _, p := range a.peers { // whose processes have ended
		if p.host != nil {
			errs = append(errs, p.host.Close())
		}
	}
	return errors.Join(append(errs, a.writer.close())...)
}
