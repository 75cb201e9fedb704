package qbittorrent

import (
	"cmp"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"braid/client"
	"braid/node"
	"braid/node/web/foreign"
	"braid/tracker"
	"braid/units/lists"
)

// answeredWrites are the writes with an answer other than success or an error.
var answeredWrites = map[string]func(*call) (any, error){
	"torrents/add":      (*call).add,
	"torrents/addPeers": (*call).addPeers,
}

// writes are the calls that change something. Only POST reaches them.
var writes = map[string]func(*call) error{
	"app/setPreferences":          (*call).setPreferences,
	"app/shutdown":                (*call).shutdown,
	"transfer/setSpeedLimitsMode": (*call).setSpeedLimitsMode,
	"transfer/toggleSpeedLimitsMode": func(c *call) error {
		_, on := c.node.Settings().RatesAt(time.Now())
		return c.alternative(!on)
	},
	"transfer/setDownloadLimit":         func(c *call) error { return c.setRate(true) },
	"transfer/setUploadLimit":           func(c *call) error { return c.setRate(false) },
	"torrents/stop":                     (*call).stop,
	"torrents/pause":                    (*call).stop, // before version 5
	"torrents/start":                    (*call).start,
	"torrents/resume":                   (*call).start,
	"torrents/delete":                   (*call).remove,
	"torrents/recheck":                  func(c *call) error { return c.each((*node.Torrent).Verify) },
	"torrents/reannounce":               func(c *call) error { return c.each(foreign.Announce) },
	"torrents/addTrackers":              (*call).addTrackers,
	"torrents/editTracker":              (*call).editTracker,
	"torrents/removeTrackers":           (*call).removeTrackers,
	"torrents/increasePrio":             func(c *call) error { return c.move(foreign.Up) },
	"torrents/decreasePrio":             func(c *call) error { return c.move(foreign.Down) },
	"torrents/topPrio":                  func(c *call) error { return c.move(foreign.Top) },
	"torrents/bottomPrio":               func(c *call) error { return c.move(foreign.Bottom) },
	"torrents/filePrio":                 (*call).filePriority,
	"torrents/setDownloadLimit":         func(c *call) error { return c.setTorrentRate(true) },
	"torrents/setUploadLimit":           func(c *call) error { return c.setTorrentRate(false) },
	"torrents/setShareLimits":           (*call).setShareLimits,
	"torrents/setLocation":              (*call).setLocation,
	"torrents/setSavePath":              (*call).setLocation,
	"torrents/rename":                   (*call).rename,
	"torrents/renameFile":               func(c *call) error { return c.renamePath(false) },
	"torrents/renameFolder":             func(c *call) error { return c.renamePath(true) },
	"torrents/setCategory":              (*call).setCategory,
	"torrents/createCategory":           (*call).createCategory,
	"torrents/editCategory":             (*call).editCategory,
	"torrents/removeCategories":         (*call).removeCategories,
	"torrents/addTags":                  func(c *call) error { return c.putTags(with) },
	"torrents/setTags":                  func(c *call) error { return c.putTags(only) },
	"torrents/removeTags":               (*call).removeTags,
	"torrents/createTags":               func(c *call) error { return c.keepTags(c.tagNames()) },
	"torrents/deleteTags":               (*call).deleteTags,
	"torrents/setAutoManagement":        (*call).setAutoManagement,
	"torrents/toggleFirstLastPiecePrio": lacks("priority for first and last pieces"),
	"torrents/toggleSequentialDownload": (*call).toggleSequential,
	"torrents/setForceStart":            (*call).setForceStart,
	"torrents/setSuperSeeding":          (*call).setSuperSeeding,
	"torrents/setDownloadPath":          lacks("directory for the incomplete data of one torrent"),
}

// lacks returns a write that braid always refuses.
func lacks(what string) func(*call) error {
	return func(*call) error { return lacking(what) }
}

func (c *call) setAutoManagement() error { return c.refuseOn("enable", "automatic management") }

// each calls do for all torrents that the arguments name.
func (c *call) each(do func(*node.Torrent) error) error {
	all := c.torrents()
	if c.err != nil {
		return c.err
	}
	return foreign.Each(all, do)
}

// set changes options of all torrents that the arguments name.
func (c *call) set(change func(*node.Options)) error {
	return c.each(func(t *node.Torrent) error { return setOptions(t, change) })
}

// setOptions changes options of one torrent.
func setOptions(t *node.Torrent, change func(*node.Options)) error {
	return t.Change(func(o *node.Options) error {
		change(o)
		return nil
	})
}

// refuseOn returns an error if the client switches on a feature that braid does not have.
func (c *call) refuseOn(name, what string) error {
	if c.on(name) {
		return lacking(what)
	}
	return nil
}

// refuse sets an error if an argument has a value that stands for something that braid does not
// have. Unknown values mean the default, as in qBittorrent: Flood sends "undefined".
func (c *call) refuse(name, what string, values ...string) {
	if slices.Contains(values, c.text(name)) {
		c.wrong("braid has no %s", what)
	}
}

