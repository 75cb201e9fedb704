package client

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"braid/pathsel"
	"braid/storage"
)

// loop is the goroutine of a transfer. It looks at the connections, decides, and carries the
// decision out. The parts below do the work: each owns its state, and core holds what they share.
type loop struct {
	*core
	options Options
	broken  chan error    // from the store: it cannot take the torrent, or its data
	done    chan struct{} // closed when complete, or failed
	ended   chan struct{} // closed when run has returned
	final   Progress      // after ended
	// still is the progress of a transfer that rests; nil while it does not.
	still   atomic.Pointer[Progress]
	readers readers

	checking   bool // as isChecking has last found
	checkAgain time.Time
	haveBytes  int64 // as countWanted has last found
	havePieces int
	countAgain time.Time

	verifying sync.Mutex // held while options.Verified is called

	describer describer
	connector connector
	chooser   chooser
	server    server
	seeder    superSeeder
	rarest    rarestFirst
	nudger    nudger
	trials    trialRunner
	room      roomKeeper
	confirmer confirmer
	exchanger exchanger
	checkup   checkup
	rates     rates
}

// newLoop returns the loop of a transfer, which begins with register and run.
func newLoop(c *core, opts Options) *loop {
	c.conceals.Store(opts.SuperSeeding != NoSuperSeeding)
	l := &loop{
		core: c, options: opts,
		broken: make(chan error, 1), done: make(chan struct{}), ended: make(chan struct{}),
		connector: connector{core: c, report: opts.Decided},
		chooser:   chooser{core: c, seed: rand.Uint64(), trace: opts.Trace},
		server:    server{core: c},
		seeder:    superSeeder{core: c, mode: opts.SuperSeeding, seed: rand.Uint64()},
		rarest:    rarestFirst{core: c},
		nudger:    nudger{c},
		trials:    trialRunner{core: c, spoilt: map[int]bool{}},
		confirmer: confirmer{core: c},
		checkup:   checkup{core: c, caused: opts.Caused, stalls: stallWarner{core: c}},
		rates:     rates{since: time.Now()},
	}
	c.fail, l.confirmer.confirmed = l.fail, l.complete
	l.describer = describer{core: c, options: &l.options}
	l.trials.connector, l.trials.rarest = &l.connector, &l.rarest
	c.store.hashed = l.hashed
	l.room = roomKeeper{core: c, rarest: &l.rarest}
	l.exchanger = exchanger{core: c, connector: &l.connector, admission: pexGate{}}
	return l
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

// register adds the torrent to the engine, with its info dictionary if that is known. It does so on
// a goroutine of its own. A panic of the engine leaves it locked, and if the panic unwound the
// caller's goroutine, closing the session on the way out would wait for that lock for ever. On a
// goroutine of its own the panic ends the process, like any other panic of the engine.
func (l *loop) register() error {
	result := make(chan error, 1)
	go func() {
		l.torrent = l.engine.Add(l.source.InfoHash, l.source.Name, l.store, l.onWriteError)
		if l.source.IsMagnet() {
			result <- nil
			return
		}
		err := l.describer.describe(l.source)
		if err != nil {
			l.torrent.Drop()
		}
		result <- err
	}()
	return <-result
}

// onWriteError is called by the engine, which would otherwise stop asking for data without a word.
func (l *loop) onWriteError(err error) {
	l.blame.distrust()
	if storage.IsFull(err) {
		l.inbox.put(func() { l.room.onFull(err) })
		return
	}
	select {
	case l.broken <- fmt.Errorf("write data: %w", err):
	default:
	}
}

// hashed is told of each piece that is found right or wrong, on goroutines of the engine.
func (l *loop) hashed(piece int, right bool) {
	if right {
		l.blame.complete(piece)
	}
	if f := l.options.Verified; f != nil && right {
		l.verifying.Lock()
		f(VerifiedPiece{piece, time.Since(l.start)})
		l.verifying.Unlock()
	}
	l.trials.hashed(piece, right)
}

// eventsEvery is the least time between two looks because of events. Without it, a peer could cause
// a look at all connections with each message of five bytes, such as "interested" and "not
// interested" in turn. After a look that takes longer, the next one waits for as long as that took.
const eventsEvery = 5 * time.Millisecond

func (l *loop) run() {
	defer close(l.ended)
	sample := time.NewTicker(sampleEvery)
	defer sample.Stop()
	second := time.Now().Add(time.Second) // the next one
	described := l.torrent.Described()
	poke, rested := l.inbox.poke, (<-chan time.Time)(nil)
	for {
		if l.mayRest() {
			sample.Stop()
			p := l.progress()
			l.still.Store(&p)
		}
		select {
		case <-l.ctx.Done():
			l.finish()
			return
		case err := <-l.broken:
			l.fail(err)
		case <-described:
			described = nil
			l.begin()
		case <-poke:
			began := time.Now()
			if l.still.Swap(nil) != nil {
				sample.Reset(sampleEvery)
			}
			l.onEvents()
			poke, rested = nil, time.After(max(eventsEvery, time.Since(began)))
		case <-rested:
			poke, rested = l.inbox.poke, nil
		case <-l.whenVerified():
			l.confirmer.begin()
		case now := <-sample.C:
			l.onSample()
			if !now.Before(second) {
				second = now.Add(time.Second)
				l.onSecond()
			}
		case f := <-l.calls:
			f()
		}
	}
}

// mayRest tells whether the transfer can begin to rest: its work has ended, and nobody is
// connected. A resting transfer has no timers, so that a thousand idle seeds cost nothing. It works
// again at the next event.
func (l *loop) mayRest() bool {
	quiet := l.rates.in.rate == 0 && l.rates.out.rate == 0
	if l.still.Load() != nil || !l.isDone || l.room.err != nil || !quiet {
		return false
	}
	for r := range l.peers.rows() {
		if r.link != nil {
			return false
		}
	}
	return true
}

// onEvents handles the events in the inbox, and then looks at everything that they may have
// changed.
func (l *loop) onEvents() {
	for _, handle := range l.inbox.take() {
		handle()
	}
	l.fail(l.describer.advance())
	l.connector.look()
	l.choose()
	l.server.serve()
	l.seeder.reveal()
}

func (l *loop) onSecond() {
	l.rates.measure(&l.peers, time.Now())
	l.peers.noteData(time.Now())
	l.server.serve()
	l.connector.judge()
	l.chooser.look()
	l.exchanger.tell(time.Now())
	l.exchanger.nodes()
	l.connector.choosePeers()
	l.room.look()
}

func (l *loop) onSample() {
	l.fail(l.describer.advance())
	l.seeder.reveal()
	if !l.isDone && l.want != nil && l.want.next(l.torrent) {
		l.confirmer.begin()
	}
	l.rarest.choose()
	l.trials.look()
	l.nudger.tell()
	l.nudger.nudge()
	full := l.room.err != nil || l.confirmer.waiting != ""
	idle := l.checkup.look(full, l.describer.claiming || l.confirmer.underWay && !full)
	if limit := l.options.StopTimeout; limit > 0 && l.checkup.exceeds(limit, idle) {
		l.fail(&StoppedError{After: limit, Cause: l.checkup.cause})
	}
	if l.connector.look() || time.Now().After(l.chooser.restEnd) {
		l.choose()
	}
}

func (l *loop) choose() {
	for _, d := range l.chooser.choose() {
		l.connector.carryOut(d)
	}
}

// begin asks for the data, now that it is known what is in the torrent.
func (l *loop) begin() {
	l.checkup.restart()
	layout := l.described.Load().Layout
	for _, link := range layout.Symlinks {
		l.log.Warn("a symbolic link of the torrent is not made", "path", link)
	}
	if l.options.Describe {
		l.complete()
		return
	}
	l.want = newWant(l.options.Selection, layout)
	l.want.begin(l.torrent)
	if !l.hasAll() {
		l.connector.addAll(l.seeds.webSeeds(l.options.WebSeeds), "", false)
	}
}

// whenVerified is closed when all pieces of the torrent are verified. It is nil while the confirmer
// must not begin, and if only some files are wanted.
func (l *loop) whenVerified() <-chan struct{} {
	if !l.confirmer.isDue() || l.want.partial {
		return nil
	}
	return l.torrent.Completed()
}

func (l *loop) complete() {
	l.log.Info("complete", "seconds", time.Since(l.start).Seconds())
	if rho, n, ok := pathsel.HandshakeCorrelation(l.chooser.view()); ok {
		l.log.Info("how well handshakes predicted rates: rank correlation", "rho", rho, "paths", n)
	}
	l.isDone, l.chooser.waiting, l.countAgain = true, "", time.Time{}
	l.connector.closeWebSeeds()
	close(l.done)
}

// fail ends the transfer because of the error, if there is one and it is the first.
func (l *loop) fail(err error) {
	if err == nil || l.isDone {
		return
	}
	level := slog.LevelError
	if errors.As(err, new(*StoppedError)) {
		level = slog.LevelInfo // the user asked for it, and has been told the cause
	}
	l.log.Log(l.ctx, level, "transfer failed", "error", err)
	l.isDone, l.chooser.waiting, l.err = true, "", err
	l.connector.closeAll("the transfer has failed")
	close(l.done)
}

func (l *loop) finish() {
	l.countAgain = time.Time{}
	l.final = l.progress()
	l.final.ReadRate, l.final.WriteRate = 0, 0
	l.connector.withdrawAll()
	l.readers.end()
	l.torrent.Drop()         // closes the links
	l.countPayload(&l.final) // again, to include the last blocks
	l.workers.Wait()
	l.transfers.Delete(l.source.InfoHash) // only now: Session.Close waits for those that are there
}

func (l *loop) countPayload(p *Progress) {
	st := l.torrent.Stats()
	useful := st.BytesReadUsefulData.Int64()
	p.Fetched, p.Sent = useful-l.store.fromDisk.Load(), st.BytesWrittenData.Int64()
	p.Wasted = max(0, st.BytesReadData.Int64()-useful)
}

// isChecking tells whether files are being checked. It finds out sparingly: the engine goes over
// all pieces with its lock held, and user interfaces ask every second.
func (l *loop) isChecking() bool {
	if now := time.Now(); !now.Before(l.checkAgain) {
		l.checking = isHashing(l.torrent)
		l.checkAgain = sparingly(now)
	}
	return l.checking
}

// countWanted counts the wanted pieces that are complete, and their bytes, sparingly like
// isChecking.
func (l *loop) countWanted() (bytes int64, pieces int) {
	if now := time.Now(); !now.Before(l.countAgain) {
		l.haveBytes, l.havePieces = l.want.have(l.torrent)
		l.countAgain = sparingly(now)
	}
	return l.haveBytes, l.havePieces
}

func (l *loop) progress() Progress {
	st := l.torrent.Stats()
	p := Progress{
		Name: l.torrent.Name(), Phase: Metadata, Since: time.Since(l.start),
		ReadRate: l.rates.in.rate, WriteRate: l.rates.out.rate,
		Dropped: st.PiecesDirtiedBad.Int64(), Paths: l.peers.progress(),
		Waiting: cmp.Or(l.confirmer.waiting, l.chooser.waiting), Cause: l.checkup.cause, Err: l.err,
	}
	l.countPayload(&p)
	if pieces, total := l.torrent.Size(); pieces > 0 {
		have, _ := l.torrent.Bytes()
		p.Total, p.Have = total, have+l.store.untaken()
		p.Missing = max(0, p.Total-p.Have)
		p.Pieces, p.Done = pieces, st.PiecesComplete
		if l.want != nil && l.want.partial {
			p.Total, p.Pieces = l.want.total, len(l.want.order)
			p.Have, p.Done = l.countWanted()
		}
		p.Phase = Downloading
		if !l.isDone && st.BytesReadData.Int64() == 0 && l.isChecking() {
			p.Phase = Checking
			p.Checked = st.BytesHashed.Int64()
		}
	}
	if l.room.err != nil {
		p.Waiting = fullMessage
	}
	switch {
	case l.err != nil:
		p.Phase = Broken
	case l.isDone:
		p.Phase = Complete
	}
	return p
}
