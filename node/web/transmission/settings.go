package transmission

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"braid/client"
	"braid/node"
	"braid/node/web/foreign"
)

// session has the node's settings during one request, and what else its fields show.
type session struct {
	*server
	node.Settings
	dialect     dialect
	alternative bool // the alternative rates hold now
	off         values
}

// setting is a field of session_get.
type setting struct {
	name string // as the classic dialect spells it
	get  func(*session) any
	// put reads the field from the arguments of session_set, and changes the settings. nil: the
	// field is read-only, and put is not called.
	put func(*session, *reader)
	// lacks names a feature that braid does not have. If it is not empty, session_set accepts only
	// the value that the field has already.
	lacks string
}

func lacks(name string, value any, what string) setting {
	return setting{name: name, get: func(*session) any { return value }, lacks: what}
}

func readOnly(name string, get func(*session) any) setting {
	return setting{name: name, get: get}
}

// value makes a setting whose new value depends on one argument only.
func value[T any](
	name string, read func(*reader, string) *T, get func(*session) T, put func(*session, T),
) setting {
	return setting{
		name: name,
		get:  func(x *session) any { return get(x) },
		put: func(x *session, r *reader) {
			if v := read(r, name); v != nil {
				put(x, *v)
			}
		},
	}
}

// flag makes a setting for a switch of the node. If same is false, the node's switch is the
// opposite.
func flag(name string, same bool, of func(*session) *bool) setting {
	return value(name, (*reader).flag,
		func(x *session) bool { return *of(x) == same },
		func(x *session, v bool) { *of(x) = v == same })
}

// bounded makes a setting for a number from 0 to most.
func bounded(name string, most int, get func(*session) int, put func(*session, int)) setting {
	read := func(r *reader, name string) *int {
		return r.within(name, 0, most, "a number within its bounds")
	}
	return value(name, read, get, put)
}

// minuteOfDay makes a setting for a time of the day, in minutes.
func minuteOfDay(name string, of func(*session) *int) setting {
	return bounded(name, 24*60-1,
		func(x *session) int { return *of(x) },
		func(x *session, v int) { *of(x) = v })
}

// speed makes a setting for a limit without a switch, in kB/s; 0 is no limit.
func speed(name string, of func(*session) *int64) setting {
	read := func(r *reader, name string) *float64 {
		v := r.real(name)
		if v != nil && *v < 0 {
			r.wrong(name, "at least 0")
		}
		return v
	}
	return value(name, read,
		func(x *session) float64 { return kilobytes(*of(x)) },
		func(x *session, v float64) { setKilobytes(of(x), v) })
}

// pair makes two fields that are changed together: a value, and a switch for it.
func pair(
	value, on string, put func(*session, *reader), get func(*session) (value any, on bool),
) []setting {
	return []setting{
		{name: value, put: put, get: func(x *session) any { v, _ := get(x); return v }},
		{name: on, put: put, get: func(x *session) any { _, on := get(x); return on }},
	}
}

// limited makes the two fields of a limit. The node has one number, which is 0 if the limit is off;
// its value is then remembered.
func limited(
	value, on string, get func(*session) float64, put func(*session, float64),
) []setting {
	change := func(x *session, r *reader) {
		number, is := get(x), get(x) > 0
		if !is {
			number = x.off.number(value)
		}
		set(&number, r.real(value))
		set(&is, r.flag(on))
		switch {
		case number < 0:
			r.wrong(value, "at least 0")
		case is && number == 0:
			r.wrong(value, "more than 0 while the limit is on")
		case is:
			put(x, number)
		default:
			x.off[value] = number
			put(x, 0)
		}
	}
	return pair(value, on, change, func(x *session) (any, bool) {
		return cmp.Or(get(x), x.off.number(value)), get(x) > 0
	})
}

