package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/anacrolix/torrent"
	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"

	"braid/pathsel"
	"braid/storage"
)

// maxPeers is the number of address-level peers of one torrent. A swarm is well connected with a tenth of it; a list
// from outside without end would take memory and path lookups without end.
const maxPeers = 256

// maxFinished is how many ended connections that others had opened are kept for the final report.
const maxFinished = 256

// Options of a transfer.
type Options struct {
	Peers []Peer // beside those in the source
}

// Transfer is one torrent in a session.
type Transfer struct {
	session *Session
	source  Source
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

	// The rest belongs to run.
	start     time.Time
	measured  time.Time
	peers     []*peerState // in the order in which they were added
	inbound   []*row
	in, out   meter
	suspects  map[*torrent.PeerConn]int64 // wrong pieces that each connection had a part in, at the last look
	wrong     map[string]int64            // wrong pieces that only this host had a part in, by face
	paused    bool                        // nothing to do for the selector: complete
	isDone    bool
	err       error
	lookupEnd map[Peer]context.CancelFunc
}

// peerState is an address-level peer.
type peerState struct {
	peer      Peer
	transport Transport
	paths     []*pathState // the mapping's order
	banned    bool
	err       error // of the last path lookup
}

// pathState is a path-level peer: what pathsel decides about.
type pathState struct {
	row
	candidate pathsel.Candidate
	offer     *offer // nil: the engine may not dial it
	offered   time.Time
}

// offerPatience is how long the engine may leave an offer lying before it counts as failed. It dials at once unless
// it has enough connections or the torrent needs none; an offer that it has dropped must be made again.
const offerPatience = 45 * time.Second

func newTransfer(s *Session, src Source, store storage.Store, opts Options) (*Transfer, error) {
	t := &Transfer{
		session: s, source: src,
		log:   s.log.With("torrent", src.title()),
		inbox: newInbox(), asks: make(chan chan Progress), broken: make(chan error, 1),
		done: make(chan struct{}), ended: make(chan struct{}),
		start: time.Now(), measured: time.Now(),
		suspects: map[*torrent.PeerConn]int64{}, wrong: map[string]int64{},
		lookupEnd: map[Peer]context.CancelFunc{},
	}
	t.ctx, t.stop = context.WithCancelCause(s.ctx)
	peers := slices.Concat(opts.Peers, src.Peers)
	for _, p := range peers {
		if _, err := s.transportFor(p); err != nil {
			t.stop(nil)
			return nil, err
		}
	}
	var err error
	t.torrent, _, err = s.engine.AddTorrentSpec(&torrent.TorrentSpec{
		AddTorrentOpts: torrent.AddTorrentOpts{
			InfoHash: src.InfoHash, InfoBytes: src.infoBytes,
			Storage: watchedStore{store, t.broken},
		},
		DisplayName: src.Name,
	})
	if err == nil && src.Info != nil && t.torrent.Info() == nil {
		err = errors.New("the engine does not accept its description")
		select {
		case err = <-t.broken:
		default:
		}
	}
	if err != nil {
		t.stop(nil)
		if t.torrent != nil {
			t.torrent.Drop()
		}
		return nil, err
	}
	// A full disk, most likely. The engine would stop asking for data without a word.
	t.torrent.SetOnWriteChunkError(func(err error) {
		select {
		case t.broken <- fmt.Errorf("write data: %w", err):
		default:
		}
	})
	t.inbox.put(newPeers{peers})
	go t.run()
	return t, nil
}

// watchedStore tells the transfer when the store refuses the torrent, which the engine would try again and again.
type watchedStore struct {
	storage.Store
	broken chan<- error
}

func (w watchedStore) OpenTorrent(ctx context.Context, info *metainfo.Info, hash metainfo.Hash) (engine.TorrentImpl, error) {
	t, err := w.Store.OpenTorrent(ctx, info, hash)
	if err != nil {
		select {
		case w.broken <- err:
		default:
		}
	}
	return t, err
}

// Source is what the transfer was made from.
func (t *Transfer) Source() Source { return t.source }

