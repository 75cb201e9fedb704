package transmission

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"braid/node"
	"braid/node/web/foreign"
	"braid/storage"
	"braid/units/lists"
)

// call is a request that is being carried out.
type call struct {
	*reader
	server   *server
	dialect  dialect
	ctx      context.Context
	settings func() node.Settings
}

// methods has all methods, by their names in snake_case.
var methods = map[string]func(*call) (any, error){
	"blocklist_update": func(*call) (any, error) { return nil, lackingError("blocklist") },
	"free_space":       (*call).freeSpace,
	"group_get": func(*call) (any, error) { // braid has no bandwidth groups
		return map[string]any{"group": []any{}}, nil
	},
	"group_set": func(*call) (any, error) {
		return nil, lackingError("bandwidth groups")
	},
	"port_test": func(*call) (any, error) {
		return nil, lackingError("service that tests its port from outside")
	},
	"queue_move_bottom":    func(c *call) (any, error) { return c.moveInQueue(foreign.Bottom) },
	"queue_move_down":      func(c *call) (any, error) { return c.moveInQueue(foreign.Down) },
	"queue_move_top":       func(c *call) (any, error) { return c.moveInQueue(foreign.Top) },
	"queue_move_up":        func(c *call) (any, error) { return c.moveInQueue(foreign.Up) },
	"session_close":        (*call).sessionClose,
	"session_get":          (*call).sessionGet,
	"session_set":          (*call).sessionSet,
	"session_stats":        (*call).sessionStats,
	"torrent_add":          (*call).torrentAdd,
	"torrent_get":          (*call).torrentGet,
	"torrent_reannounce":   func(c *call) (any, error) { return c.each(foreign.Announce) },
	"torrent_remove":       (*call).torrentRemove,
	"torrent_rename_path":  (*call).torrentRenamePath,
	"torrent_set":          (*call).torrentSet,
	"torrent_set_location": (*call).torrentSetLocation,
	"torrent_start":        func(c *call) (any, error) { return c.start(false) },
	"torrent_start_now":    func(c *call) (any, error) { return c.start(true) },
	"torrent_stop":         func(c *call) (any, error) { return c.each(foreign.Stop) },
	"torrent_verify":       func(c *call) (any, error) { return c.each((*node.Torrent).Verify) },
}

// carryOut calls the method of a request. It may return both a result and an error.
func (s *server) carryOut(ctx context.Context, q request) (any, error) {
	if q.err != nil {
		return nil, q.err
	}
	method, ok := methods[q.method]
	if !ok {
		return nil, fail(methodNotFound, "there is no method %q", q.method)
	}
	return method(&call{
		reader:   &reader{args: q.args},
		server:   s,
		dialect:  q.dialect,
		ctx:      ctx,
		settings: sync.OnceValue(s.node.Settings),
	})
}

// lackingError says that braid does not have a feature.
func lackingError(what string) error { return fail(systemError, "braid has no %s", what) }

// torrents returns the torrents that the request names, in the order of the queue. It ignores
// unknown numbers and hashes, as Transmission does.
func (c *call) torrents() ([]*node.Torrent, error) {
	which := c.ids()
	if c.err != nil {
		return nil, c.err
	}
	now := time.Now()
	all := c.server.memory.look(c.server.node.Torrents, now)
	var recent map[int]bool
	if which.recent {
		recent = c.server.memory.recent(c.server.node.Statuses(), now)
	}
	return slices.DeleteFunc(all, func(t *node.Torrent) bool {
		return !which.has(t.Number(), t.InfoHash()) && !recent[t.Number()]
	}), nil
}

// each calls do for all torrents that the request names, and joins the errors.
func (c *call) each(do func(*node.Torrent) error) (any, error) {
	all, err := c.torrents()
	if err != nil {
		return nil, err
	}
	return nil, c.failed(foreign.Each(all, do))
}

// failed gives the code systemError to an error that has no code yet.
func (c *call) failed(err error) error {
	if _, ok := errors.AsType[*failure](err); ok || err == nil {
		return err
	}
	return &failure{systemError, err}
}

func (c *call) start(now bool) (any, error) {
	return c.each(func(t *node.Torrent) error { return foreign.Start(c.ctx, t, now) })
}

func (c *call) torrentRemove() (any, error) {
	data := valueOf(c.flag("delete_local_data"))
	return c.each(func(t *node.Torrent) error { return c.server.node.Remove(t.InfoHash(), data) })
}

