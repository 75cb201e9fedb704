package qbittorrent

import (
	"net/http"
	"slices"
	"strings"

	"braid/node"
)

// rename gives a torrent another name for users. No file is renamed, as in qBittorrent.
func (c *call) rename() error {
	name := strings.TrimSpace(c.needed("name"))
	t := c.torrent()
	switch {
	case c.err != nil:
		return c.err
	case name == "":
		return fail(http.StatusConflict, "a torrent needs a name")
	}
	return setOptions(t, func(o *node.Options) { o.Name = name })
}

// renamePath gives a file, or a directory with its files, another path below that of the torrent.
func (c *call) renamePath(directory bool) error {
	from, to := c.needed("oldPath"), c.needed("newPath")
	t := c.torrent()
	if c.err != nil {
		return c.err
	}
	isNamed := func(f node.File) bool { return f.Path == from }
	if isFile := slices.ContainsFunc(t.Files(), isNamed); isFile == directory {
		return fail(http.StatusConflict, "%q is no such file or directory of the torrent", from)
	}
	return t.Rename(from, to)
}