// AddPeers offers peers to the transfer. Those of transports that the session lacks, and this session itself, are
// passed over.
func (t *Transfer) AddPeers(peers ...Peer) { t.inbox.put(newPeers{slices.Clone(peers)}) }

// Done is closed when all data is there and verified, or the transfer has failed: see Progress.
func (t *Transfer) Done() <-chan struct{} { return t.done }

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

// run owns the transfer's state.
func (t *Transfer) run() {
	defer close(t.ended)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	known := t.torrent.GotInfo()
	for {
		select {
		case <-t.ctx.Done():
			t.finish()
			return
		case err := <-t.broken:
			t.fail(err)
		case <-known:
			known = nil
			t.torrent.DownloadAll()
		case <-t.whenComplete():
			t.complete()
		case <-t.inbox.poke:
			for _, e := range t.inbox.take() {
				t.handle(e)
			}
			t.look()
			t.choose()
		case <-tick.C:
			t.measure()
			t.judge()
			t.look()
			t.choose()
		case reply := <-t.asks:
			reply <- t.progress()
		}
	}
}

// whenComplete is nil once it has been seen.
func (t *Transfer) whenComplete() <-chan struct{} {
	if t.isDone {
		return nil
	}
	return t.torrent.Complete().On()
}

func (t *Transfer) complete() {
	t.log.Info("complete", "seconds", time.Since(t.start).Seconds())
	t.isDone, t.paused = true, true
	close(t.done)
}

func (t *Transfer) fail(err error) {
	if t.isDone {
		return
	}
	t.log.Error("transfer failed", "error", err)
	t.isDone, t.paused, t.err = true, true, err
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
	for _, end := range t.lookupEnd {
		end()
	}
	for _, p := range t.peers {
		for _, s := range p.paths {
			t.withdraw(s)
		}
	}
	t.torrent.Drop() // closes the links
	t.session.forget(t)
	t.lookups.Wait()
}

func (t *Transfer) handle(event any) {
	switch e := event.(type) {
	case newPeers:
		for _, p := range e.peers {
			t.addPeer(p)
		}
	case found:
		t.mapPaths(e)
	case dialled:
		t.onDialled(e)
	case accepted:
		if t.err != nil {
			e.link.Close()
			return
		}
		t.inbound = append(t.inbound, &row{peer: e.link.Peer(), transport: e.link.transport, accepted: true, link: e.link})
		t.log.Info("peer connected", "peer", e.link.Peer(), "transport", e.link.transport)
		e.link.watch(t.inbox.touch)
	case greeted:
		for _, p := range t.peers {
			for _, s := range p.paths {
				if s.link != nil && s.link.face.String() == e.addr {
					s.link.greet()
				}
			}
		}
	default:
		panic(fmt.Sprintf("client: unknown event %T", event))
	}
}

func (t *Transfer) addPeer(p Peer) {
	switch tr, err := t.session.transportFor(p); {
	case slices.ContainsFunc(t.peers, func(s *peerState) bool { return s.peer == p }):
	case len(t.peers) >= maxPeers:
		t.log.Debug("peer passed over: there are enough", "peer", p)
	case err != nil:
		t.log.Debug("peer passed over", "peer", p, "error", err)
	case slices.Contains(t.session.Listening(), p):
		t.log.Info("peer passed over: it is this braid", "peer", p)
	default:
		t.peers = append(t.peers, &peerState{peer: p, transport: tr})
		ctx, end := context.WithCancel(t.ctx)
		t.lookupEnd[p] = end
		t.lookups.Go(func() { t.lookPaths(ctx, tr, p) })
	}
}

// lookPaths keeps the paths to a peer up to date.
func (t *Transfer) lookPaths(ctx context.Context, tr Transport, p Peer) {
	changes, cancel := tr.Watch(p)
	defer cancel()
	failures := 0
	for {
		paths, err := tr.Paths(ctx, p)
		if ctx.Err() != nil {
			return
		}
		t.inbox.put(found{p, paths, err})
		var again <-chan time.Time
		if failures++; err == nil {
			failures = 0
		} else {
			again = time.After(pathsel.RetryDelay(failures))
		}
		select {
		case <-ctx.Done():
			return
		case <-changes:
		case <-again:
		}
	}
}

