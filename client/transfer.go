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

	"github.com/anacrolix/torrent"
	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"

	"braid/pathsel"
	"braid/storage"
)

// maxFinished is how many ended connections that others had opened are kept for the final report.
const maxFinished = 256

// Options of a transfer.
type Options struct {
	Peers []Peer // beside those in the source
	// Decided, if not nil, is told of every step in the life of a path-level peer, in order and from one
	// goroutine, which it must not hold up.
	Decided func(PathEvent)
	// Trace, if not nil, gets what the selector saw and what it made of it, each time: see pathsel.WriteStep. It is
	// written by one goroutine until Close has returned.
	Trace io.Writer
	// Selection says which files are wanted; the zero value wants all.
	Selection Selection
	// Describe ends the transfer when it is known what is in the torrent: see Transfer.Described. No data is fetched.
	Describe bool
	// Verified, if not nil, is told of every piece when it is verified, in order and from one goroutine, which it must not hold up.
	Verified func(VerifiedPiece)
	// SuperSeeding is for data that is complete.
	SuperSeeding SuperSeeding
	// Caused, if not nil, is told why there is no progress, and of nil when there is again, in order and from one goroutine, which it
	// must not hold up; with the time since the transfer was added.
	Caused func(*Cause, time.Duration)
	// StopTimeout, if not 0, ends the transfer with a StoppedError after so long without data.
	StopTimeout time.Duration
}

// Transfer is one torrent in a session.
type Transfer struct {
	session *Session
	source  Source
	decided func(PathEvent)
	torrent *torrent.Torrent
	log     *slog.Logger
	inbox   *inbox
	asks    chan chan Progress
	broken  chan error // from the store: it cannot take the torrent, or its data
	ctx     context.Context
	stop    context.CancelCauseFunc
	done    chan struct{} // closed when complete, or failed
	ended   chan struct{} // closed when run has returned
	final   Progress      // after ended
	lookups sync.WaitGroup
	// conceals: peers whose connections begin now are told of pieces by reveal only.
	conceals atomic.Bool
	layout   atomic.Pointer[storage.Layout] // nil until it is known what is in the torrent
	store    *oneFile
	blame    *blame

	// The rest belongs to run.
	start     time.Time
	measured  time.Time
	peers     []*peerState // that it dials, in the order in which they were taken up
	spares    []spare
	inbound   []*row // of accepted connections, and of peers that were put aside
	in, out   meter
	paused    bool // nothing to do for the selector: complete
	isDone    bool
	err       error
	lookupEnd map[Peer]context.CancelFunc
	seed      uint64         // for the selector's draws
	memory    pathsel.Memory // of its last plan
	rested    time.Time      // when it may be asked again though nothing has happened
	waiting   string         // what it is waiting for, if no path is left
	uploads   pathsel.UploadMemory
	revealed  *revelation // nil: there is nothing to reveal, or not any longer
	rarest    *rarest     // nil: not looked yet
	hints     pathsel.Hints
	trace     io.Writer // nil: none, or it could not be written
	options   Options
	metadata  *metadata // nil: it is known what is in the torrent
	claiming  bool      // the store looks at the files that are there
	want      *want     // nil until it is known what is in the torrent
	full      fullDisk
	settling  settling
	stall     stall
}

