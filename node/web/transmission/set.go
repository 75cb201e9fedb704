package transmission

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"braid/client"
	"braid/node"
	"braid/node/web/foreign"
	"braid/tracker"
)

// maxTrackers bounds the trackers of a torrent in a request.
const maxTrackers = 256

// torrentSet changes torrents. Each torrent gets all changes or, if one is impossible, none.
func (c *call) torrentSet() (any, error) {
	location, edit := c.text("location"), c.readEdit(true)
	dir := ""
	if location != nil {
		var err error
		if dir, err = c.directory(location); err != nil {
			return nil, err
		}
	}
	if valueOf(c.text("group")) != "" {
		return nil, lackingError("bandwidth groups")
	}
	if valueOf(c.whole("sequential_download_from_piece")) != 0 {
		return nil, lackingError("sequential download from another piece than the first")
	}
	if c.err != nil {
		return nil, c.err
	}
	return c.each(func(t *node.Torrent) error {
		off := c.server.memory.off(t.InfoHash())
		if err := edit.apply(t, off); err != nil {
			return err
		}
		c.server.memory.keep(t.InfoHash(), off)
		if dir != "" {
			return t.Move(dir, true)
		}
		return nil
	})
}

// edit is what torrent_set and torrent_add change.
type edit struct {
	// options changes options, and the values of limits that are off.
	options  func(o *node.Options, off values) error
	position *int // in the queue
}

func (e edit) apply(t *node.Torrent, off values) error {
	err := t.Change(func(o *node.Options) error { return e.options(o, off) })
	if err == nil && e.position != nil {
		err = t.SetPosition(*e.position)
	}
	return err
}

// limitEdit has the arguments that change a limit. nil: the client has not sent the argument.
type limitEdit struct {
	value *float64
	on    *bool
}

// modeEdit has the arguments that change a seeding limit.
type modeEdit struct {
	value *float64
	mode  *int
}

// readEdit reads the arguments. If all is true, an empty list of files means all files.
func (c *call) readEdit(all bool) edit {
	labels, sequential := c.texts("labels"), c.flag("sequential_download")
	honours, peers := c.flag("honors_session_limits"), c.whole("peer_limit")
	priority := (*node.Priority)(c.within("bandwidth_priority", -1, 1, "-1, 0 or 1"))
	download := limitEdit{c.real("download_limit"), c.flag("download_limited")}
	upload := limitEdit{c.real("upload_limit"), c.flag("upload_limited")}
	ratio := c.readMode("seed_ratio_limit", "seed_ratio_mode")
	idle := c.readMode("seed_idle_limit", "seed_idle_mode")
	files, trackers := c.readFiles(all), c.readTrackers()
	options := func(o *node.Options, off values) (err error) {
		set(&o.Labels, labels)
		set(&o.Selection.Sequential, sequential)
		set(&o.PeerLimit, peers)
		set(&o.Priority, priority)
		if honours != nil {
			o.IgnoreGlobal = !*honours
		}
		o.Goal.Ratio = ratio.of("seed_ratio_limit", o.Goal.Ratio, off)
		o.Goal.Idle = foreign.Minutes(idle.of("seed_idle_limit", o.Goal.Idle.Minutes(), off))
		if trackers.any() {
			if o.Trackers, err = trackers.of(*o); err != nil {
				return err
			}
		}
		return errors.Join(
			download.apply("download_limit", &o.Rates.Download, &o.Rates.DownloadOff),
			upload.apply("upload_limit", &o.Rates.Upload, &o.Rates.UploadOff),
			changeFiles(o, files))
	}
	return edit{options, c.whole("queue_position")}
}

func (c *call) readMode(value, mode string) modeEdit {
	return modeEdit{c.real(value), c.within(mode, limitGlobal, limitNone, "0, 1 or 2")}
}

func (e limitEdit) any() bool { return e.value != nil || e.on != nil }

// apply changes a rate in bit/s and its switch. To a node, a rate of 0 means no limit.
func (e limitEdit) apply(name string, rate *int64, off *bool) error {
	on := *rate > 0 && !*off
	if e.value != nil {
		setKilobytes(rate, *e.value)
	}
	set(&on, e.on)
	if e.any() {
		*off = !on
	}
	switch {
	case *rate < 0:
		return fail(invalidParams, "%q must be at least 0", name)
	case on && *rate == 0:
		return fail(invalidParams, "%q: a limit of 0 kB/s is not possible; stop the torrents instead", name)
	}
	return nil
}

// of returns a part of a torrent's goal after the change. If the torrent has no limit of its own, a
// value that the client has sent is remembered in off.
func (e modeEdit) of(name string, now float64, off values) float64 {
	l := seedLimitOf(now, 0, off.number(name))
	set(&l.value, e.value)
	set(&l.mode, e.mode)
	if l.mode == limitOwn && (l.value > 0 || e.value != nil) {
		return max(l.value, 1e-9) // 0 is at once; to a node, 0 is the global limit
	}
	if e.value != nil || e.mode != nil {
		off[name] = l.value
	}
	if l.mode == limitGlobal {
		return 0
	}
	return -1
}

// fileEdit changes the priorities of files.
type fileEdit struct {
	files []int // indices from 0; none: all files
	to    func(now client.Priority) client.Priority
}