// mapPaths brings the path-level peers of an address-level peer in line with its paths. A connection whose path is
// no longer listed is left alone, behind the others, until it ends by itself.
func (t *Transfer) mapPaths(e found) {
	i := slices.IndexFunc(t.peers, func(s *peerState) bool { return s.peer == e.peer })
	if i < 0 {
		return
	}
	p := t.peers[i]
	if e.err != nil {
		if p.err == nil {
			t.log.Warn("no paths to peer", "peer", p.peer, "error", e.err)
		}
		p.err = e.err
		return
	}
	p.err = nil
	var next []*pathState
	for _, c := range pathsel.Map(p.peer.ID(), e.paths, t.session.maxPaths) {
		j := slices.IndexFunc(p.paths, func(s *pathState) bool { return s.candidate.Key == c.Key })
		if j < 0 {
			next = append(next, &pathState{
				row:       row{peer: p.peer, path: c.Path, transport: p.transport.Name()},
				candidate: c,
			})
			continue
		}
		s := p.paths[j]
		s.candidate.Path, s.path = c.Path, c.Path
		next = append(next, s)
	}
	for _, s := range p.paths {
		if slices.Contains(next, s) {
			continue
		}
		if s.candidate.State == pathsel.Opening {
			t.close(s, "path no longer listed")
		}
		if read, written := s.bytes(); s.link != nil || read+written > 0 {
			next = append(next, s) // also for the final report
		} else {
			t.withdraw(s)
		}
	}
	p.paths = next
}

func (t *Transfer) onDialled(e dialled) {
	for _, p := range t.peers {
		for _, s := range p.paths {
			if s.offer != e.offer {
				continue
			}
			if e.err != nil {
				t.lost(s, e.err)
				return
			}
			if s.link != nil {
				s.settle()
			}
			s.link, s.err = e.link, nil
			s.candidate.State = pathsel.Active
			s.candidate.Handshake = e.link.Measure().Handshake
			t.log.Info("path open", "peer", p.peer, "path", s.candidate.Path.Fingerprint.Short(), "handshake", s.candidate.Handshake)
			e.link.watch(t.inbox.touch)
			return
		}
	}
	if e.link != nil { // the offer was withdrawn meanwhile
		e.link.Close()
	}
}

// lost notes that a path-level peer was refused or lost, and when to try again.
func (t *Transfer) lost(s *pathState, err error) {
	s.err = err
	s.candidate.State = pathsel.Failed
	s.candidate.Failures++
	s.candidate.RetryAt = time.Now().Add(pathsel.RetryDelay(s.candidate.Failures))
	t.log.Info("path lost", "peer", s.candidate.Key.Peer, "path", s.candidate.Path.Fingerprint.Short(),
		"failures", s.candidate.Failures, "error", err)
}

var (
	errEnded    = errors.New("the connection has ended")
	errRefused  = errors.New("the peer ended the connection before its handshake; it may not have this torrent")
	errNoAnswer = errors.New("the engine has not connected")
)

// look finds links that have changed, and offers that lead nowhere.
func (t *Transfer) look() {
	now := time.Now()
	for _, p := range t.peers {
		for _, s := range p.paths {
			t.lookAt(s, now)
			s.candidate.BytesRead, _ = s.bytes()
			s.candidate.RTT = s.seen.RTT
		}
	}
	for _, r := range t.inbound {
		if r.link != nil && r.link.gone.Load() {
			r.path = r.link.Path()
			r.settle()
			t.log.Info("peer disconnected", "peer", r.peer, "bytes_written", r.past.written)
		}
	}
	t.inbound = trimFinished(t.inbound, maxFinished)
}

