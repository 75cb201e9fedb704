package qbittorrent

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"braid/client"
	"braid/node"
	"braid/node/web/foreign"
	"braid/tracker"
	"braid/units/lists"
)

// unlimitedETA stands for an unknown time: 100 days in seconds.
const unlimitedETA = 8640000

// view is a torrent during one call.
type view struct {
	node.Status
	trackers []node.TrackerStatus
	category string
	tags     []string
	goal     node.Goal // the goal that applies; parts without a limit are negative
	state    string    // by qBittorrent's names
	place    int       // among the downloads in the queue, from 1; 0: it is complete
}

func viewOf(t *node.Torrent, s node.Status, settings node.Settings) *view {
	v := &view{
		Status: s, trackers: t.Trackers(),
		goal: s.Goal.Or(settings.Goal).Or(node.Goal{Ratio: -1, Time: -1, Idle: -1}), state: stateOf(s),
	}
	v.category, v.tags = parse(s.Labels)
	return v
}

// torrentFields has the fields of a torrent in torrents/info and sync/maindata. Fields with a fixed
// value are about features that braid does not have: see docs/rpc.md.
var torrentFields = map[string]func(*view) any{
	"added_on":                    func(v *view) any { return stamp(v.Added) },
	"amount_left":                 func(v *view) any { return v.left() },
	"auto_tmm":                    fixedField(false),
	"availability":                fixedField(-1),
	"category":                    func(v *view) any { return v.category },
	"comment":                     func(v *view) any { return v.Source.Comment },
	"completed":                   func(v *view) any { return v.Have },
	"completion_on":               func(v *view) any { return stamp(v.Completed) },
	"content_path":                func(v *view) any { return v.contentPath() },
	"dl_limit":                    func(v *view) any { return limitOf(v.Rates, true) },
	"dlspeed":                     func(v *view) any { return int64(v.ReadRate / 8) },
	"download_path":               fixedField(""),
	"downloaded":                  func(v *view) any { return v.Fetched },
	"downloaded_session":          func(v *view) any { return v.Fetched },
	"eta":                         func(v *view) any { return eta(v.Status) },
	"f_l_piece_prio":              fixedField(false),
	"force_start":                 func(v *view) any { return v.Forced },
	"has_metadata":                func(v *view) any { return !v.Source.IsMagnet() },
	"hash":                        func(v *view) any { return v.InfoHash },
	"inactive_seeding_time_limit": func(v *view) any { return minutesOf(v.Goal.Idle) },
	"infohash_v1":                 func(v *view) any { return v.InfoHash },
	"infohash_v2":                 func(v *view) any { return v.Source.HashV2 },
	"last_activity":               func(v *view) any { return v.lastActivity() },
	"magnet_uri":                  func(v *view) any { return v.Source.Magnet() },
	"max_inactive_seeding_time":   func(v *view) any { return minutesOf(v.goal.Idle) },
	"max_ratio":                   func(v *view) any { return shareLimit(v.goal.Ratio) },
	"max_seeding_time":            func(v *view) any { return minutesOf(v.goal.Time) },
	"name":                        func(v *view) any { return v.Name },
	"num_complete":                fixedField(-1),
	"num_incomplete":              fixedField(-1),
	"num_leechs":                  func(v *view) any { return max(v.Getting, v.Peers-v.Sending) },
	"num_seeds":                   func(v *view) any { return v.Sending },
	"popularity":                  func(v *view) any { return v.popularity() },
	"priority":                    func(v *view) any { return v.place },
	"private":                     func(v *view) any { return v.Source.IsPrivate() },
	"progress":                    func(v *view) any { return progress(v.Status) },
	"ratio":                       func(v *view) any { return v.Ratio },
	"ratio_limit":                 func(v *view) any { return shareLimit(v.Goal.Ratio) },
	"reannounce":                  fixedField(0),
	"root_path":                   func(v *view) any { return v.rootPath() },
	"save_path":                   func(v *view) any { return v.Storage.Dir },
	"seeding_time":                func(v *view) any { return foreign.Seconds(v.SeedingFor) },
	"seeding_time_limit":          func(v *view) any { return minutesOf(v.Goal.Time) },
	"seen_complete":               func(v *view) any { return stamp(v.Completed) },
	"seq_dl":                      func(v *view) any { return v.Selection.Sequential },
	"size":                        func(v *view) any { return v.Total },
	"state":                       func(v *view) any { return v.state },
	"super_seeding": func(v *view) any {
		return v.SuperSeeding != client.NoSuperSeeding
	},
	"tags":             func(v *view) any { return strings.Join(v.tags, ", ") },
	"time_active":      func(v *view) any { return foreign.Seconds(v.ActiveFor) },
	"total_size":       func(v *view) any { return v.totalSize() },
	"tracker":          func(v *view) any { return v.workingTracker() },
	"trackers_count":   func(v *view) any { return len(v.trackers) },
	"up_limit":         func(v *view) any { return limitOf(v.Rates, false) },
	"uploaded":         func(v *view) any { return v.Sent },
	"uploaded_session": func(v *view) any { return v.Sent },
	"upspeed":          func(v *view) any { return int64(v.WriteRate / 8) },
}

