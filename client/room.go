package client

import (
	"time"

	"braid/storage"
)

// A full disk pauses a transfer: it asks for no more data, serves what it has, and goes on when there is room.

// roomEvery is how often it looks for room.
const roomEvery = 3 * time.Second

const fullMessage = "the disk is full: make room; the download goes on by itself, and what is there is served meanwhile"

// fullDisk is the state of a pause.
type fullDisk struct {
	store   storage.Store
	err     error // nil: there is room as far as we know
	looking bool
	looked  time.Time
}

// diskFull and room are events: a write did not find room; it was looked for, and there if err is nil.
type (
	diskFull struct{ err error }
	room     struct{ err error }
)

func (t *Transfer) onFull(err error) {
	if t.isDone || t.full.err != nil {
		return
	}
	t.full.err, t.full.looked = err, time.Now()
	t.torrent.DisallowDataDownload()
	t.log.Warn("paused: "+fullMessage, "error", err)
}

// lookForRoom is called every second. To look may take as long as a slow disk does.
func (t *Transfer) lookForRoom() {
	if t.full.err == nil || t.full.looking || time.Since(t.full.looked) < roomEvery {
		return
	}
	t.full.looking = true
	t.lookups.Go(func() { t.inbox.put(room{storage.HasRoom(t.full.store)}) })
}

func (t *Transfer) onRoom(err error) {
	t.full.looking, t.full.looked = false, time.Now()
	if err != nil || t.full.err == nil {
		return
	}
	t.full.err = nil
	t.torrent.AllowDataDownload()
	t.log.Info("there is room on the disk again: the download goes on")
}
