package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"braid/pathsel"
	"braid/storage"
)

// Options of a transfer.
type Options struct {
	Peers []Peer // besides those in the source
	// WebSeeds are servers besides those in the source.
	WebSeeds []WebSeed
	// Known are peers that have delivered data of this torrent before. They are tried first.
	Known []Peer
	// MaxPeers is the number of peers that are dialled at a time; 0 is as many as are of use.
	MaxPeers int
	// Policy holds in addition to the session's.
	Policy pathsel.Policy
	// Logger, if not nil, is used instead of the session's.
	Logger *slog.Logger
	// Decided, if not nil, is told of every step in the life of a path-level peer, in order and
	// from one goroutine. It must not block.
	Decided func(PathEvent)
	// Trace, if not nil, gets what the selector saw and decided, each time: see pathsel.WriteStep.
	// It is written by one goroutine until Close has returned.
	Trace io.Writer
	// Selection says which files are wanted; the zero value wants all.
	Selection Selection
	// Describe ends the transfer when it is known what is in the torrent: see Transfer.Described. No
	// data is fetched.
	Describe bool
	// Verified, if not nil, is told of every piece when it is verified, in order and from one
	// goroutine. It must not block.
	Verified func(VerifiedPiece)
	// SuperSeeding is for data that is complete.
	SuperSeeding SuperSeeding
	// Caused, if not nil, is told why there is no progress, and is called with nil when there is
	// progress again, with the time since the transfer was added. It is called in order and from one
	// goroutine, and must not block.
	Caused func(*Cause, time.Duration)
	// Limiter, if not nil, bounds the rates of this transfer. See Config.Limiter.
	Limiter *Limiter
	// StopTimeout, if not 0, ends the transfer with a StoppedError after so long without data.
	StopTimeout time.Duration
}

// Transfer is one torrent in a session. Its goroutine runs the loop: look at the connections, decide,
// carry out. The parts below do the work; each owns its state, and core is what they share.
type Transfer struct {
	*core
	options Options
	calls   chan func()
	broken  chan error // from the store: it cannot take the torrent, or its data
	stop    context.CancelCauseFunc
	onEnd   func()
	done    chan struct{} // closed when complete, or failed
	ended   chan struct{} // closed when run has returned
	final   Progress      // after ended
	// still is the progress of a transfer that rests; nil while it does not.
	still   atomic.Pointer[Progress]
	readers readers

	describer describer
	connector connector
	chooser   chooser
	server    server
	seeder    superSeeder
	rarest    rarestFirst
	nudger    nudger
	judge     judge
	room      roomKeeper
	confirmer confirmer
	exchanger exchanger
	checkup   checkup
	rates     rates
}

// readers lets a transfer end its readers before the engine closes the store below them.
type readers struct {
	sync.RWMutex // held by each Read
	ended        bool
}

// end waits until nobody reads. The transfer's context has ended.
func (r *readers) end() {
	r.Lock()
	defer r.Unlock()
	r.ended = true
}