// sessionSettings are the fields of session_get. docs/rpc.md lists the fields that braid lacks.
var sessionSettings = slices.Concat(
	rate("speed-limit-down", "speed-limit-down-enabled",
		func(r *node.Settings) (*int64, *bool) { return &r.Rates.Download, &r.Rates.DownloadOff }),
	rate("speed-limit-up", "speed-limit-up-enabled",
		func(r *node.Settings) (*int64, *bool) { return &r.Rates.Upload, &r.Rates.UploadOff }),
	alternativeRates,
	limited("download-queue-size", "download-queue-enabled",
		func(x *session) float64 { return float64(x.Queue.Downloads) },
		func(x *session, v float64) { x.Queue.Downloads = int(v) }),
	limited("seed-queue-size", "seed-queue-enabled",
		func(x *session) float64 { return float64(x.Queue.Seeds) },
		func(x *session, v float64) { x.Queue.Seeds = int(v) }),
	limited("seedRatioLimit", "seedRatioLimited",
		func(x *session) float64 { return max(x.Goal.Ratio, 0) },
		func(x *session, v float64) { x.Goal.Ratio = v }),
	limited("idle-seeding-limit", "idle-seeding-limit-enabled",
		func(x *session) float64 { return foreign.WholeMinutes(max(x.Goal.Idle, 0)) },
		func(x *session, v float64) { foreign.SetMinutes(&x.Goal.Idle, v) }),
	pair("incomplete-dir", "incomplete-dir-enabled", putDirectories,
		func(x *session) (any, bool) { return x.incompleteDir(), x.CompleteDir != "" }),
	pair("script-torrent-done-filename", "script-torrent-done-enabled", putScript,
		func(x *session) (any, bool) { return x.Script, x.Script != "" && !x.ScriptOff }),
	others,
	about,
	lacking,
)

// kilobytes returns a rate as clients read it. Many read whole numbers only.
func kilobytes(bits int64) float64 { return math.Round(float64(bits) / kB) }

// setKilobytes changes a rate, unless a client sends back what it has read.
func setKilobytes(bits *int64, v float64) {
	if v != kilobytes(*bits) {
		*bits = int64(math.Round(v * kB))
	}
}

// rate makes the two fields of a limit in kB/s, which is a value and a switch in the node, too.
func rate(value, on string, of func(*node.Settings) (rate *int64, off *bool)) []setting {
	put := func(x *session, r *reader) {
		rate, off := of(&x.Settings)
		r.limit(value, on, rate, off)
	}
	return pair(value, on, put, func(x *session) (any, bool) {
		rate, off := of(&x.Settings)
		return kilobytes(*rate), *rate > 0 && !*off
	})
}

var alternativeRates = []setting{
	speed("alt-speed-down", func(x *session) *int64 { return &x.Alternative.Rates.Download }),
	speed("alt-speed-up", func(x *session) *int64 { return &x.Alternative.Rates.Upload }),
	value("alt-speed-enabled", (*reader).flag,
		func(x *session) bool { return x.alternative },
		func(x *session, on bool) { foreign.Switch(&x.Alternative, on) }),
	flag("alt-speed-time-enabled", true,
		func(x *session) *bool { return &x.Alternative.Schedule.On }),
	minuteOfDay("alt-speed-time-begin",
		func(x *session) *int { return &x.Alternative.Schedule.From }),
	minuteOfDay("alt-speed-time-end", func(x *session) *int { return &x.Alternative.Schedule.To }),
	// The days are a mask, in which the lowest bit is Sunday.
	bounded("alt-speed-time-day", 1<<7-1,
		func(x *session) (mask int) {
			for i, on := range x.Alternative.Schedule.Days {
				mask |= foreign.Number(on) << i
			}
			return mask
		},
		func(x *session, mask int) {
			for i := range x.Alternative.Schedule.Days {
				x.Alternative.Schedule.Days[i] = mask>>i&1 == 1
			}
		}),
}

