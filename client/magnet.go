package client

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"braid/storage"
)

// describer tells the engine what is in the torrent. For a magnet link it first fetches the info
// dictionary from peers, and finds out whether the store may use the files that exist already.
type describer struct {
	*core
	options  *Options
	fetching *metadata // nil: it is known what is in the torrent
	claiming bool      // the store looks at the files that exist already
}

// fetch begins to fetch the info dictionary.
func (d *describer) fetch() {
	d.fetching = newMetadata(d.source.InfoHash, d.inbox.touch)
	d.fetches.byHash.Store(d.source.InfoHash, d.fetching)
}

// describe tells the engine what is in the torrent.
func (d *describer) describe(info []byte, l storage.Layout) error {
	d.described.Store(&description{info, l})
	if err := d.torrent.SetInfoBytes(info); err != nil {
		return cmp.Or(d.store.refused, err)
	}
	return nil
}

// advance goes on with fetching. An error means that the torrent cannot be downloaded.
func (d *describer) advance() error {
	if d.fetching == nil || d.claiming || d.isDone {
		return nil
	}
	send, liars, info := d.fetching.step(time.Now())
	for _, x := range send {
		_ = x.send() // fails if the peer has disconnected
	}
	for _, p := range liars {
		d.log.Debug("a peer has sent a wrong info dictionary")
		p.Close()
	}
	if info == nil {
		return nil
	}
	_, l, _, err := parseInfo(info)
	if err == nil && !d.options.Describe {
		err = d.options.Selection.Check(l)
	}
	if err != nil {
		return d.onClaimed(nil, l, err)
	}
	// Files that exist already may have to be hashed, which a slow disk makes slow. The engine must
	// not do that itself: it would hold its lock, which everybody else needs.
	d.claiming = true
	d.workers.Go(func() {
		err := storage.Claim(d.ctx, d.store.Store, l, d.source.InfoHash, nil)
		if err == nil && !d.options.Describe {
			if err := storage.KeepTorrent(d.store.Store, d.source.InfoHash, torrentFile(info)); err != nil {
				d.log.Warn("the magnet link cannot be seeded without asking peers again", "error", err)
			}
		}
		d.inbox.put(func() { d.fail(d.onClaimed(info, l, err)) })
	})
	return nil
}

// onClaimed is called when the store has looked at the files of a magnet link. An error means that
// it must not write to them, or that the link is bad.
func (d *describer) onClaimed(info []byte, l storage.Layout, err error) error {
	d.claiming = false
	if d.isDone || d.ctx.Err() != nil {
		return nil
	}
	if err == nil {
		err = d.describe(info, l)
	}
	d.end() // only now: before, the engine itself would take the messages that peers still send
	if err == nil {
		d.tell(len(info))
	}
	d.fetching = nil
	return err
}

// tell tells the peers without a dictionary that we have one now: our handshake with them has said
// that we have none. Two peers that fetch the dictionary at the same time would otherwise hear
// nothing more of each other, and end the connection after 150 s.
func (d *describer) tell(size int) {
	handshake := fmt.Appendf(nil, "d1:md11:ut_metadatai%dee13:metadata_sizei%dee", metadataExtension, size)
	without := d.fetching.without()
	for r := range d.peers.connected() {
		if slices.Contains(without, r.link.addr) {
			r.link.Filter.TellExtended(handshake)
		}
	}
}

// end leaves messages with metadata to the engine from now on.
func (d *describer) end() { d.fetches.byHash.Delete(d.source.InfoHash) }