func fixedField(value any) func(*view) any { return func(*view) any { return value } }

// fields are all fields of a torrent.
func (v *view) fields() map[string]any {
	out := make(map[string]any, len(torrentFields))
	for name, get := range torrentFields {
		out[name] = get(v)
	}
	return out
}

func (v *view) left() int64 { return v.Total - v.Have }

// contentPath returns the path of the torrent's only file, or of the directory with its files.
func (v *view) contentPath() string {
	switch files := v.Source.Layout.Files; len(files) {
	case 0: // a magnet link
		return ""
	case 1:
		return filepath.Join(v.Storage.Dir, files[0].Path)
	}
	return v.rootPath()
}

// rootPath returns the path of the directory with the torrent's files; "" if there is none.
func (v *view) rootPath() string {
	if l := v.Source.Layout; len(l.Files) > 0 && l.Files[0].Path != l.Name {
		return filepath.Join(v.Storage.Dir, l.Name)
	}
	return ""
}

func (v *view) totalSize() int64 {
	if v.Source.IsMagnet() {
		return -1
	}
	return v.Source.Layout.Length
}

// wasted returns the received bytes that came twice or were wrong.
func (v *view) wasted() int64 { return v.Wasted + v.Dropped*v.Source.Layout.PieceLength }

// lastActivity returns the time at which the torrent was added if it has never been active, as in
// qBittorrent. Otherwise programs that remove inactive torrents would remove new ones.
func (v *view) lastActivity() int64 {
	if v.LastActive.IsZero() {
		return stamp(v.Added)
	}
	return stamp(v.LastActive)
}

// popularity returns the mean increase of the ratio in a month.
func (v *view) popularity() float64 {
	if a := foreign.Seconds(v.ActiveFor); a > 0 && v.Ratio > 0 {
		return v.Ratio / (float64(a) / (30 * 24 * 3600))
	}
	return 0
}

func (v *view) workingTracker() string {
	for _, t := range v.trackers {
		if t.Answered {
			return t.URL
		}
	}
	return ""
}

func stamp(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return t.Unix()
}

// Limits of seeding: -2 stands for the global one, -1 for none.
const (
	globalLimit = -2
	noLimit     = -1
)

// shareLimit returns a part of a goal as clients know it.
func shareLimit(v float64) float64 {
	switch {
	case v == 0:
		return globalLimit
	case v < 0:
		return noLimit
	}
	return v
}

func minutesOf(d time.Duration) int64 { return int64(math.Round(shareLimit(d.Minutes()))) }

// limitOf returns a limit in bytes per second; 0 is no limit.
func limitOf(r node.Rates, down bool) int64 {
	switch {
	case down && !r.DownloadOff:
		return r.Download / 8
	case !down && !r.UploadOff:
		return r.Upload / 8
	}
	return 0
}

func progress(s node.Status) float64 {
	if size := s.Source.Layout.Length; s.Phase == client.Checking && size > 0 {
		return float64(s.Checked) / float64(size)
	}
	if s.Total == 0 {
		return 0
	}
	return float64(s.Have) / float64(s.Total)
}

func eta(s node.Status) int64 {
	if s.Remaining < 0 {
		return unlimitedETA
	}
	return min(foreign.Seconds(s.Remaining), unlimitedETA)
}