// newTransfer begins a transfer. It calls onEnd when the transfer has ended.
func newTransfer(x *common, src Source, store storage.Store, opts Options, onEnd func()) (*Transfer, error) {
	c := &core{
		common: x, log: cmp.Or(opts.Logger, x.log).With("torrent", src.title()), source: src, store: &oneFile{Store: store},
		policy: opts.Policy, inbox: newInbox(), start: time.Now(),
	}
	c.blame = newBlame(c.store.took)
	c.seeds = &webTransport{source: src, log: c.log, port: x.web, layout: func() (storage.Layout, bool) {
		d := c.described.Load()
		if d == nil {
			return storage.Layout{}, false
		}
		return d.layout, true
	}}
	c.conceals.Store(opts.SuperSeeding != NoSuperSeeding)
	t := &Transfer{
		core: c, options: opts, onEnd: onEnd,
		calls: make(chan func()), broken: make(chan error, 1), done: make(chan struct{}), ended: make(chan struct{}),
		describer: describer{core: c, selection: opts.Selection, describeOnly: opts.Describe},
		connector: connector{core: c, report: opts.Decided},
		chooser:   chooser{core: c, seed: rand.Uint64(), trace: opts.Trace},
		server:    server{core: c},
		seeder:    superSeeder{core: c, mode: opts.SuperSeeding, seed: rand.Uint64()},
		rarest:    rarestFirst{core: c},
		nudger:    nudger{c},
		confirmer: confirmer{core: c},
		checkup:   checkup{core: c, caused: opts.Caused},
		rates:     rates{since: time.Now()},
	}
	t.peers.most = opts.MaxPeers
	t.judge = judge{c, &t.connector}
	t.room = roomKeeper{core: c, rarest: &t.rarest}
	t.exchanger = exchanger{core: c, connector: &t.connector, told: map[pathsel.PeerID]*[pexKinds]pexTold{}}
	c.ctx, t.stop = context.WithCancelCause(x.ctx)
	peers, err := t.firstPeers()
	if err == nil && !src.IsMagnet() && !opts.Describe {
		err = opts.Selection.Check(src.Layout)
	}
	if err == nil {
		err = t.register()
	}
	if err != nil {
		t.stop(nil)
		return nil, err
	}
	x.gauges.onUseful(src.InfoHash, func(piece, begin, length int, from pathsel.Origin) {
		c.blame.received(piece, begin, length, suspectOf(from))
	})
	if opts.Verified != nil {
		c.tellVerified(opts.Verified)
	}
	t.seeder.watch()
	t.exchanger.begin()
	c.inbox.put(newPeers{peers: slices.Clone(opts.Known), found: true, from: FromEarlier})
	c.inbox.put(newPeers{peers: peers, from: FromUser})
	go t.run()
	return t, nil
}

// firstPeers are those of the options and the source. A peer that no transport reaches is an error.
func (t *Transfer) firstPeers() ([]Peer, error) {
	peers := slices.Clone(t.options.Peers)
	for _, p := range t.source.Peers {
		p, err := p.ofStranger()
		if err != nil {
			t.log.Warn("peer passed over", "peer", p, "reason", err)
			continue
		}
		peers = append(peers, p)
	}
	for _, p := range peers {
		if _, err := t.transportFor(p); err != nil {
			return nil, err
		}
	}
	return peers, nil
}

// register adds the torrent to the engine, with its info dictionary if that is known. It does so on a
// goroutine of its own. A panic of the engine leaves it locked, and if the panic unwound the caller's
// goroutine, closing the session on the way out would wait for that lock for ever. On a goroutine of
// its own the panic ends the process, like any other panic of the engine.
func (t *Transfer) register() error {
	result := make(chan error, 1)
	go func() {
		if t.source.IsMagnet() {
			t.describer.fetch()
		}
		t.torrent = t.engine.Add(t.source.InfoHash, t.source.Name, t.store, t.onWriteError)
		if t.source.IsMagnet() {
			result <- nil
			return
		}
		err := t.describer.describe(t.source.infoBytes, t.source.Layout)
		if err != nil {
			t.torrent.Drop()
		}
		result <- err
	}()
	return <-result
}

// onWriteError is called by the engine, which would otherwise stop asking for data without a word.
func (t *Transfer) onWriteError(err error) {
	t.blame.distrust()
	if storage.IsFull(err) {
		t.inbox.put(diskFull{err})
		return
	}
	select {
	case t.broken <- fmt.Errorf("write data: %w", err):
	default:
	}
}

// Source is what the transfer was made from.
func (t *Transfer) Source() Source { return t.source }

// Described is the source with what is in it, if that is known yet.
func (t *Transfer) Described() (Source, error) {
	if !t.source.IsMagnet() {
		return t.source, nil
	}
	var info []byte
	if d := t.described.Load(); d != nil {
		info = d.info
	}
	return t.source.described(torrentFile(info))
}

