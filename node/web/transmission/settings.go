package transmission

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"braid/node"
	"braid/storage"
)

// session is the settings of the node as one request sees them.
type session struct {
	*server
	node.Settings
	dialect     dialect
	alternative bool // those rates hold now
	off         values
}

// setting is a field of session_get.
type setting struct {
	name  string
	style style
	get   func(*session) any
	// put changes the settings by the arguments of session_set; nil: the field is read only.
	put func(*session, *edits)
	// lacks says what braid lacks. The field then has one value, and no other can be set.
	lacks string
}

func lacks(name string, value any, what string) setting {
	return setting{name: name, style: kebab, get: func(*session) any { return value }, lacks: what}
}

func readOnly(name string, get func(*session) any) setting {
	return setting{name: name, style: kebab, get: get}
}

// limit is a setting of two fields: a value and a switch. To the node it is one number, which is 0
// if the limit is off.
type limit struct {
	value, on string
	style     style
	get       func(*session) float64
	put       func(*session, float64)
}

func (l limit) settings() []setting {
	put := func(x *session, e *edits) { l.put(x, e.limited(l, l.get(x), x.off)) }
	return []setting{
		{name: l.value, style: l.style, put: put, get: func(x *session) any {
			if v := l.get(x); v > 0 {
				return v
			}
			return x.off.number(l.value)
		}},
		{name: l.on, style: l.style, put: put, get: func(x *session) any { return l.get(x) > 0 }},
	}
}

// edits are the arguments of session_set, and the values of limits that are off after it.
type edits struct {
	*reader
	remember values
}

// limited is a limit after the change.
func (e *edits) limited(l limit, now float64, off values) float64 {
	value, on := e.real(l.value), e.flag(l.on)
	number, is := now, now > 0
	if !is {
		number = off.number(l.value)
	}
	if value != nil {
		number = *value
	}
	if on != nil {
		is = *on
	}
	switch {
	case e.err != nil:
		return now
	case number < 0:
		e.wrong(l.value, "at least 0")
		return now
	case !is:
		e.remember[l.value] = number
		return 0
	case number == 0:
		e.wrong(l.value, "more than 0 while the limit is on")
		return now
	}
	return number
}

// sessionSettings are the fields of session_get, sorted by what they are about. docs/rpc.md lists
// those that braid lacks.
var sessionSettings = [][]setting{
	rate("speed_limit_down", "speed_limit_down_enabled",
		func(r *node.Settings) (*int64, *bool) { return &r.Rates.Download, &r.Rates.DownloadOff }),
	rate("speed_limit_up", "speed_limit_up_enabled",
		func(r *node.Settings) (*int64, *bool) { return &r.Rates.Upload, &r.Rates.UploadOff }),
	alternativeRates,
	limit{"download_queue_size", "download_queue_enabled", kebab,
		func(x *session) float64 { return float64(x.Queue.Downloads) },
		func(x *session, v float64) { x.Queue.Downloads = int(v) }}.settings(),
	limit{"seed_queue_size", "seed_queue_enabled", kebab,
		func(x *session) float64 { return float64(x.Queue.Seeds) },
		func(x *session, v float64) { x.Queue.Seeds = int(v) }}.settings(),
	limit{"seed_ratio_limit", "seed_ratio_limited", camel,
		func(x *session) float64 { return max(x.Goal.Ratio, 0) },
		func(x *session, v float64) { x.Goal.Ratio = v }}.settings(),
	limit{"idle_seeding_limit", "idle_seeding_limit_enabled", kebab,
		func(x *session) float64 { return max(x.Goal.Idle, 0).Minutes() },
		func(x *session, v float64) { x.Goal.Idle = minutes(v) }}.settings(),
	directories,
	about,
	lacking,
}

func kilobytes(bits int64) float64 { return float64(bits) / kB }

func bits(kilobytes float64) int64 { return int64(math.Round(kilobytes * kB)) }

// rate is the two fields of a limit in kB/s.
func rate(value, on string, of func(*node.Settings) (rate *int64, off *bool)) []setting {
	put := func(x *session, e *edits) {
		r, off := of(&x.Settings)
		if err := (limitEdit{e.real(value), e.flag(on)}).apply(value, r, off); err != nil && e.err == nil {
			e.err = err
		}
	}
	return []setting{
		{name: value, style: kebab, put: put, get: func(x *session) any { r, _ := of(&x.Settings); return kilobytes(*r) }},
		{name: on, style: kebab, put: put, get: func(x *session) any { r, off := of(&x.Settings); return *r > 0 && !*off }},
	}
}