// others are the other fields that a client can change.
var others = []setting{
	{name: "download-dir", put: putDirectories, get: func(x *session) any {
		return foreign.Final(x.Settings)
	}},
	flag("start-added-torrents", false, func(x *session) *bool { return &x.AddPaused }),
	// To braid, it is about the files in the watched directory.
	value("trash-original-torrent-files", (*reader).flag,
		func(x *session) bool { return x.Watch.Then == "delete" },
		func(x *session, on bool) {
			if on {
				x.Watch.Then = "delete"
			} else if x.Watch.Then == "delete" {
				x.Watch.Then = "rename"
			}
		}),
	value("default-trackers", (*reader).text,
		func(x *session) string { return strings.Join(x.Trackers, "\n") },
		func(x *session, list string) { x.Trackers = slices.Concat(splitTiers(list)...) }),
	flag("pex-enabled", false, func(x *session) *bool { return &x.NoPEX }),
	flag("lpd-enabled", true, func(x *session) *bool { return &x.LSD }),
	bounded("peer-limit-per-torrent", 10_000,
		func(x *session) int { return cmp.Or(x.PeerLimit, client.MaxPeers) },
		func(x *session, v int) { x.PeerLimit = v }),
	value("queue-stalled-minutes", (*reader).real,
		func(x *session) float64 {
			return foreign.WholeMinutes(cmp.Or(x.Queue.Stalled, node.DefaultStalled))
		},
		func(x *session, v float64) { foreign.SetMinutes(&x.Queue.Stalled, v) }),
}

// incompleteDir returns the directory for incomplete data, also while it is not used.
func (x *session) incompleteDir() string {
	if x.CompleteDir != "" {
		return x.Dir
	}
	return x.off.text("incomplete_dir")
}

// putDirectories changes the directories. Transmission downloads into incomplete_dir, if that is
// enabled, and moves complete data to download_dir. A node downloads into Dir, and moves complete
// data to CompleteDir, if that is set.
func putDirectories(x *session, r *reader) {
	final, first, split := foreign.Final(x.Settings), x.incompleteDir(), x.CompleteDir != ""
	for name, to := range map[string]*string{"download_dir": &final, "incomplete_dir": &first} {
		if valueOf(r.text(name)) != *to { // a client may send back an empty one
			set(to, r.directory(name))
		}
	}
	set(&split, r.flag("incomplete_dir_enabled"))
	switch {
	case split && first == "":
		r.wrong("incomplete_dir", "set while incomplete-dir-enabled is true")
	case split:
		x.Dir, x.CompleteDir = first, final
	default:
		x.Dir, x.CompleteDir = final, ""
		x.off["incomplete_dir"] = first
	}
}

func putScript(x *session, r *reader) {
	on := x.Script != "" && !x.ScriptOff
	set(&x.Script, r.text("script_torrent_done_filename"))
	set(&on, r.flag("script_torrent_done_enabled"))
	x.ScriptOff = !on
	if on && x.Script == "" {
		r.wrong("script_torrent_done_filename", "set while script-torrent-done-enabled is true")
	}
}

// about has the fields that describe the server.
var about = []setting{
	readOnly("config-dir", func(x *session) any { return x.options.State }),
	readOnly("download-dir-free-space",
		func(x *session) any { return foreign.FreeSpace(x.Settings) }),
	readOnly("rpc-version", func(*session) any { return rpcVersion }),
	readOnly("rpc-version-minimum", func(*session) any { return rpcVersionMinimum }),
	readOnly("rpc-version-semver", func(*session) any { return rpcVersionSemver }),
	readOnly("session-id", func(x *session) any { return x.sessionID }),
	readOnly("units", func(x *session) any {
		d := x.dialect
		return map[string]any{
			d.key("speed-units"):  []string{"kB/s", "MB/s", "GB/s", "TB/s"},
			d.key("speed-bytes"):  1000,
			d.key("size-units"):   []string{"kB", "MB", "GB", "TB"},
			d.key("size-bytes"):   1000,
			d.key("memory-units"): []string{"KiB", "MiB", "GiB", "TiB"},
			d.key("memory-bytes"): 1024,
		}
	}),
	readOnly("version", func(x *session) any { return emulated + " (" + x.options.Version + ")" }),
	{
		name:  "peer-port",
		lacks: "other port while it runs: restart it with --listen",
		get: func(x *session) any {
			for _, p := range x.node.Listening() {
				return int(p.Port())
			}
			return 0
		},
	},
}