func newTransfer(s *Session, src Source, store storage.Store, opts Options) (*Transfer, error) {
	t := &Transfer{
		session: s, source: src,
		log:   s.log.With("torrent", src.title()),
		inbox: newInbox(), asks: make(chan chan Progress), broken: make(chan error, 1),
		done: make(chan struct{}), ended: make(chan struct{}),
		start: time.Now(), measured: time.Now(),
		lookupEnd: map[Peer]context.CancelFunc{},
		seed:      rand.Uint64(),
		decided:   opts.Decided, trace: opts.Trace, options: opts,
	}
	t.full.store, t.store = store, &oneFile{Store: store}
	t.blame = newBlame(t.store.took)
	t.conceals.Store(opts.SuperSeeding != NoSuperSeeding)
	t.ctx, t.stop = context.WithCancelCause(s.ctx)
	peers := slices.Clone(opts.Peers)
	for _, p := range src.Peers {
		p, err := p.ofStranger()
		if err != nil {
			t.log.Warn("peer passed over", "peer", p, "reason", err)
			continue
		}
		peers = append(peers, p)
	}
	for _, p := range peers {
		if _, err := s.transportFor(p); err != nil {
			t.stop(nil)
			return nil, err
		}
	}
	var err error
	if !src.IsMagnet() && !opts.Describe {
		err = opts.Selection.Check(src.Layout)
	}
	if err == nil {
		err = t.register()
	}
	if err != nil {
		t.stop(nil)
		return nil, err
	}
	s.gauges.blames.Store(t.torrent, t.blame)
	if opts.Verified != nil {
		t.tellVerified(opts.Verified)
	}
	if t.conceals.Load() && t.torrent.Info() != nil {
		s.gauges.watch(t.torrent, t.torrent.NumPieces(), t.inbox.touch)
	}
	// The engine would stop asking for data without a word.
	t.torrent.SetOnWriteChunkError(func(err error) {
		t.blame.distrust()
		if storage.IsFull(err) {
			t.inbox.put(diskFull{err})
			return
		}
		select {
		case t.broken <- fmt.Errorf("write data: %w", err):
		default:
		}
	})
	t.inbox.put(newPeers{peers: peers})
	go t.run()
	return t, nil
}

// register adds the torrent to the engine, with its info dictionary if that is known. It does so on a goroutine of its own: a
// panic of the engine leaves it locked, and whoever closes the session on the way out would wait for that lock for ever.
// There a panic ends the process, as any other of the engine's does.
func (t *Transfer) register() error {
	result := make(chan error, 1)
	go func() {
		if t.source.IsMagnet() {
			t.metadata = newMetadata(t.source.InfoHash, t.inbox.touch)
			t.session.fetches.byHash.Store(t.source.InfoHash, t.metadata)
		}
		t.torrent, _ = t.session.engine.AddTorrentOpt(torrent.AddTorrentOpts{InfoHash: t.source.InfoHash, Storage: t.store})
		t.torrent.SetDisplayName(t.source.Name)
		if t.source.IsMagnet() {
			result <- nil
			return
		}
		err := t.describe(t.source.infoBytes, t.source.Layout)
		if err != nil {
			t.torrent.Drop()
		}
		result <- err
	}()
	return <-result
}

// describe tells the engine what is in the torrent.
func (t *Transfer) describe(info []byte, l storage.Layout) error {
	t.layout.Store(&l)
	if err := t.torrent.SetInfoBytes(info); err != nil {
		return cmp.Or(t.store.refused, err)
	}
	return nil
}

// fetchInfo goes on with fetching the info dictionary of a magnet link.
func (t *Transfer) fetchInfo() {
	if t.metadata == nil || t.claiming || t.isDone {
		return
	}
	send, liars, b := t.metadata.step(time.Now())
	for _, x := range send {
		_ = x.send() // fails for a peer that has gone
	}
	for _, p := range liars {
		t.log.Debug("a peer has sent a wrong info dictionary")
		p.Close()
	}
	if b == nil {
		return
	}
	_, l, _, err := parseInfo(b)
	if err == nil && !t.options.Describe {
		err = t.options.Selection.Check(l)
	}
	if err != nil {
		t.onClaimed(claimed{err: err})
		return
	}
	// What is there already may have to be hashed first, which takes as long as the disk does: not in the engine, whose lock
	// everybody else needs.
	t.claiming = true
	t.lookups.Go(func() {
		err := storage.Claim(t.ctx, t.full.store, l, t.source.InfoHash, nil)
		if err == nil && !t.options.Describe {
			if err := storage.KeepTorrent(t.full.store, t.source.InfoHash, torrentFile(b)); err != nil {
				t.log.Warn("the magnet link cannot be seeded without asking peers again", "error", err)
			}
		}
		t.inbox.put(claimed{b, l, err})
	})
}

// claimed is an event: the store may write to the files of a magnet link, or must not, or the link was a bad one.
type claimed struct {
	info   []byte
	layout storage.Layout
	err    error
}