func (c *call) torrentSetLocation() (any, error) {
	dir, move := c.neededDirectory("location"), valueOf(c.flag("move"))
	return c.each(func(t *node.Torrent) error { return t.Move(dir, move) })
}

func (c *call) torrentGet() (any, error) {
	names, format, which := c.texts("fields"), valueOf(c.text("format")), c.ids()
	all, err := c.torrents()
	switch {
	case err != nil:
		return nil, err
	case names == nil:
		return nil, fail(invalidParams, `the request must list the "fields" that it wants`)
	}
	wanted := torrentFields.pick(*names)
	out := map[string]any{}
	if format == "table" {
		out["torrents"] = c.rows(wanted, all)
	} else {
		out["torrents"] = lists.Map(all, func(t *node.Torrent) map[string]any {
			return wanted.object(c.dialect, c.view(t))
		})
	}
	if which.recent {
		out["removed"] = c.server.memory.gone()
	}
	return out, nil
}

// rows returns the torrents in the format "table": a list of names, then a list of values for each.
func (c *call) rows(wanted table[*view], all []*node.Torrent) [][]any {
	out := [][]any{lists.Map(wanted, func(f column[*view]) any { return c.dialect.key(f.name) })}
	for _, t := range all {
		v := c.view(t)
		out = append(out, lists.Map(wanted, func(f column[*view]) any { return f.get(v) }))
	}
	return out
}

func (c *call) moveInQueue(how foreign.Direction) (any, error) {
	all, err := c.torrents()
	if err != nil {
		return nil, err
	}
	return nil, c.failed(foreign.Move(c.server.node, all, how, nil))
}

func (c *call) sessionClose() (any, error) {
	go c.server.options.Shutdown()
	return nil, nil
}

// freeSpace returns the free space in a directory.
func (c *call) freeSpace() (any, error) {
	dir := c.neededDirectory("path")
	if c.err != nil {
		return nil, c.err
	}
	free, total, err := storage.DiskSpace(dir)
	if err != nil {
		free, total, err = -1, -1, fail(systemError, "look at %s: %w", dir, err)
	}
	return map[string]any{
		"path":                      dir,
		c.dialect.key("size-bytes"): free,
		"total_size":                total,
	}, err
}

func (c *call) sessionStats() (any, error) {
	n, k := c.server.node, c.dialect.key
	paused := 0
	all := n.Statuses()
	for _, s := range all {
		if s.State == node.Paused || s.State == node.Served || s.State == node.Failed {
			paused++
		}
	}
	now := n.Stats()
	sums := func(t node.Totals) map[string]any {
		return map[string]any{
			k("downloadedBytes"): t.Fetched,
			k("filesAdded"):      t.Added,
			k("secondsActive"):   foreign.Seconds(t.Active),
			k("sessionCount"):    t.Sessions,
			k("uploadedBytes"):   t.Sent,
		}
	}
	return map[string]any{
		k("activeTorrentCount"): len(all) - paused,
		k("pausedTorrentCount"): paused,
		k("torrentCount"):       len(all),
		k("downloadSpeed"):      int64(now.ReadRate / 8),
		k("uploadSpeed"):        int64(now.WriteRate / 8),
		k("current-stats"): sums(node.Totals{
			Sent: now.Sent, Fetched: now.Fetched, Sessions: 1, Active: time.Since(c.server.since),
		}),
		k("cumulative-stats"): sums(now.Ever),
	}, nil
}

// torrentRenamePath renames a file or directory of one torrent. It stays in its directory.
func (c *call) torrentRenamePath() (any, error) {
	all, err := c.torrents()
	from, name := c.text("path"), c.text("name")
	switch {
	case err != nil || c.err != nil:
		return nil, errors.Join(err, c.err)
	case len(all) != 1:
		return nil, fail(invalidParams, "name exactly one torrent: ids means %d", len(all))
	case from == nil || name == nil:
		return nil, fail(invalidParams, "a rename needs path and name")
	case strings.Contains(*name, "/"):
		return nil, fail(invalidParams, `"name" must be a name without a slash`)
	}
	if err := all[0].Rename(*from, path.Join(path.Dir(*from), *name)); err != nil {
		return nil, c.failed(err)
	}
	return map[string]any{"path": *from, "name": *name, "id": all[0].Number()}, nil
}
