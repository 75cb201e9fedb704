package client

import (
	"context"
	"slices"
	"time"

	"braid/pathsel"
	"braid/storage"
)

// Transfer is one torrent in a session. Any goroutine may call its methods. The state belongs to
// the transfer's own goroutine (loop): methods have it do the work, and either wait for that (do)
// or do not (inbox).
type Transfer struct {
	*core
	loop *loop
	stop context.CancelFunc
}

// newTransfer begins a transfer, which is one of x.transfers until it ends.
func newTransfer(x *common, src Source, store storage.Store, opts Options) (*Transfer, error) {
	c := newCore(x, src, store, opts)
	t := &Transfer{core: c, loop: newLoop(c, opts)}
	c.ctx, t.stop = context.WithCancel(x.ctx)
	peers, err := c.firstPeers(opts.Peers)
	if err == nil && !src.IsMagnet() && !opts.Describe {
		err = opts.Selection.Check(src.Layout)
	}
	if err == nil {
		x.transfers.Store(src.InfoHash, t) // before the engine calls back
		err = t.loop.register()
	}
	if err != nil {
		t.stop()
		x.transfers.Delete(src.InfoHash)
		close(t.loop.ended)
		return nil, err
	}
	t.Found(FromEarlier, opts.Known...)
	c.inbox.put(func() { t.loop.connector.addAll(peers, FromUser, false) })
	go t.loop.run()
	return t, nil
}

// Source is what the transfer was made from.
func (t *Transfer) Source() Source { return t.source }

// AddPeers offers the transfer peers that the user names while it runs. See Found.
func (t *Transfer) AddPeers(peers ...Peer) { t.Found(FromUser, peers...) }

// Found offers the transfer peers that somebody else has named. It passes over peers of transports
// that the session lacks, this session itself, and addresses of this host at which nothing listens.
func (t *Transfer) Found(from PeerSource, peers ...Peer) {
	peers = slices.Clone(peers)
	t.inbox.put(func() { t.loop.connector.addAll(peers, from, true) })
}

// Hint names paths to try first, as somebody else suggests, such as a tracker. Newer hints for an
// AS replace older ones. Rates are passed on to the peers that we dial.
func (t *Transfer) Hint(h pathsel.Hints) {
	for _, x := range t.transports {
		x.Hint(h)
	}
	t.inbox.put(func() { t.loop.chooser.hint(h) })
}

// TrackerState notes whether a tracker has answered.
func (t *Transfer) TrackerState(s TrackerState) {
	t.inbox.put(func() { t.loop.checkup.onTracker(s) })
}

// ForgetTrackers drops all tracker states. Call it when the list of trackers changes.
func (t *Transfer) ForgetTrackers() { t.inbox.put(func() { t.loop.checkup.trackers = nil }) }

// Done is closed when all wanted data is on disk and verified, or when the transfer has failed: see
// Progress.
func (t *Transfer) Done() <-chan struct{} { return t.loop.done }

// Ended is closed when Close has ended the transfer.
func (t *Transfer) Ended() <-chan struct{} { return t.loop.ended }

// Progress is the present state; after Close, the last one.
func (t *Transfer) Progress() Progress {
	if p := t.loop.still.Load(); p != nil {
		now := *p
		now.Since = time.Since(t.start)
		return now
	}
	var p Progress
	if !t.do(func() { p = t.loop.progress() }) {
		<-t.loop.ended
		return t.loop.final
	}
	return p
}

// SetPolicy changes the transfer's own policy, as Session.SetPolicy does the session's.
func (t *Transfer) SetPolicy(p pathsel.Policy) {
	t.do(func() {
		t.policy = p
		t.loop.connector.onPolicy()
	})
}

// SetMaxPeers changes the number of peers that are dialled at a time; see Options.MaxPeers.
func (t *Transfer) SetMaxPeers(most int) {
	t.do(func() {
		t.peers.most = most
		t.loop.connector.choosePeers()
	})
}

// Select changes the selection of a download that is neither complete nor failed. It must not want
// files that the previous selection left out, since the store has not looked at them.
func (t *Transfer) Select(s Selection) error {
	var err error
	t.do(func() {
		if t.want == nil {
			t.loop.options.Selection = s
			return
		}
		if err = s.Check(t.want.layout); err != nil || t.isDone {
			return
		}
		t.loop.options.Selection = s
		t.want = newWant(s, t.want.layout)
		t.want.ask(t.torrent)
		t.loop.rarest.forget()
		t.loop.countAgain = time.Time{}
	})
	return err
}

// Close ends the transfer and its connections. The data received so far stays in the store.
func (t *Transfer) Close() {
	t.stop()
	<-t.loop.ended
}