// stateOf returns qBittorrent's name for a torrent's state.
func stateOf(s node.Status) string {
	side := "DL"
	if foreign.IsComplete(s) {
		side = "UP"
	}
	if s.Moving { // perhaps soon, and nobody may take the files away before
		s.State = node.Moving
	}
	switch s.State {
	case node.Failed:
		return "error"
	case node.Moving:
		return "moving"
	case node.Paused, node.Served:
		return "stopped" + side
	case node.Queued:
		return "queued" + side
	}
	switch {
	case s.Phase == client.Checking:
		return "checking" + side
	case s.Source.IsMagnet() && s.Forced:
		return "forcedMetaDL"
	case s.Source.IsMagnet():
		return "metaDL"
	case s.Forced:
		return "forced" + side
	case side == "UP" && s.WriteRate == 0:
		return "stalledUP"
	case side == "UP":
		return "uploading"
	case s.ReadRate == 0:
		return "stalledDL"
	}
	return "downloading"
}

// filters has the values of the argument filter of torrents/info. paused and resumed are the names
// of stopped and running before version 5.
var filters = map[string]func(*view) bool{
	"all":         func(*view) bool { return true },
	"downloading": func(v *view) bool { return v.left() > 0 || v.Source.IsMagnet() },
	"seeding": func(v *view) bool {
		return strings.HasSuffix(v.state, "UP") && !v.isStopped() || v.state == "uploading"
	},
	"completed":           func(v *view) bool { return !v.Source.IsMagnet() && v.left() == 0 },
	"stopped":             (*view).isStopped,
	"paused":              (*view).isStopped,
	"running":             func(v *view) bool { return !v.isStopped() },
	"resumed":             func(v *view) bool { return !v.isStopped() },
	"active":              (*view).isActive,
	"inactive":            func(v *view) bool { return !v.isActive() },
	"stalled":             func(v *view) bool { return strings.HasPrefix(v.state, "stalled") },
	"stalled_uploading":   func(v *view) bool { return v.state == "stalledUP" },
	"stalled_downloading": func(v *view) bool { return v.state == "stalledDL" },
	"checking":            func(v *view) bool { return strings.HasPrefix(v.state, "checking") },
	"moving":              func(v *view) bool { return v.state == "moving" },
	"errored":             func(v *view) bool { return v.state == "error" },
}

func (v *view) isStopped() bool {
	return strings.HasPrefix(v.state, "stopped") || v.state == "error"
}

// isActive tells whether the torrent transfers at least a byte per second.
func (v *view) isActive() bool { return v.WriteRate >= 8 || v.ReadRate >= 8 }

// all returns all torrents, in the order of the queue.
func (s *server) all() (out []*view) {
	settings, downloads := s.node.Settings(), 0
	for _, x := range s.node.Statuses() {
		t, err := s.node.Torrent(x.InfoHash)
		if err != nil {
			continue
		}
		v := viewOf(t, x, settings)
		if !foreign.IsComplete(x) {
			downloads++
			v.place = downloads
		}
		out = append(out, v)
	}
	return out
}

// info returns the torrents that pass the filters: sorted, and from an offset.
func (c *call) info() (any, error) {
	keep, known := filters[cmp.Or(c.text("filter"), "all")]
	private, reverse, trackers := c.flag("private"), c.on("reverse"), c.on("includeTrackers")
	limit, offset := c.whole("limit", 0), c.whole("offset", 0)
	hashes := lists.Split(strings.ToLower(c.text("hashes")), "|")
	all := slices.DeleteFunc(c.all(), func(v *view) bool {
		return known && !keep(v) ||
			len(hashes) > 0 && !slices.Contains(hashes, v.InfoHash) ||
			c.has("category") && c.text("category") != v.category ||
			c.has("tag") && c.text("tag") == "" && len(v.tags) > 0 ||
			c.text("tag") != "" && !slices.Contains(v.tags, c.text("tag")) ||
			private != nil && *private != v.Source.IsPrivate()
	})
	if by, ok := torrentFields[c.text("sort")]; ok {
		slices.SortStableFunc(all, func(a, b *view) int { return compare(by(a), by(b)) })
	}
	if reverse {
		slices.Reverse(all)
	}
	if offset < 0 {
		offset = max(len(all)+offset, 0)
	}
	all = all[min(offset, len(all)):]
	if limit > 0 {
		all = all[:min(limit, len(all))]
	}
	out := make([]map[string]any, 0, len(all))
	for _, v := range all {
		x := v.fields()
		if trackers {
			x["trackers"] = trackersOf(v.trackers)
		}
		out = append(out, x)
	}
	return out, c.err
}