func (t *Transfer) onClaimed(e claimed) {
	t.claiming = false
	if t.isDone || t.ctx.Err() != nil {
		return
	}
	if e.err == nil {
		e.err = t.describe(e.info, e.layout)
	}
	if e.err != nil {
		t.fail(e.err)
	}
	t.session.fetches.byHash.Delete(t.source.InfoHash) // not before the engine knows: it would take what else comes
	t.metadata = nil
}

// oneFile shows the engine a torrent of one file, whatever is in it. The engine needs to know nothing of files, of padding
// between them, or of a v2 half, in which it makes mistakes that end the process; and it looks at all files for each
// piece. The info is its own: it calls this before it makes anything of the info but the hash.
type oneFile struct {
	storage.Store
	refused  error                          // why the store does not take the torrent
	blocks   atomic.Pointer[storage.Blocks] // on disk; nil: there are none
	fromDisk atomic.Int64                   // bytes of blocks that the engine has got from there
}

func (s *oneFile) OpenTorrent(ctx context.Context, info *metainfo.Info, hash metainfo.Hash) (engine.TorrentImpl, error) {
	t, err := s.Store.OpenTorrent(ctx, info, hash)
	if err != nil {
		s.refused = err
		return t, err
	}
	s.blocks.Store(storage.BlocksOf(s.Store, hash))
	*info = metainfo.Info{
		Name: info.Name, NameUtf8: info.NameUtf8, PieceLength: info.PieceLength, Pieces: info.Pieces, Private: info.Private,
		Length: v1Length(info),
	}
	return t, nil
}

// Source is what the transfer was made from.
func (t *Transfer) Source() Source { return t.source }

// AddPeers offers peers to the transfer that others have named. Those of transports that the session lacks, this session
// itself, and addresses of this host at which nothing listens are passed over.
func (t *Transfer) AddPeers(peers ...Peer) { t.inbox.put(newPeers{slices.Clone(peers), true}) }

// Done is closed when all data is there and verified, or the transfer has failed: see Progress.
func (t *Transfer) Done() <-chan struct{} { return t.done }

// Ended is closed when Close has ended the transfer.
func (t *Transfer) Ended() <-chan struct{} { return t.ended }

// Progress is the state just now; after Close, the last one.
func (t *Transfer) Progress() Progress {
	reply := make(chan Progress, 1)
	select {
	case t.asks <- reply:
		return <-reply
	case <-t.ended:
		return t.final
	}
}

// Close ends the transfer and its connections. What was received stays in the store.
func (t *Transfer) Close() {
	t.stop(nil)
	<-t.ended
}

// eventsEvery is the least time between two looks because of events. Without it a peer that says it is interested, and then that it is
// not, on and on, has every connection looked at for each five bytes.
const eventsEvery = 5 * time.Millisecond

// run owns the transfer's state.
func (t *Transfer) run() {
	defer close(t.ended)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	sample := time.NewTicker(sampleEvery)
	defer sample.Stop()
	known := t.torrent.GotInfo()
	poke, rested := t.inbox.poke, (<-chan time.Time)(nil)
	for {
		select {
		case <-t.ctx.Done():
			t.finish()
			return
		case err := <-t.broken:
			t.fail(err)
		case <-known:
			known = nil
			t.begin()
		case <-poke:
			poke, rested = nil, time.After(eventsEvery)
			for _, e := range t.inbox.take() {
				t.handle(e)
			}
			t.fetchInfo()
			t.look()
			t.choose()
			t.serve()
			t.reveal()
		case <-tick.C:
			t.measure()
			t.serve()
			t.judge()
			t.choosePeers()
			t.lookForRoom()
		case <-rested:
			poke, rested = t.inbox.poke, nil
		case <-t.whenComplete():
			t.settle()
		case <-sample.C:
			t.fetchInfo()
			t.reveal()
			t.advance()
			t.preferRarest()
			t.tellPieces()
			t.tellKept()
			t.nudge()
			t.checkProgress()
			if t.look() || time.Now().After(t.rested) {
				t.choose()
			}
		case reply := <-t.asks:
			reply <- t.progress()
		}
	}
}