func (t *Transfer) lookAt(s *pathState, now time.Time) {
	l := s.link
	if l == nil {
		if s.candidate.State == pathsel.Opening && now.Sub(s.offered) > offerPatience {
			t.withdraw(s)
			t.lost(s, errNoAnswer)
		}
		return
	}
	err := errRefused
	if l.greeted.Load() {
		s.candidate.Failures, err = 0, errEnded
	}
	if !l.gone.Load() {
		return
	}
	s.settle()
	// Closed by us, or by a peer that has seen us complete before we have.
	if t.paused || s.candidate.State != pathsel.Active || t.torrent.Info() != nil && t.torrent.BytesMissing() == 0 {
		s.candidate.State = pathsel.Idle
		return
	}
	t.lost(s, err)
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

// choose asks the selector and carries its decisions out.
func (t *Transfer) choose() {
	if t.paused {
		return
	}
	v := pathsel.View{Now: time.Now(), MaxPaths: t.session.maxPaths}
	states := map[pathsel.Key]*pathState{}
	for _, p := range t.peers {
		if p.banned {
			continue
		}
		for _, s := range p.paths {
			v.Candidates = append(v.Candidates, s.candidate)
			states[s.candidate.Key] = s
		}
	}
	for _, d := range t.session.selector.Decide(v) {
		s := states[d.Key]
		if s == nil {
			continue
		}
		t.log.Debug("decision", "action", d.Action, "peer", d.Key.Peer, "path", d.Key.Path.Short(), "reason", d.Reason)
		switch d.Action {
		case pathsel.Open:
			t.open(s)
		case pathsel.Close:
			t.close(s, d.Reason)
		}
	}
}

// open offers the path-level peer to the engine, which dials it now or never: it drops an address that it has dialled,
// so that trying again is offering again.
func (t *Transfer) open(s *pathState) {
	if s.offer == nil {
		i := slices.IndexFunc(t.peers, func(p *peerState) bool { return p.peer == s.peer })
		var o *offer
		var err error
		o, err = t.session.offers.add(t.ctx, t.peers[i].transport, s.peer, s.candidate.Path, func(l *link, err error) {
			t.inbox.put(dialled{o, l, err})
		})
		if err != nil {
			t.lost(s, err)
			return
		}
		s.offer = o
	}
	s.offer.spent.Store(false)
	s.candidate.State, s.offered = pathsel.Opening, time.Now()
	t.torrent.AddPeers([]torrent.PeerInfo{{Addr: s.offer.face, Source: torrent.PeerSourceDirect}})
}

func (t *Transfer) close(s *pathState, reason string) {
	t.log.Info("path closed", "peer", s.candidate.Key.Peer, "path", s.candidate.Key.Path.Short(), "reason", reason)
	t.withdraw(s)
	s.candidate.State = pathsel.Idle
	if s.link != nil {
		s.link.Close()
	}
}

func (t *Transfer) withdraw(s *pathState) {
	if s.offer != nil {
		s.offer.withdraw()
		s.offer = nil
	}
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
	}
	// Rows may be forgotten, which must not look like a counter that runs backwards.
	t.in.update(max(read, t.in.bytes), elapsed)
	t.out.update(max(written, t.out.bytes), elapsed)
}

func (t *Transfer) progress() Progress {
	st := t.torrent.Stats()
	p := Progress{
		Name: t.torrent.Name(), Phase: Metadata, Since: time.Since(t.start),
		Fetched: st.BytesReadUsefulData.Int64(), Sent: st.BytesWrittenData.Int64(),
		ReadRate: t.in.rate, WriteRate: t.out.rate,
		Wasted:  max(0, st.BytesReadData.Int64()-st.BytesReadUsefulData.Int64()),
		Dropped: st.PiecesDirtiedBad.Int64(),
		Err:     t.err,
	}
	if info := t.torrent.Info(); info != nil {
		p.Total, p.Have = t.torrent.Length(), t.torrent.BytesCompleted()
		p.Pieces, p.Done = t.torrent.NumPieces(), st.PiecesComplete
		p.Phase = Downloading
		if st.BytesReadData.Int64() == 0 && t.hashing() {
			p.Phase = Checking
		}
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