// compare orders two values of a field.
func compare(a, b any) int {
	switch a := a.(type) {
	case string:
		return cmp.Compare(strings.ToLower(a), strings.ToLower(b.(string)))
	case bool:
		return cmp.Compare(foreign.Number(a), foreign.Number(b.(bool)))
	case float64:
		return cmp.Compare(a, b.(float64))
	case int64:
		return cmp.Compare(a, b.(int64))
	}
	return cmp.Compare(a.(int), b.(int))
}

// propertyNames maps names in torrents/properties to the names of the same fields in torrents/info.
var propertyNames = map[string]string{
	"addition_date": "added_on", "completion_date": "completion_on", "last_seen": "seen_complete",
	"dl_speed": "dlspeed", "up_speed": "upspeed", "share_ratio": "ratio", "is_private": "private",
	"peers": "num_leechs", "seeds": "num_seeds", "time_elapsed": "time_active",
	"total_downloaded": "downloaded", "total_downloaded_session": "downloaded",
	"total_uploaded": "uploaded", "total_uploaded_session": "uploaded",
}

// sameProperties has the fields with the same name in both.
var sameProperties = []string{
	"comment", "download_path", "eta", "has_metadata", "hash", "infohash_v1", "infohash_v2", "name",
	"popularity", "private", "progress", "reannounce", "save_path", "seeding_time", "total_size",
}

// properties returns the details of one torrent.
func (c *call) properties(t *node.Torrent) (any, error) {
	v := viewOf(t, t.Status(), c.node.Settings())
	have, pieces := 0, v.Source.Layout.Pieces()
	if v.Missing == 0 {
		have = pieces
	} else if v.Source.Layout.PieceLength > 0 {
		have = int((v.Source.Layout.Length - v.Missing) / v.Source.Layout.PieceLength)
	}
	average := func(bytes int64) int64 {
		if a := foreign.Seconds(v.ActiveFor); a > 0 {
			return bytes / a
		}
		return 0
	}
	out := map[string]any{
		"created_by": v.Source.Creator, "creation_date": stamp(v.Source.Created),
		"dl_limit":     cmp.Or(limitOf(v.Rates, true), noLimit), // 0 in torrents/info
		"up_limit":     cmp.Or(limitOf(v.Rates, false), noLimit),
		"dl_speed_avg": average(v.Fetched), "up_speed_avg": average(v.Sent),
		"nb_connections": v.Peers, "nb_connections_limit": cmp.Or(v.PeerLimit, noLimit),
		"peers_total": -1, "seeds_total": -1,
		"piece_size": v.Source.Layout.PieceLength, "pieces_have": have, "pieces_num": pieces,
		"total_wasted": v.wasted(),
	}
	for _, name := range sameProperties {
		out[name] = torrentFields[name](v)
	}
	for name, field := range propertyNames {
		out[name] = torrentFields[field](v)
	}
	return out, nil
}

func (c *call) torrentLimits(down bool) (any, error) {
	out := map[string]int64{}
	for _, t := range c.torrents() {
		out[t.InfoHash()] = limitOf(t.Status().Rates, down)
	}
	return out, c.err
}

// rate returns the limit of all torrents together that holds now.
func (c *call) rate(down bool) (any, error) {
	r, _ := c.node.Settings().RatesAt(time.Now())
	return text(fmt.Sprint(limitOf(r, down))), nil
}

// export returns the .torrent file, with the present trackers.
func (*call) export(t *node.Torrent) (any, error) {
	o := t.Options()
	if o.Source.IsMagnet() {
		return nil, fail(http.StatusConflict, "it is not known yet what is in the torrent")
	}
	b, err := o.Source.File(lists.Map(o.Trackers, func(tier []tracker.URL) []string {
		return lists.Map(tier, tracker.URL.String)
	}))
	return file{t.InfoHash() + ".torrent", b}, err
}