// begin asks for the data, now that it is known what is in the torrent.
func (t *Transfer) begin() {
	t.stall.usefulAt = time.Now()
	l := *t.layout.Load()
	for _, link := range l.Symlinks {
		t.log.Warn("a symbolic link of the torrent is not made", "path", link)
	}
	if t.options.Describe {
		t.complete()
		return
	}
	t.want = newWant(t.options.Selection, l)
	t.want.begin(t.torrent)
}

// advance notices when a part of a torrent is complete, and moves a sequential download on.
func (t *Transfer) advance() {
	if t.isDone || t.want == nil || !t.want.partial && !t.want.ordered {
		return
	}
	if t.want.advance(t.torrent) && t.want.partial {
		t.settle()
	}
}

// Described is the source with what is in it, if that is known yet.
func (t *Transfer) Described() (Source, error) {
	if !t.source.IsMagnet() {
		return t.source, nil
	}
	return t.source.described(torrentFile(t.torrent.Metainfo().InfoBytes))
}

// whenComplete is nil once it has been seen, or as long as it is not to be.
func (t *Transfer) whenComplete() <-chan struct{} {
	if t.isDone || t.want == nil || t.want.partial || t.settling.underWay || time.Now().Before(t.settling.after) {
		return nil
	}
	return t.torrent.Complete().On()
}

func (t *Transfer) complete() {
	t.log.Info("complete", "seconds", time.Since(t.start).Seconds())
	v, _ := t.view()
	if rho, n, ok := pathsel.HandshakeCorrelation(v); ok {
		t.log.Info("how well handshakes predicted rates: rank correlation", "rho", rho, "paths", n)
	}
	t.isDone, t.paused, t.waiting = true, true, ""
	close(t.done)
}

func (t *Transfer) fail(err error) {
	if t.isDone {
		return
	}
	level := slog.LevelError
	if errors.As(err, new(*StoppedError)) {
		level = slog.LevelInfo // the user has wanted it, and the cause has been told
	}
	t.log.Log(t.ctx, level, "transfer failed", "error", err)
	t.isDone, t.paused, t.waiting, t.err = true, true, "", err
	for _, p := range t.peers {
		for _, s := range p.paths {
			t.close(s, "the transfer has failed")
		}
	}
	for _, r := range t.inbound {
		if r.link != nil {
			r.link.Close()
		}
	}
	close(t.done)
}

func (t *Transfer) finish() {
	t.final = t.progress()
	t.final.ReadRate, t.final.WriteRate = 0, 0
	for _, end := range t.lookupEnd {
		end()
	}
	for _, p := range t.peers {
		for _, s := range p.paths {
			t.withdraw(s)
		}
	}
	t.session.gauges.unwatch(t.torrent)
	t.session.fetches.byHash.Delete(t.source.InfoHash)
	t.torrent.Drop() // closes the links
	t.session.gauges.blames.Delete(t.torrent)
	t.session.forget(t)
	t.lookups.Wait()
}

func (t *Transfer) handle(event any) {
	switch e := event.(type) {
	case newPeers:
		for _, p := range e.peers {
			t.addPeer(p, e.found)
		}
		t.choosePeers()
	case found:
		t.mapPaths(e)
	case hinted:
		t.onHints(e.hints)
	case dialled:
		t.onDialled(e)
	case accepted:
		if t.err != nil {
			e.link.Close()
			return
		}
		t.inbound = append(t.inbound, &row{peer: e.link.Peer(), transport: e.link.transport, accepted: true, link: e.link})
		t.log.Info("peer connected", "peer", e.link.Peer(), "transport", e.link.transport)
		e.link.OnChange(t.inbox.touch)
	case diskFull:
		t.onFull(e.err)
	case room:
		t.onRoom(e.err)
	case claimed:
		t.onClaimed(e)
	case settled:
		t.onSettled(e)
	case examinedAll:
		t.onExamined(e)
	case TrackerState:
		if t.stall.trackers == nil {
			t.stall.trackers = map[string]TrackerState{}
		}
		t.stall.trackers[e.URL] = e
	case greeted:
		for _, p := range t.peers {
			for _, s := range p.paths {
				if s.link != nil && s.link.face.String() == e.addr {
					s.link.Greet()
					s.candidate.Failures, p.failures = 0, 0
				}
			}
		}
	default:
		panic(fmt.Sprintf("client: unknown event %T", event))
	}
}

