package client

import (
	"time"

	"braid/storage"
)

// roomKeeper pauses a transfer while the disk is full: the transfer asks for no data, serves what
// it has, and goes on when there is room.
type roomKeeper struct {
	*core
	rarest  *rarestFirst
	err     error // of the write that found no room; nil: there is room as far as we know
	looking bool
	looked  time.Time
}

// roomEvery is the time between two looks for room.
const roomEvery = 3 * time.Second

// onFull is called when a write has found no room.
func (k *roomKeeper) onFull(err error) {
	if k.isDone || k.err != nil {
		return
	}
	k.err, k.looked = err, time.Now()
	k.torrent.Pause(true)
	k.log.Warn("paused: "+fullMessage, "error", err)
}

// look looks for room in the background, since a slow disk takes its time. It is called every
// second.
func (k *roomKeeper) look() {
	if k.err == nil || k.looking || time.Since(k.looked) < roomEvery {
		return
	}
	k.looking = true
	k.workers.Go(func() {
		err := storage.HasRoom(k.store.Store)
		k.inbox.put(func() { k.onRoom(err) })
	})
}

// onRoom is called with the result of a look; nil: there is room.
func (k *roomKeeper) onRoom(err error) {
	k.looking, k.looked = false, time.Now()
	if err != nil || k.err == nil {
		return
	}
	k.err = nil
	// The engine keeps the pieces that it wants in two sets, an order and a bitmap. During a pause,
	// pieces leave only the order: whenever a peer says that it has some, and when a connection
	// ends. AllowDataDownload puts them back one by one, and the engine panics if it compares the
	// sets in between. Setting a priority during the pause removes the piece from both sets, so
	// that they grow alike.
	k.want.ask(k.torrent)
	k.torrent.Pause(false)
	k.rarest.forget()
	k.log.Info("there is room on the disk again: the download goes on")
}