// readFiles reads the edits in the order in which they are carried out. To Transmission, a file has
// a priority even if it is not wanted. To braid, such a file has the priority client.Skip. So the
// priorities high, normal and low apply only to wanted files.
func (c *call) readFiles(all bool) (out []fileEdit) {
	ifWanted := func(to client.Priority) func(client.Priority) client.Priority {
		return func(now client.Priority) client.Priority {
			if now == client.Skip {
				return now
			}
			return to
		}
	}
	for _, x := range []struct {
		name string
		to   func(client.Priority) client.Priority
	}{
		{"files_unwanted", func(client.Priority) client.Priority { return client.Skip }},
		{"files_wanted", func(now client.Priority) client.Priority {
			return cmp.Or(now, client.Normal)
		}},
		{"priority_high", ifWanted(client.High)},
		{"priority_normal", ifWanted(client.Normal)},
		{"priority_low", ifWanted(client.Low)},
	} {
		if list := c.wholes(x.name); list != nil && (all || len(*list) > 0) {
			out = append(out, fileEdit{*list, x.to})
		}
	}
	return out
}

// changeFiles changes the priorities of files.
func changeFiles(o *node.Options, edits []fileEdit) error {
	before := o.Selection.Files(o.Source.Layout)
	now := slices.Clone(before)
	for _, e := range edits {
		if len(e.files) == 0 {
			for i := range now {
				now[i] = e.to(now[i])
			}
		}
		for _, i := range e.files {
			if i < 0 || i >= len(now) {
				return fail(fileOutOfRange, "there is no file %d: the torrent has %d", i, len(now))
			}
			now[i] = e.to(now[i])
		}
	}
	if slices.Equal(now, before) {
		return nil
	}
	return o.SetFiles(maps.Collect(slices.All(now)))
}

// trackerEdit has the arguments that change the trackers.
type trackerEdit struct {
	list    *string // all announce URLs: one on each line, an empty line between tiers
	add     *[]string
	remove  *[]int
	replace map[int]string
}

func (e trackerEdit) any() bool {
	return e.list != nil || e.add != nil || e.remove != nil || e.replace != nil
}

func (c *call) readTrackers() trackerEdit {
	return trackerEdit{
		list:    c.text("tracker_list"),
		add:     c.texts("tracker_add"),
		remove:  c.wholes("tracker_remove"),
		replace: c.replacements(),
	}
}

// replacements reads numbers of trackers and their new URLs. Clients send either one list, number,
// URL, number, URL, or a list of pairs.
func (c *call) replacements() map[int]string {
	raw, ok := c.args["tracker_replace"]
	if !ok {
		return nil
	}
	var flat, all []json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		c.wrong("tracker_replace", "a list")
		return nil
	}
	for _, x := range all {
		if pair, ok := parseAs[[]json.RawMessage](x); ok {
			flat = append(flat, pair...)
		} else {
			flat = append(flat, x)
		}
	}
	out := map[int]string{}
	for pair := range slices.Chunk(flat, 2) {
		id, isID := parseWhole(pair[0])
		text, isText := parseAs[string](pair[len(pair)-1]) // a number without a URL is no text
		if !isID || !isText {
			c.wrong("tracker_replace", "a list of tracker numbers and URLs")
			return nil
		}
		out[id] = text
	}
	return out
}

// of returns the tiers of trackers after the change. Trackers are numbered through all tiers, from
// 0.
func (e trackerEdit) of(o node.Options) ([][]tracker.URL, error) {
	if e.list != nil {
		return parseTiers(o, splitTiers(*e.list))
	}
	var tiers [][]string
	id := 0
	for _, tier := range o.Trackers {
		var urls []string
		for _, u := range tier {
			text, replaced := e.replace[id]
			if !replaced {
				text = u.String()
			}
			if !slices.Contains(valueOf(e.remove), id) {
				urls = append(urls, text)
			}
			id++
		}
		tiers = append(tiers, urls)
	}
	for _, named := range slices.Concat(valueOf(e.remove), slices.Collect(maps.Keys(e.replace))) {
		if named < 0 || named >= id {
			return nil, fail(setAnnounceList, "there is no tracker %d: the torrent has %d",
				named, id)
		}
	}
	for _, url := range valueOf(e.add) {
		tiers = append(tiers, []string{url})
	}
	return parseTiers(o, tiers)
}

func splitTiers(list string) (tiers [][]string) {
	var tier []string
	for line := range strings.Lines(list + "\n\n") {
		if line = strings.TrimSpace(line); line != "" {
			tier = append(tier, line)
		} else if tier != nil {
			tiers, tier = append(tiers, tier), nil
		}
	}
	return tiers
}

// parseTiers reads the announce URLs of a torrent, each of which may be there once.
func parseTiers(o node.Options, tiers [][]string) ([][]tracker.URL, error) {
	out, seen := [][]tracker.URL{}, map[string]bool{}
	for _, tier := range tiers {
		var urls []tracker.URL
		for _, text := range tier {
			u, err := o.Tracker(text)
			if err != nil {
				return nil, &failure{invalidTrackers, err}
			}
			if seen[u.String()] {
				return nil, fail(setAnnounceList, "the tracker %s is there already", u)
			}
			seen[u.String()] = true
			urls = append(urls, u)
		}
		if len(urls) > 0 {
			out = append(out, urls)
		}
	}
	if len(seen) > maxTrackers {
		return nil, fail(invalidTrackers, "more than the %d trackers that are accepted",
			maxTrackers)
	}
	return out, nil
}
