package client

import (
	"cmp"
	"fmt"
	"time"

	"braid/storage"
)

// describer tells the engine what is in the torrent. For a magnet link it first fetches the info
// dictionary from peers, and finds out whether the store may use the files that exist already.
type describer struct {
	*core
	options  *Options
	claiming bool // the store looks at the files that exist already
}

func (d *describer) describe(s Source) error {
	d.described.Store(&s)
	if err := d.torrent.SetInfoBytes(s.infoBytes); err != nil {
		return cmp.Or(d.store.refused, err)
	}
	return nil
}

// advance goes on with fetching. An error means that the torrent cannot be downloaded.
func (d *describer) advance() error {
	fetching := d.fetching.Load()
	if fetching == nil || d.claiming || d.isDone {
		return nil
	}
	send, liars, info := fetching.step(time.Now())
	for _, x := range send {
		x.send()
	}
	for _, p := range liars {
		d.log.Debug("a peer has sent a wrong info dictionary")
		p.Close()
	}
	if info == nil {
		return nil
	}
	known, err := d.source.withInfo(info)
	if err == nil && !d.options.Describe {
		err = d.options.Selection.Check(known.Layout)
	}
	if err != nil {
		return d.onClaimed(known, err)
	}
	// Files that exist already may have to be hashed, which a slow disk makes slow. The engine must
	// not do that itself: it would hold its lock, which everybody else needs.
	d.claiming = true
	d.workers.Go(func() {
		err := storage.Claim(d.ctx, d.store.Store, known.Layout, known.InfoHash, nil)
		if err == nil && !d.options.Describe {
			e := storage.KeepTorrent(d.store.Store, known.InfoHash, known.Torrent())
			if e != nil {
				d.log.Warn("the magnet link cannot be seeded without asking peers again",
					"error", e)
			}
		}
		d.inbox.put(func() { d.fail(d.onClaimed(known, err)) })
	})
	return nil
}

// onClaimed is called when the store has looked at the files of a magnet link. An error means that
// it must not write to them, or that the link is bad.
func (d *describer) onClaimed(known Source, err error) error {
	d.claiming = false
	if d.isDone || d.ctx.Err() != nil {
		return nil
	}
	if err == nil {
		err = d.describe(known)
	}
	// Only now: before, the engine itself would take the messages that peers still send.
	d.fetching.Store(nil)
	if err == nil {
		d.tell(len(known.infoBytes))
	}
	return err
}

// onMessage takes a message of the metadata extension that came while the description was fetched.
// Every request needs an answer: a peer may ask nothing more until then, and wire.Filter reads no
// further from a peer whose requests are not answered.
func (d *describer) onMessage(x metadataMessage, data []byte) {
	if x.kind == metadataRequest {
		metadataMessage{x.peer, metadataReject, x.piece}.send()
	} else if f := d.fetching.Load(); f != nil {
		f.received(x, data, time.Now())
	}
}

// tell tells the peers without a dictionary that we have one now: our handshake with them has said
// that we have none. Two peers that fetch the dictionary at the same time would otherwise hear
// nothing more of each other, and end the connection after 150 s.
func (d *describer) tell(size int) {
	handshake := fmt.Appendf(nil,
		"d1:md11:ut_metadatai%dee13:metadata_sizei%dee", metadataExtension, size)
	for r := range d.peers.connected() {
		if r.link.gauge.Load().undescribed.Load() {
			r.link.Filter.TellExtended(handshake)
		}
	}
}