var alternativeRates = []setting{
	{name: "alt_speed_down", style: kebab,
		get: func(x *session) any { return kilobytes(x.Alternative.Rates.Download) },
		put: func(x *session, e *edits) { e.rate("alt_speed_down", &x.Alternative.Rates.Download) }},
	{name: "alt_speed_up", style: kebab,
		get: func(x *session) any { return kilobytes(x.Alternative.Rates.Upload) },
		put: func(x *session, e *edits) { e.rate("alt_speed_up", &x.Alternative.Rates.Upload) }},
	{name: "alt_speed_enabled", style: kebab,
		get: func(x *session) any { return x.alternative },
		put: func(x *session, e *edits) {
			if on := e.flag("alt_speed_enabled"); on != nil {
				x.Alternative.Hand, x.Alternative.Since = on, time.Now()
			}
		}},
	{name: "alt_speed_time_enabled", style: kebab,
		get: func(x *session) any { return x.Alternative.Schedule.On },
		put: func(x *session, e *edits) {
			if on := e.flag("alt_speed_time_enabled"); on != nil {
				x.Alternative.Schedule.On = *on
			}
		}},
	{name: "alt_speed_time_begin", style: kebab,
		get: func(x *session) any { return x.Alternative.Schedule.From },
		put: func(x *session, e *edits) { e.number("alt_speed_time_begin", 24*60-1, &x.Alternative.Schedule.From) }},
	{name: "alt_speed_time_end", style: kebab,
		get: func(x *session) any { return x.Alternative.Schedule.To },
		put: func(x *session, e *edits) { e.number("alt_speed_time_end", 24*60-1, &x.Alternative.Schedule.To) }},
	{name: "alt_speed_time_day", style: kebab,
		get: func(x *session) any { return daysMask(x.Alternative.Schedule.Days) },
		put: func(x *session, e *edits) {
			mask := daysMask(x.Alternative.Schedule.Days)
			e.number("alt_speed_time_day", 1<<7-1, &mask)
			for i := range x.Alternative.Schedule.Days {
				x.Alternative.Schedule.Days[i] = mask>>i&1 == 1
			}
		}},
}

// daysMask has a bit for each day of the week; the lowest is Sunday.
func daysMask(days [7]bool) (mask int) {
	for i, on := range days {
		mask |= boolToInt(on) << i
	}
	return mask
}

// rate reads a limit without a switch, in kB/s; 0 is none.
func (e *edits) rate(name string, to *int64) {
	if v := e.real(name); v != nil {
		if *v < 0 {
			e.wrong(name, "at least 0")
			return
		}
		*to = bits(*v)
	}
}

func (e *edits) number(name string, most int, to *int) {
	if v := e.whole(name); v != nil {
		if *v < 0 || *v > most {
			e.wrong(name, "a number within its bounds")
			return
		}
		*to = *v
	}
}

// Transmission downloads into incomplete_dir, if that is enabled, and moves complete data to
// download_dir. A node downloads into Dir, and moves complete data to CompleteDir, if that is set.
var directories = []setting{
	{name: "download_dir", style: kebab, get: func(x *session) any { return x.final() }, put: putDirectories},
	{name: "incomplete_dir", style: kebab, put: putDirectories, get: func(x *session) any {
		if x.CompleteDir != "" {
			return x.Dir
		}
		return x.off.text("incomplete_dir")
	}},
	{name: "incomplete_dir_enabled", style: kebab, get: func(x *session) any { return x.CompleteDir != "" }, put: putDirectories},
	{name: "script_torrent_done_filename", style: kebab, put: putScript, get: func(x *session) any { return x.Script }},
	{name: "script_torrent_done_enabled", style: kebab, put: putScript, get: func(x *session) any {
		return x.Script != "" && !x.ScriptOff
	}},
	{name: "start_added_torrents", style: kebab, get: func(x *session) any { return !x.AddPaused },
		put: func(x *session, e *edits) {
			if on := e.flag("start_added_torrents"); on != nil {
				x.AddPaused = !*on
			}
		}},
	// Files that were added come from the watched directory.
	{name: "trash_original_torrent_files", style: kebab, get: func(x *session) any { return x.Watch.Then == "delete" },
		put: func(x *session, e *edits) {
			on := e.flag("trash_original_torrent_files")
			if on != nil && *on != (x.Watch.Then == "delete") {
				x.Watch.Then = map[bool]string{true: "delete", false: "rename"}[*on]
			}
		}},
	{name: "default_trackers", style: kebab, get: func(x *session) any { return strings.Join(x.Trackers, "\n") },
		put: func(x *session, e *edits) {
			if list := e.text("default_trackers"); list != nil {
				x.Trackers = slices.Concat(splitTiers(*list)...)
			}
		}},
	{name: "pex_enabled", style: kebab, get: func(x *session) any { return !x.NoPEX },
		put: func(x *session, e *edits) {
			if on := e.flag("pex_enabled"); on != nil {
				x.NoPEX = !*on
			}
		}},
	{name: "lpd_enabled", style: kebab, get: func(x *session) any { return x.LSD },
		put: func(x *session, e *edits) {
			if on := e.flag("lpd_enabled"); on != nil {
				x.LSD = *on
			}
		}},
	{name: "peer_limit_per_torrent", style: kebab, get: func(x *session) any { return x.peerLimit() },
		put: func(x *session, e *edits) { e.number("peer_limit_per_torrent", 10_000, &x.PeerLimit) }},
	{name: "queue_stalled_minutes", style: kebab,
		get: func(x *session) any { return cmp.Or(x.Queue.Stalled, defaultStalled).Minutes() },
		put: func(x *session, e *edits) {
			if v := e.real("queue_stalled_minutes"); v != nil {
				x.Queue.Stalled = minutes(*v)
			}
		}},
}