// AddPeers offers peers to the transfer that the user names while it runs. See Found.
func (t *Transfer) AddPeers(peers ...Peer) { t.Found(FromUser, peers...) }

// Found offers peers to the transfer that others have named. It passes over peers of transports that
// the session lacks, this session itself, and addresses of this host at which nothing listens.
func (t *Transfer) Found(from PeerSource, peers ...Peer) {
	t.inbox.put(newPeers{peers: slices.Clone(peers), found: true, from: from})
}

// Hint names paths to try first, on the word of somebody else such as a tracker. Newer hints for an
// AS replace older ones.
func (t *Transfer) Hint(h pathsel.Hints) { t.inbox.put(hinted{h}) }

// TrackerState notes how it goes with a tracker.
func (t *Transfer) TrackerState(s TrackerState) { t.inbox.put(s) }

// Done is closed when all data is there and verified, or the transfer has failed: see Progress.
func (t *Transfer) Done() <-chan struct{} { return t.done }

// Ended is closed when Close has ended the transfer.
func (t *Transfer) Ended() <-chan struct{} { return t.ended }

// Progress is the state just now; after Close, the last one.
func (t *Transfer) Progress() Progress {
	if p := t.still.Load(); p != nil {
		now := *p
		now.Since = time.Since(t.start)
		return now
	}
	var p Progress
	if !t.do(func() { p = t.progress() }) {
		return t.final
	}
	return p
}

// do has the transfer's goroutine call f, and waits for that. It returns false if the transfer has
// ended.
func (t *Transfer) do(f func()) bool {
	done := make(chan struct{})
	select {
	case t.calls <- func() { defer close(done); f() }:
		<-done
		return true
	case <-t.ended:
		return false
	}
}

// SetPolicy changes the transfer's own policy, as Session.SetPolicy does the session's.
func (t *Transfer) SetPolicy(p pathsel.Policy) {
	t.do(func() {
		t.policy = p
		t.connector.onPolicy()
	})
}

// SetMaxPeers changes the number of peers that are dialled at a time.
func (t *Transfer) SetMaxPeers(most int) {
	t.do(func() {
		t.peers.most = most
		t.connector.choosePeers()
	})
}

// Select changes the selection of a download that is neither complete nor failed. It must not want
// files that the selection before has left out, since the store has not looked at them.
func (t *Transfer) Select(s Selection) error {
	var err error
	t.do(func() {
		if t.want == nil {
			t.options.Selection, t.describer.selection = s, s
			return
		}
		if err = s.Check(t.want.layout); err != nil || t.isDone {
			return
		}
		t.options.Selection = s
		t.want = newWant(s, t.want.layout)
		t.want.ask(t.torrent)
		t.rarest.forget()
	})
	return err
}

// Close ends the transfer and its connections. The data received so far stays in the store.
func (t *Transfer) Close() {
	t.stop(nil)
	<-t.ended
}

// eventsEvery is the least time between two looks because of events. Without it a peer that says
// again and again that it is interested, and that it is not, has every connection looked at for
// each five bytes.
const eventsEvery = 5 * time.Millisecond

// run owns the transfer's state.
func (t *Transfer) run() {
	defer close(t.ended)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	sample := time.NewTicker(sampleEvery)
	defer sample.Stop()
	described := t.torrent.Described()
	poke, rested := t.inbox.poke, (<-chan time.Time)(nil)
	for {
		if t.mayRest() {
			tick.Stop()
			sample.Stop()
			p := t.progress()
			t.still.Store(&p)
		}
		select {
		case <-t.ctx.Done():
			t.finish()
			return
		case err := <-t.broken:
			t.fail(err)
		case <-described:
			described = nil
			t.begin()
		case <-poke:
			poke, rested = nil, time.After(eventsEvery)
			if t.still.Swap(nil) != nil {
				tick.Reset(time.Second)
				sample.Reset(sampleEvery)
			}
			t.onEvents()
		case <-rested:
			poke, rested = t.inbox.poke, nil
		case <-t.whenVerified():
			t.confirmer.begin()
		case <-tick.C:
			t.onSecond()
		case <-sample.C:
			t.onSample()
		case f := <-t.calls:
			f()
		}
	}
}