func (c *call) stop() error { return c.each(foreign.Stop) }

func (c *call) start() error {
	return c.each(func(t *node.Torrent) error {
		return foreign.Start(c.r.Context(), t, false)
	})
}

// setForceStart starts torrents without waiting in the queue, or puts them into the queue again.
func (c *call) setForceStart() error {
	force := c.on("value")
	return c.each(func(t *node.Torrent) error {
		forced := t.Status().Forced
		switch {
		case force && !forced:
			return t.ResumeNow(c.r.Context())
		case !force && forced && t.State() != node.Paused:
			if err := t.Pause(); err != nil {
				return err
			}
			return t.Resume(c.r.Context())
		}
		return nil
	})
}

func (c *call) remove() error {
	c.needed("deleteFiles")
	data := c.on("deleteFiles")
	return c.each(func(t *node.Torrent) error { return c.node.Remove(t.InfoHash(), data) })
}

func (c *call) move(how foreign.Direction) error {
	all := c.torrents()
	if c.err != nil {
		return c.err
	}
	complete := map[string]bool{}
	for _, s := range c.node.Statuses() {
		complete[s.InfoHash] = foreign.IsComplete(s)
	}
	return foreign.Move(c.node, all, how, complete)
}

func (c *call) toggleSequential() error {
	return c.set(func(o *node.Options) { o.Selection.Sequential = !o.Selection.Sequential })
}

func (c *call) setSuperSeeding() error {
	mode := client.NoSuperSeeding
	if c.on("value") {
		mode = client.AlwaysSuperSeeding
	}
	return c.set(func(o *node.Options) { o.SuperSeeding = mode })
}

// withRate returns rates with another limit, in bytes per second; 0 or less is none.
func withRate(old node.Rates, down bool, bytes int) node.Rates {
	r, bits := old, min(int64(max(bytes, 0)), math.MaxInt64/8)*8
	if down {
		r.Download, r.DownloadOff = bits, false
	} else {
		r.Upload, r.UploadOff = bits, false
	}
	return r.Keeping(old)
}

func (c *call) setTorrentRate(down bool) error {
	c.needed("limit")
	limit := c.whole("limit", 0)
	return c.set(func(o *node.Options) { o.Rates = withRate(o.Rates, down, limit) })
}

// setRate changes the limit of all torrents together that holds now.
func (c *call) setRate(down bool) error {
	c.needed("limit")
	limit := c.whole("limit", 0)
	return c.node.Change(func(s *node.Settings) error {
		to := &s.Rates
		if _, alternative := s.RatesAt(time.Now()); alternative {
			to = &s.Alternative.Rates
		}
		*to = withRate(*to, down, limit)
		return c.err
	})
}

func (c *call) setSpeedLimitsMode() error {
	c.needed("mode")
	mode := c.whole("mode", 0)
	if mode < 0 || mode > 1 {
		c.wrong("mode: want 0 or 1")
	}
	return c.alternative(mode == 1)
}

func (c *call) alternative(on bool) error {
	return c.node.Change(func(s *node.Settings) error {
		foreign.Switch(&s.Alternative, on)
		return c.err
	})
}

// setShareLimits changes the seeding goals of torrents. -2 is the global limit, and -1 no limit.
func (c *call) setShareLimits() error {
	for _, name := range []string{"ratioLimit", "seedingTimeLimit", "inactiveSeedingTimeLimit"} {
		c.needed(name)
	}
	goal := c.goal()
	return c.set(func(o *node.Options) { o.Goal = goal })
}

// goal reads the share limits. An argument that is missing means the global limit.
func (c *call) goal() node.Goal {
	c.refuse("shareLimitAction", "other action at a share limit than Stop",
		"Remove", "RemoveWithContent", "EnableSuperSeeding", "1", "2", "3")
	ratio := c.real("ratioLimit", globalLimit)
	part := func(name string) time.Duration {
		m := c.whole(name, globalLimit)
		if m == globalLimit {
			return 0
		}
		d := foreign.Minutes(float64(max(m, noLimit)))
		return cmp.Or(d, 1) // 0 is at once; to a node, 0 is the global limit
	}
	g := node.Goal{Time: part("seedingTimeLimit"), Idle: part("inactiveSeedingTimeLimit")}
	switch {
	case ratio == globalLimit:
	case ratio < 0:
		g.Ratio = -1
	default:
		g.Ratio = max(ratio, 1e-9)
	}
	return g
}

// directory reads an absolute path.
func (c *call) directory(name string) string {
	dir := c.text(name)
	if !filepath.IsAbs(dir) {
		c.wrong("%s: %q is not an absolute path", name, dir)
	}
	return filepath.Clean(dir)
}