// trimFinished forgets the oldest rows without a connection, beyond most of them; those that carried nothing at once.
func trimFinished(rows []*row, most int) []*row {
	finished := 0
	for _, r := range rows {
		if r.link == nil && r.past.read+r.past.written > 0 {
			finished++
		}
	}
	return slices.DeleteFunc(rows, func(r *row) bool {
		if r.link != nil {
			return false
		}
		if r.past.read+r.past.written == 0 {
			return true
		}
		finished--
		return finished >= most
	})
}

// measure takes the second's samples.
func (t *Transfer) measure() {
	now := time.Now()
	elapsed := now.Sub(t.measured)
	t.measured = now
	var read, written uint64
	add := func(r *row) {
		r.measure(elapsed)
		a, b := r.bytes()
		read, written = read+a, written+b
	}
	for _, p := range t.peers {
		for _, s := range p.paths {
			add(&s.row)
		}
	}
	for _, r := range t.inbound {
		add(r)
		t.noteData(r.link, now)
	}
	// Rows may be forgotten, which must not look like a counter that runs backwards.
	t.in.update(max(read, t.in.bytes), elapsed)
	t.out.update(max(written, t.out.bytes), elapsed)
}

// noteData notes whether an accepted connection has carried data, either way, since the last look: it keeps its place by that.
func (t *Transfer) noteData(l *link, now time.Time) {
	if l == nil {
		return
	}
	if g := t.session.gauges.find(l.face); g != nil {
		st := g.conn.Stats()
		if n := st.BytesWrittenData.Int64() + st.BytesReadUsefulData.Int64(); n > l.data {
			l.data = n
			l.carried.Store(now.UnixNano())
		}
	}
}

func (t *Transfer) progress() Progress {
	st := t.torrent.Stats()
	p := Progress{
		Name: t.torrent.Name(), Phase: Metadata, Since: time.Since(t.start),
		Fetched: st.BytesReadUsefulData.Int64() - t.store.fromDisk.Load(), Sent: st.BytesWrittenData.Int64(),
		ReadRate: t.in.rate, WriteRate: t.out.rate,
		Wasted:  max(0, st.BytesReadData.Int64()-st.BytesReadUsefulData.Int64()),
		Dropped: st.PiecesDirtiedBad.Int64(),
		Err:     t.err, Waiting: t.waiting, Cause: t.stall.cause,
	}
	if t.torrent.Info() != nil {
		p.Total, p.Have = t.torrent.Length(), t.torrent.BytesCompleted()+t.store.untaken()
		p.Missing = max(0, p.Total-p.Have)
		p.Pieces, p.Done = t.torrent.NumPieces(), st.PiecesComplete
		if t.want != nil && t.want.partial {
			p.Total, p.Pieces = t.want.total, t.want.count
			p.Have, p.Done = t.want.have(t.torrent)
		}
		p.Phase = Downloading
		if st.BytesReadData.Int64() == 0 && t.hashing() {
			p.Phase = Checking
			p.Checked = st.BytesHashed.Int64()
		}
	}
	if t.full.err != nil {
		p.Waiting = fullMessage
	}
	switch {
	case t.err != nil:
		p.Phase = Broken
	case t.isDone:
		p.Phase = Complete
	}
	for _, s := range t.peers {
		if len(s.paths) == 0 {
			p.Paths = append(p.Paths, PathProgress{Peer: s.peer.String(), Transport: s.transport.Name(), Err: s.err})
		}
		for _, x := range s.paths {
			q := x.progress()
			q.State, q.Failures = x.candidate.State, x.candidate.Failures
			q.Carried, q.CarriedUntil = pathsel.Latest(x.candidate.Slots)
			p.Paths = append(p.Paths, q)
		}
	}
	for _, r := range t.inbound {
		p.Paths = append(p.Paths, r.progress())
	}
	return p
}

// hashing tells whether pieces wait to be checked or are being checked.
func (t *Transfer) hashing() bool {
	for _, r := range t.torrent.PieceStateRuns() {
		if r.Hashing || r.QueuedForHash {
			return true
		}
	}
	return false
}
