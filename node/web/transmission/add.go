package transmission

import (
	"encoding/base64"
	"errors"
	"strings"
	"time"

	"braid/client"
	"braid/node"
	"braid/node/web/foreign"
	"braid/storage"
)

// torrentAdd adds a torrent: a file, its URL, a magnet link, or a bare info hash.
func (c *call) torrentAdd() (any, error) {
	paused, dir, edit := c.flag("paused"), c.text("download_dir"), c.readEdit(false)
	src, err := c.source()
	if err != nil {
		return nil, err
	}
	place := "" // the node's
	if valueOf(dir) != "" {
		if place, err = c.directory(dir); err != nil {
			return nil, err
		}
	}
	hold := c.settings().AddPaused // do not start the torrent
	set(&hold, paused)
	t, err := c.server.node.Add(c.ctx, node.Options{
		Source: src, Trackers: node.ParseTrackers(src, c.server.options.Logger), Paused: true,
		Storage: node.Storage{Kind: storage.KindFile, Dir: place},
	})
	if errors.Is(err, node.ErrExists) {
		if t, err := c.server.node.Torrent(src.InfoHash.HexString()); err == nil {
			return c.added("torrent_duplicate", t), nil
		}
	}
	if err != nil {
		return nil, c.failed(err)
	}
	off := values{}
	err = edit.apply(t, off)
	if err == nil && !hold {
		err = t.Resume(c.ctx)
	}
	if err != nil {
		return nil, c.failed(errors.Join(err, c.server.node.Remove(t.InfoHash(), false)))
	}
	added := c.added("torrent_added", t)
	c.server.memory.keep(t.InfoHash(), off)
	return added, nil
}

// source reads the torrent that a request adds.
func (c *call) source() (client.Source, error) {
	name, meta := valueOf(c.text("filename")), valueOf(c.text("metainfo"))
	cookies := valueOf(c.text("cookies"))
	switch {
	case c.err != nil:
		return client.Source{}, c.err
	case meta != "":
		b, err := base64.StdEncoding.DecodeString(
			strings.NewReplacer("\n", "", "\r", "", " ", "").Replace(meta))
		if err != nil {
			return client.Source{}, fail(unrecognizedInfo, "the metainfo is not in base64: %w", err)
		}
		src, err := client.ParseTorrent(b)
		if err != nil {
			return src, &failure{corruptTorrent, err}
		}
		return src, nil
	case name == "":
		return client.Source{}, fail(invalidParams, "the request names no torrent: filename or metainfo is needed")
	}
	src, err := foreign.Source(c.ctx, name, cookies)
	switch {
	case errors.Is(err, foreign.ErrFetch):
		return src, &failure{httpError, err}
	case err != nil:
		return src, &failure{unrecognizedInfo, err}
	}
	return src, nil
}

// added describes a torrent that was added, or was there already.
func (c *call) added(how string, t *node.Torrent) any {
	_, known := c.server.memory.look(c.server.node.Torrents, time.Now())
	fields := torrentFields.pick([]string{"id", "name", "hash_string"})
	return map[string]any{
		c.dialect.key(how, kebab): fields.object(c.dialect, c.view(selected{t, known[t.InfoHash()]})),
	}
}