func (c *call) setLocation() error {
	if !c.has("hashes") && c.has("id") { // setSavePath names them so
		c.r.Form.Set("hashes", c.text("id"))
	}
	name := "location"
	if !c.has(name) {
		name = "path"
	}
	dir := c.directory(name)
	return c.each(func(t *node.Torrent) error { return t.Move(dir, true) })
}

// levels maps qBittorrent's priorities of files to braid's.
var levels = map[int]client.Priority{
	skipped: client.Skip,
	normal:  client.Normal,
	high:    client.High,
	maximal: client.High,
}

func (c *call) filePriority() error {
	ids, p := lists.Split(c.needed("id"), "|"), c.whole("priority", -1)
	t := c.torrent()
	if c.err != nil {
		return c.err
	}
	to, ok := levels[p]
	if !ok {
		return fail(http.StatusBadRequest, "priority %d: want 0, 1, 6 or 7", p)
	}
	files, n := map[int]client.Priority{}, len(t.Files())
	for _, id := range ids {
		i, err := strconv.Atoi(id)
		if err != nil {
			return fail(http.StatusBadRequest, "%q is no number of a file", id)
		}
		if i < 0 || i >= n {
			return fail(http.StatusConflict, "there is no file %d: the torrent has %d", i, n)
		}
		files[i] = to
	}
	return t.Change(func(o *node.Options) error { return o.SetFiles(files) })
}

// addTrackers adds announce URLs, one on each line. Each is a tier of its own. A tracker that the
// torrent has already stays in its tier.
func (c *call) addTrackers() error {
	urls := lists.Split(c.needed("urls"), "\n")
	if len(urls) > maxSources {
		c.wrong("more than %d trackers in one call", maxSources)
	}
	all := c.torrentsOfHash()
	if c.err != nil {
		return c.err
	}
	add := func(o *node.Options) error {
		tiers := slices.Clone(o.Trackers)
		for _, text := range urls {
			u, err := node.Options{Trackers: tiers}.Tracker(text)
			if err != nil {
				return fail(http.StatusBadRequest, "%v", err)
			}
			if !slices.Contains(slices.Concat(tiers...), u) {
				tiers = append(tiers, []tracker.URL{u})
			}
		}
		o.Trackers = tiers
		return nil
	}
	return foreign.Each(all, func(t *node.Torrent) error { return t.Change(add) })
}

func (c *call) editTracker() error {
	from := c.text("origUrl")
	if !c.has("origUrl") {
		from = c.needed("url") // since API 2.12
	}
	to, t := c.needed("newUrl"), c.torrent()
	if c.err != nil {
		return c.err
	}
	if from == to {
		return nil
	}
	replacement, err := tracker.ParseURL(to)
	if err != nil {
		return fail(http.StatusBadRequest, "%v", err)
	}
	return t.Change(func(o *node.Options) (err error) {
		found := false
		o.Trackers = foreign.MapTrackers(o.Trackers, func(u tracker.URL) (tracker.URL, bool) {
			switch u.String() {
			case replacement.String():
				err = fail(http.StatusConflict, "the tracker %s is there already", u)
			case from:
				found = true
				return replacement.OfUser(), true
			}
			return u, true
		})
		if err == nil && !found {
			err = fail(http.StatusConflict, "the torrent has no tracker %s", from)
		}
		return err
	})
}

func (c *call) removeTrackers() error {
	urls, all := lists.Split(c.needed("urls"), "|"), c.torrentsOfHash()
	if c.err != nil {
		return c.err
	}
	for _, text := range urls { // VueTorrent escapes each of them, since they may contain bars
		if plain, err := url.PathUnescape(text); err == nil {
			urls = append(urls, plain)
		}
	}
	return foreign.Each(all, func(t *node.Torrent) error {
		return t.Change(func(o *node.Options) error {
			found := false
			o.Trackers = foreign.MapTrackers(o.Trackers, func(u tracker.URL) (tracker.URL, bool) {
				gone := slices.Contains(urls, u.String())
				found = found || gone
				return u, !gone
			})
			if !found && len(all) == 1 {
				return fail(http.StatusConflict, "the torrent has none of these trackers")
			}
			return nil
		})
	})
}

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

func (c *call) addPeers() (any, error) {
	var peers []client.Peer
	named := lists.Split(c.needed("peers"), "|")
	if len(named) > maxSources {
		c.wrong("more than %d peers in one call", maxSources)
	}
	for _, text := range named {
		if p, err := client.ParsePeer(text); err == nil {
			peers = append(peers, p)
		}
	}
	all := c.torrents()
	if c.err != nil {
		return nil, c.err
	}
	if len(peers) == 0 {
		return nil, fail(http.StatusBadRequest, "none of the peers is an address")
	}
	out := map[string]any{}
	for _, t := range all {
		added := 0
		if t.State() == node.Running { // others ignore peers
			t.AddPeers(peers...)
			added = len(peers)
		}
		out[t.InfoHash()] = map[string]int{"added": added, "failed": len(named) - added}
	}
	return out, nil
}

func (c *call) shutdown() error {
	go c.options.Shutdown()
	return nil
}
