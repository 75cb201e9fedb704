package transmission

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"braid/client"
	"braid/node"
	"braid/node/web/foreign"
	"braid/tracker"
	"braid/units/lists"
)

// torrentSet changes torrents. Each torrent gets all changes or, if one is impossible, none.
func (c *call) torrentSet() (any, error) {
	dir, position := c.directory("location"), c.whole("queue_position")
	if valueOf(c.text("group")) != "" {
		return nil, lackingError("bandwidth groups")
	}
	if valueOf(c.whole("sequential_download_from_piece")) != 0 {
		return nil, lackingError("sequential download from another piece than the first")
	}
	return c.each(func(t *node.Torrent) error {
		off := c.server.memory.off(t.Number())
		if err := t.Change(func(o *node.Options) error {
			r := &reader{args: c.args} // several torrents are changed at the same time
			r.edit(o, off, true)
			return r.err
		}); err != nil {
			return err
		}
		c.server.memory.keep(t.Number(), off)
		if position != nil {
			if err := t.SetPosition(*position); err != nil {
				return err
			}
		}
		if dir != nil {
			return t.Move(*dir, true)
		}
		return nil
	})
}

// edit changes the options that torrent_set and torrent_add name, and the values of limits that are
// off. If all is true, an empty list of files means all files.
func (r *reader) edit(o *node.Options, off values, all bool) {
	set(&o.Labels, r.texts("labels"))
	set(&o.Selection.Sequential, r.flag("sequential_download"))
	set(&o.PeerLimit, r.whole("peer_limit"))
	set(&o.Priority, (*node.Priority)(r.within("bandwidth_priority", -1, 1, "-1, 0 or 1")))
	if honours := r.flag("honors_session_limits"); honours != nil {
		o.IgnoreGlobal = !*honours
	}
	r.limit("download_limit", "download_limited", &o.Rates.Download, &o.Rates.DownloadOff)
	r.limit("upload_limit", "upload_limited", &o.Rates.Upload, &o.Rates.UploadOff)
	o.Goal.Ratio = r.seedLimit("seed_ratio_limit", "seed_ratio_mode", o.Goal.Ratio, off)
	idle := r.seedLimit("seed_idle_limit", "seed_idle_mode", o.Goal.Idle.Minutes(), off)
	o.Goal.Idle = foreign.Minutes(idle)
	r.trackers(o)
	r.files(o, all)
}

// limit changes a rate in bit/s and its switch. To a node, a rate of 0 means no limit.
func (r *reader) limit(value, on string, rate *int64, off *bool) {
	number, is := r.real(value), r.flag(on)
	if number == nil && is == nil {
		return
	}
	holds := *rate > 0 && !*off
	if number != nil {
		setKilobytes(rate, *number)
	}
	set(&holds, is)
	*off = !holds
	switch {
	case *rate < 0:
		r.wrong(value, "at least 0")
	case holds && *rate == 0:
		r.note(fail(invalidParams,
			"%q: a limit of 0 kB/s is not possible; stop the torrents instead", canonical(value)))
	}
}

// seedLimit returns a part of a torrent's goal after the change. If the torrent has no limit of its
// own, a value that the client has sent is remembered in off.
func (r *reader) seedLimit(value, mode string, now float64, off values) float64 {
	number, how := r.real(value), r.within(mode, limitGlobal, limitNone, "0, 1 or 2")
	l := seedLimitOf(now, 0, off.number(value))
	set(&l.value, number)
	set(&l.mode, how)
	if l.mode == limitOwn && (l.value > 0 || number != nil) {
		return max(l.value, 1e-9) // 0 is at once; to a node, 0 is the global limit
	}
	if number != nil || how != nil {
		off[value] = l.value
	}
	if l.mode == limitGlobal {
		return 0
	}
	return -1
}

// files changes the priorities of files, in the order of the list below. To Transmission, a file
// has a priority even if it is not wanted. To braid, such a file has the priority client.Skip. So
// the priorities high, normal and low apply only to wanted files.
func (r *reader) files(o *node.Options, all bool) {
	ifWanted := func(to client.Priority) func(client.Priority) client.Priority {
		return func(now client.Priority) client.Priority {
			if now == client.Skip {
				return now
			}
			return to
		}
	}
	before := o.Selection.Files(o.Source.Layout)
	now := slices.Clone(before)
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
		list := r.wholes(x.name)
		if all && list != nil && len(*list) == 0 {
			for i := range now {
				now[i] = x.to(now[i])
			}
		}
		for _, i := range valueOf(list) {
			if i < 0 || i >= len(now) {
				r.note(fail(fileOutOfRange, "there is no file %d: the torrent has %d", i, len(now)))
				return
			}
			now[i] = x.to(now[i])
		}
	}
	if !slices.Equal(now, before) {
		r.note(o.SetFiles(maps.Collect(slices.All(now))))
	}
}

// trackers changes the trackers. The argument tracker_list replaces all of them: it has one announce
// URL on each line, and an empty line between tiers. The other arguments number the trackers through
// all tiers, from 0.
func (r *reader) trackers(o *node.Options) {
	list, add := r.text("tracker_list"), r.texts("tracker_add")
	remove, replace := r.wholes("tracker_remove"), r.replacements()
	if list == nil && add == nil && remove == nil && replace == nil {
		return
	}
	parse := func(text string) tracker.URL {
		u, err := o.Tracker(text)
		if err != nil {
			r.note(&failure{invalidTrackers, err})
		}
		return u
	}
	tiers := lists.Map(splitTiers(valueOf(list)), func(texts []string) []tracker.URL {
		return lists.Map(texts, parse)
	})
	if list == nil {
		id := 0
		tiers = foreign.MapTrackers(o.Trackers, func(u tracker.URL) (tracker.URL, bool) {
			if text, ok := replace[id]; ok {
				u = parse(text)
			}
			id++
			return u, !slices.Contains(valueOf(remove), id-1)
		})
		for _, named := range slices.Concat(valueOf(remove), slices.Collect(maps.Keys(replace))) {
			if named < 0 || named >= id {
				r.note(fail(setAnnounceList, "there is no tracker %d: the torrent has %d",
					named, id))
			}
		}
		for _, text := range valueOf(add) {
			tiers = append(tiers, []tracker.URL{parse(text)})
		}
	}
	seen := map[string]bool{}
	for _, u := range slices.Concat(tiers...) {
		if seen[u.String()] {
			r.note(fail(setAnnounceList, "the tracker %s is there already", u))
		}
		seen[u.String()] = true
	}
	o.Trackers = tiers // a node bounds them
}

// replacements reads numbers of trackers and their new URLs. Clients send either one list, number,
// URL, number, URL, or a list of pairs.
func (r *reader) replacements() map[int]string {
	raw, ok := r.args["tracker_replace"]
	if !ok {
		return nil
	}
	var flat, all []json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		r.wrong("tracker_replace", "a list")
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
			r.wrong("tracker_replace", "a list of tracker numbers and URLs")
			return nil
		}
		out[id] = text
	}
	return out
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
