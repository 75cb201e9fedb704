package transmission

import (
	"encoding/base64"
	"errors"
	"strings"
	"time"

	"braid/client"
	"braid/node"
	"braid/node/web/foreign"
)

// torrentAdd adds a torrent: a file, its URL, a magnet link, or a bare info hash.
func (c *call) torrentAdd() (any, error) {
	hold, position := c.settings().AddPaused, c.whole("queue_position")
	set(&hold, c.flag("paused"))
	src, err := c.source()
	if err != nil {
		return nil, err
	}
	trackers := node.ParseTrackers(src, c.server.options.Logger)
	o, off := node.Options{Source: src, Trackers: trackers, Paused: hold}, values{}
	if valueOf(c.text("download_dir")) != "" { // otherwise the node's
		set(&o.Storage.Dir, c.directory("download_dir"))
	}
	if c.edit(&o, off, false); c.err != nil {
		return nil, c.failed(c.err)
	}
	t, err := foreign.Add(c.ctx, c.server.node, o, false)
	if errors.Is(err, node.ErrExists) {
		if t, err := c.server.node.Torrent(src.InfoHash.HexString()); err == nil {
			return c.added("torrent-duplicate", t), nil
		}
	}
	if err == nil && position != nil {
		err = t.SetPosition(*position)
	}
	if err != nil {
		return nil, c.failed(err)
	}
	c.server.memory.look(c.server.node.Torrents, time.Now())
	c.server.memory.keep(t.Number(), off)
	return c.added("torrent-added", t), nil
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
	fields := torrentFields.pick([]string{"id", "name", "hash_string"})
	return map[string]any{
		c.dialect.key(how): fields.object(c.dialect, c.view(t)),
	}
}