// defaultStalled is the node's: see node.Queue.
const defaultStalled = 2 * time.Minute

// peerLimit is the number of peers that a torrent without a limit of its own dials.
func (x *session) peerLimit() int { return cmp.Or(x.PeerLimit, defaultPeers) }

func (x *session) final() string {
	if x.CompleteDir != "" {
		return x.CompleteDir
	}
	return x.Dir
}

func putDirectories(x *session, e *edits) {
	final, first, split := x.final(), x.off.text("incomplete_dir"), x.CompleteDir != ""
	if split {
		first = x.Dir
	}
	e.directory("download_dir", &final)
	e.directory("incomplete_dir", &first)
	if on := e.flag("incomplete_dir_enabled"); on != nil {
		split = *on
	}
	switch {
	case split && first == "":
		e.wrong("incomplete_dir", "set while incomplete-dir-enabled is true")
	case split:
		x.Dir, x.CompleteDir = first, final
	default:
		x.Dir, x.CompleteDir = final, ""
		e.remember["incomplete_dir"] = first
	}
}

func putScript(x *session, e *edits) {
	on := x.Script != "" && !x.ScriptOff
	if v := e.text("script_torrent_done_filename"); v != nil {
		x.Script = *v
	}
	if v := e.flag("script_torrent_done_enabled"); v != nil {
		on = *v
	}
	x.ScriptOff = !on
	if on && x.Script == "" {
		e.wrong("script_torrent_done_filename", "set while script-torrent-done-enabled is true")
	}
}

func (e *edits) directory(name string, to *string) {
	v := e.text(name)
	if v == nil || *v == "" && *to == "" {
		return
	}
	dir, err := checkDirectory(*v)
	if err != nil && e.err == nil {
		e.err = err
	}
	*to = dir
}

// about are fields that tell what the server is.
var about = []setting{
	readOnly("config_dir", func(x *session) any { return x.options.State }),
	readOnly("download_dir_free_space", func(x *session) any {
		if free, _, err := storage.DiskSpace(x.final()); err == nil {
			return free
		}
		return -1
	}),
	readOnly("rpc_version", func(*session) any { return rpcVersion }),
	readOnly("rpc_version_minimum", func(*session) any { return rpcVersionMinimum }),
	readOnly("rpc_version_semver", func(*session) any { return rpcVersionSemver }),
	readOnly("session_id", func(x *session) any { return x.sessionID }),
	readOnly("units", func(x *session) any {
		d := x.dialect
		return map[string]any{
			d.key("speed_units", kebab): []string{"kB/s", "MB/s", "GB/s", "TB/s"}, d.key("speed_bytes", kebab): 1000,
			d.key("size_units", kebab): []string{"kB", "MB", "GB", "TB"}, d.key("size_bytes", kebab): 1000,
			d.key("memory_units", kebab): []string{"KiB", "MiB", "GiB", "TiB"}, d.key("memory_bytes", kebab): 1024,
		}
	}),
	readOnly("version", func(x *session) any { return emulated + " (" + x.options.Version + ")" }),
	{name: "peer_port", style: kebab, lacks: "another port while it runs: restart it with --listen", get: func(x *session) any {
		for _, p := range x.node.Listening() {
			return int(p.Port())
		}
		return 0
	}},
}