// mayRest tells whether a transfer that does not rest yet can do nothing until something happens: it
// has come to its end, and nobody is connected. Then it has no timers, so that a thousand idle seeds
// cost nothing.
func (t *Transfer) mayRest() bool {
	if t.still.Load() != nil || !t.isDone || t.room.err != nil || t.rates.in.rate != 0 || t.rates.out.rate != 0 {
		return false
	}
	for r := range t.peers.rows() {
		if r.link != nil {
			return false
		}
	}
	return true
}

// onEvents handles what has happened, and looks at everything that this may have changed.
func (t *Transfer) onEvents() {
	for _, e := range t.inbox.take() {
		t.handle(e)
	}
	t.fail(t.describer.advance())
	t.connector.look()
	t.choose()
	t.server.serve()
	t.seeder.reveal()
}

func (t *Transfer) onSecond() {
	t.rates.measure(&t.peers, time.Now())
	t.peers.noteData(&t.gauges, time.Now())
	t.server.serve()
	t.judge.judge()
	t.exchanger.tell(time.Now())
	t.exchanger.nodes()
	t.connector.choosePeers()
	t.room.look()
}

func (t *Transfer) onSample() {
	t.fail(t.describer.advance())
	t.seeder.reveal()
	if !t.isDone && t.want != nil && t.want.next(t.torrent) {
		t.confirmer.begin()
	}
	t.rarest.choose()
	t.nudger.tellPieces()
	t.nudger.flushKept()
	t.nudger.nudge()
	idle := t.checkup.look(t.room.err != nil, t.describer.claiming)
	if limit := t.options.StopTimeout; limit > 0 && idle >= max(limit, examineAfter) {
		t.fail(&StoppedError{Torrent: t.source.title(), After: limit, Cause: t.checkup.cause})
	}
	if t.connector.look() || time.Now().After(t.chooser.restEnd) {
		t.choose()
	}
}

func (t *Transfer) handle(event any) {
	switch e := event.(type) {
	case newPeers:
		for _, p := range e.peers {
			t.connector.add(p, e.from, e.found)
			if e.from == FromEarlier {
				t.peers.remember(p)
			}
		}
		t.connector.choosePeers()
	case foundPaths:
		t.connector.onPaths(e)
	case dialled:
		t.connector.onDialled(e)
	case greeted:
		t.connector.onGreeted(e.addr)
	case accepted:
		if t.err != nil {
			e.link.Close()
			return
		}
		t.connector.onAccepted(e.link)
	case hinted:
		t.chooser.hint(e.hints)
	case diskFull:
		t.room.onFull(e.err)
	case room:
		t.room.onRoom(e.err)
	case claimed:
		t.fail(t.describer.onClaimed(e))
	case confirmed:
		complete, err := t.confirmer.end(e)
		if t.fail(err); complete {
			t.complete()
		}
	case exchanged:
		t.exchanger.onMessage(e)
	case examinedAll:
		t.checkup.onExamined(e)
	case TrackerState:
		t.checkup.onTracker(e)
	default:
		panic(fmt.Sprintf("client: unknown event %T", event))
	}
}

// choose asks the selector and carries its decisions out.
func (t *Transfer) choose() {
	for _, d := range t.chooser.choose() {
		t.connector.carryOut(d)
	}
}

// begin asks for the data, now that it is known what is in the torrent.
func (t *Transfer) begin() {
	t.checkup.restart()
	if s, err := t.Described(); err == nil {
		t.exchanger.learn(s)
	}
	l := t.described.Load().layout
	for _, link := range l.Symlinks {
		t.log.Warn("a symbolic link of the torrent is not made", "path", link)
	}
	if t.options.Describe {
		t.complete()
		return
	}
	t.want = newWant(t.options.Selection, l)
	t.want.begin(t.torrent)
	if !t.hasAll() {
		t.inbox.put(newPeers{peers: t.seeds.webSeeds(t.options.WebSeeds)})
	}
}