// lacking has the fields of features that braid does not have.
var lacking = []setting{
	lacks("blocklist-enabled", false, "blocklist"),
	lacks("blocklist-url", "", "blocklist"),
	readOnly("blocklist-size", func(*session) any { return 0 }),
	lacks("cache-size-mb", 0, "cache of its own: the operating system has one"),
	{
		name:  "dht-enabled",
		get:   func(x *session) any { return x.node.DHT() != nil },
		lacks: "switch for the DHT while it runs: restart it with another --dht",
	},
	lacks("encryption", "tolerated", "other order than plain connections first, "+
		"and encrypted ones to peers that refuse those"),
	lacks("peer-limit-global", 0, "limit of peers for all torrents together"),
	lacks("peer-port-random-on-start", false, "random port: restart it with --listen and port 0"),
	lacks("port-forwarding-enabled", false, "port forwarding"),
	lacks("preferred-transports", []string{"tcp"}, "other transport on IP"),
	lacks("rename-partial-files", false, "names for incomplete files"),
	lacks("reqq", 1024, "other limit of requests"),
	lacks("script-torrent-added-enabled", false, "script for torrents that are added"),
	lacks("script-torrent-added-filename", "", "script for torrents that are added"),
	lacks("script-torrent-done-seeding-enabled", false,
		"script for torrents that were served enough"),
	lacks("script-torrent-done-seeding-filename", "",
		"script for torrents that were served enough"),
	lacks("sequential-download", false, "sequential download of all torrents: set it for each"),
	lacks("tcp-enabled", true, "switch for TCP while it runs"),
	lacks("torrent-complete-verify-enabled",
		false, "second verification of complete torrents: every piece is verified when it arrives"),
	lacks("queue-stalled-enabled", true, "queue that counts stalled torrents"),
	lacks("utp-enabled", false, "uTP"),
}

func (c *call) session(s node.Settings) *session {
	x := &session{server: c.server, Settings: s, dialect: c.dialect, off: c.server.memory.off(0)}
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
	for _, s := range sessionSettings {
		if names == nil || wanted[canonical(s.name)] {
			out[c.dialect.key(s.name)] = s.get(x)
		}
	}
	return out, nil
}

// sessionSet changes settings: all of the request, or none if one of them is impossible.
func (c *call) sessionSet() (any, error) {
	var off values
	err := c.server.node.Change(func(s *node.Settings) error {
		x := c.session(*s)
		x.edit(c.reader)
		*s, off = x.Settings, x.off
		return c.err
	})
	if err != nil {
		return nil, c.failed(err)
	}
	c.server.memory.keep(0, off)
	return nil, nil
}

// edit changes the settings that the request names. r keeps the first error.
func (x *session) edit(r *reader) {
	for _, s := range sessionSettings {
		raw, named := r.args[canonical(s.name)]
		switch {
		case !named:
		case s.lacks != "":
			if !sameJSON(raw, s.get(x)) {
				r.note(lackingError(s.lacks))
			}
		case s.put != nil:
			s.put(x, r)
		}
	}
}

// sameJSON tells whether a client has sent the value that a field has already.
func sameJSON(raw json.RawMessage, v any) bool {
	if want, ok := v.(bool); ok {
		got, ok := parseFlag(raw)
		return ok && got == want
	}
	return foreign.Same(raw, v)
}