// lacking are fields of what braid lacks.
var lacking = []setting{
	lacks("blocklist_enabled", false, "blocklist"),
	lacks("blocklist_url", "", "blocklist"),
	readOnly("blocklist_size", func(*session) any { return 0 }),
	lacks("cache_size_mb", 0, "cache of its own: the operating system has one"),
	lacks("dht_enabled", false, "DHT"),
	lacks("encryption", "tolerated", "other order than plain connections first, and encrypted ones to peers that refuse those"),
	lacks("peer_limit_global", 0, "limit of peers for all torrents together"),
	lacks("peer_port_random_on_start", false, "random port: restart it with --listen and port 0"),
	lacks("port_forwarding_enabled", false, "port forwarding"),
	lacks("preferred_transports", []string{"tcp"}, "other transport on IP"),
	lacks("rename_partial_files", false, "names for incomplete files"),
	lacks("reqq", 1024, "other limit of requests"),
	lacks("script_torrent_added_enabled", false, "script for torrents that are added"),
	lacks("script_torrent_added_filename", "", "script for torrents that are added"),
	lacks("script_torrent_done_seeding_enabled", false, "script for torrents that were served enough"),
	lacks("script_torrent_done_seeding_filename", "", "script for torrents that were served enough"),
	lacks("sequential_download", false, "sequential download of all torrents: set it for each"),
	lacks("tcp_enabled", true, "switch for TCP while it runs"),
	lacks("torrent_complete_verify_enabled", false, "second verification of complete torrents: every piece is verified when it arrives"),
	lacks("queue_stalled_enabled", true, "queue that counts stalled torrents"),
	lacks("utp_enabled", false, "uTP"),
}

func (c *call) session(s node.Settings) *session {
	x := &session{server: c.server, Settings: s, dialect: c.dialect, off: c.server.off.of("")}
	_, x.alternative = x.RatesAt(time.Now())
	return x
}

func (c *call) sessionGet() (any, error) {
	names := c.texts("fields")
	if c.err != nil {
		return nil, c.err
	}
	wanted := map[string]bool{}
	if names != nil {
		for _, n := range *names {
			wanted[canonical(n)] = true
		}
	}
	x, out := c.session(c.settings()), map[string]any{}
	for _, group := range sessionSettings {
		for _, s := range group {
			if names == nil || wanted[s.name] {
				out[c.dialect.key(s.name, s.style)] = s.get(x)
			}
		}
	}
	return out, nil
}

// sessionSet changes settings: all of the request, or none if one of them is impossible.
func (c *call) sessionSet() (any, error) {
	e := &edits{reader: c.reader, remember: values{}}
	err := c.server.node.Change(func(s *node.Settings) {
		x := c.session(*s)
		x.edit(e)
		if c.err == nil {
			*s = x.Settings
		}
	})
	if err = cmp.Or(c.err, err); err != nil {
		return nil, c.failed(err)
	}
	c.server.off.set("", e.remember)
	return nil, nil
}

// edit changes the settings that the request names.
func (x *session) edit(e *edits) {
	for _, group := range sessionSettings {
		for _, s := range group {
			raw, named := e.args[s.name]
			switch {
			case !named:
			case s.lacks != "":
				if !sameJSON(raw, s.get(x)) && e.err == nil {
					e.err = lackingError(s.lacks)
				}
			case s.put != nil:
				s.put(x, e)
			}
		}
	}
}

// sameJSON tells whether a client has sent the value that a field has anyway.
func sameJSON(raw json.RawMessage, v any) bool {
	if want, ok := v.(bool); ok {
		got, ok := parseFlag(raw)
		return ok && got == want
	}
	b, err := json.Marshal(v)
	var got bytes.Buffer
	return err == nil && json.Compact(&got, raw) == nil && bytes.Equal(got.Bytes(), b)
}

// statistics are the sums of a period.
type statistics struct{ uploaded, downloaded, added, sessions, seconds int64 }

var statisticsFields = table[statistics]{
	{"downloaded_bytes", camel, func(s statistics) any { return s.downloaded }},
	{"files_added", camel, func(s statistics) any { return s.added }},
	{"seconds_active", camel, func(s statistics) any { return s.seconds }},
	{"session_count", camel, func(s statistics) any { return s.sessions }},
	{"uploaded_bytes", camel, func(s statistics) any { return s.uploaded }},
}