// whenVerified is closed when all pieces of the torrent are verified. It is nil while that is of no
// interest, and where only some files are wanted.
func (t *Transfer) whenVerified() <-chan struct{} {
	if !t.confirmer.isDue() || t.want.partial {
		return nil
	}
	return t.torrent.Completed()
}

func (t *Transfer) complete() {
	t.log.Info("complete", "seconds", time.Since(t.start).Seconds())
	if rho, n, ok := pathsel.HandshakeCorrelation(t.chooser.view()); ok {
		t.log.Info("how well handshakes predicted rates: rank correlation", "rho", rho, "paths", n)
	}
	t.isDone, t.chooser.waiting = true, ""
	t.connector.closeWebSeeds()
	close(t.done)
}

// fail ends the transfer because of the error, if there is one and it is the first.
func (t *Transfer) fail(err error) {
	if err == nil || t.isDone {
		return
	}
	level := slog.LevelError
	if errors.As(err, new(*StoppedError)) {
		level = slog.LevelInfo // the user has wanted it, and has been told the cause
	}
	t.log.Log(t.ctx, level, "transfer failed", "error", err)
	t.isDone, t.chooser.waiting, t.err = true, "", err
	t.connector.closeAll("the transfer has failed")
	close(t.done)
}

func (t *Transfer) finish() {
	t.final = t.progress()
	t.final.ReadRate, t.final.WriteRate = 0, 0
	t.connector.withdrawAll()
	t.gauges.unwatch(t.source.InfoHash)
	t.exchanger.end()
	t.describer.end()
	t.readers.end()
	t.torrent.Drop()         // closes the links
	t.countPayload(&t.final) // of what came since, up to the last block
	t.gauges.onUseful(t.source.InfoHash, nil)
	t.onEnd()
	t.workers.Wait()
}

// countPayload sets the counters of payload.
func (t *Transfer) countPayload(p *Progress) {
	st := t.torrent.Stats()
	useful := st.BytesReadUsefulData.Int64()
	p.Fetched, p.Sent, p.Wasted = useful-t.store.fromDisk.Load(), st.BytesWrittenData.Int64(), max(0, st.BytesReadData.Int64()-useful)
}

func (t *Transfer) progress() Progress {
	st := t.torrent.Stats()
	p := Progress{
		Name: t.torrent.Name(), Phase: Metadata, Since: time.Since(t.start),
		ReadRate: t.rates.in.rate, WriteRate: t.rates.out.rate,
		Dropped: st.PiecesDirtiedBad.Int64(),
		Err:     t.err, Waiting: cmp.Or(t.confirmer.waiting, t.chooser.waiting), Cause: t.checkup.cause,
		Paths: t.peers.progress(),
	}
	t.countPayload(&p)
	if pieces, total := t.torrent.Size(); pieces > 0 {
		have, _ := t.torrent.Bytes()
		p.Total, p.Have = total, have+t.store.untaken()
		p.Missing = max(0, p.Total-p.Have)
		p.Pieces, p.Done = pieces, st.PiecesComplete
		if t.want != nil && t.want.partial {
			p.Total, p.Pieces = t.want.total, t.want.count
			p.Have, p.Done = t.want.have(t.torrent)
		}
		p.Phase = Downloading
		if st.BytesReadData.Int64() == 0 && isHashing(t.torrent) {
			p.Phase = Checking
			p.Checked = st.BytesHashed.Int64()
		}
	}
	if t.room.err != nil {
		p.Waiting = fullMessage
	}
	switch {
	case t.err != nil:
		p.Phase = Broken
	case t.isDone:
		p.Phase = Complete
	}
	return p
}
