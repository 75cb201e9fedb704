package qbittorrent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"net/http"
	"runtime"
	"time"

	"braid/node"
	"braid/node/web/foreign"
	"braid/storage"
)

// preference is a setting. Without put it has one value, and no other can be set.
type preference struct {
	name string
	get  func(node.Settings) any
	put  func(*node.Settings, json.RawMessage) error
}

// typed is a preference of type T.
func typed[T any](name string, get func(node.Settings) T, put func(*node.Settings, T)) preference {
	return preference{name, func(s node.Settings) any { return get(s) }, func(s *node.Settings, raw json.RawMessage) error {
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return fail(http.StatusBadRequest, "%s: %s is of another type", name, raw)
		}
		put(s, v)
		return nil
	}}
}

// bounded is a preference from 0 to a largest value.
func bounded(name string, largest int, get func(node.Settings) int, put func(*node.Settings, int)) preference {
	return preference{name, func(s node.Settings) any { return get(s) }, func(s *node.Settings, raw json.RawMessage) error {
		var v int
		if err := json.Unmarshal(raw, &v); err != nil || v < 0 || v > largest {
			return fail(http.StatusBadRequest, "%s: %s is not a number from 0 to %d", name, raw, largest)
		}
		put(s, v)
		return nil
	}}
}

// clock is a time of the day: two preferences for its hour and its minute.
func clock(name string, of func(*node.Settings) *int) []preference {
	return []preference{
		bounded(name+"_hour", 23, func(s node.Settings) int { return *of(&s) / 60 },
			func(s *node.Settings, v int) { *of(s) = v*60 + *of(s)%60 }),
		bounded(name+"_min", 59, func(s node.Settings) int { return *of(&s) % 60 },
			func(s *node.Settings, v int) { *of(s) = *of(s)/60*60 + v }),
	}
}

func fixed(name string, v any) preference {
	return preference{name: name, get: func(node.Settings) any { return v }}
}

// rate is a limit in bytes per second; 0 or less is none.
func rate(name string, down, alternative bool) preference {
	of := func(s *node.Settings) *node.Rates {
		if alternative {
			return &s.Alternative.Rates
		}
		return &s.Rates
	}
	return typed(name, func(s node.Settings) float64 { return float64(limitOf(*of(&s), down)) },
		func(s *node.Settings, v float64) { *of(s) = withRate(*of(s), down, int(min(max(v, 0), 1<<53))) })
}

// limited is a limit of two preferences: a value, which is negative if it is off, and a switch, which
// has the last word.
func limited(on, value string, get func(node.Settings) float64, put func(*node.Settings, float64)) []preference {
	return []preference{
		typed(value, func(s node.Settings) float64 { return cmp.Or(max(get(s), 0), -1) },
			func(s *node.Settings, v float64) { put(s, max(v, 0)) }),
		{on, func(s node.Settings) any { return get(s) > 0 }, func(s *node.Settings, raw json.RawMessage) error {
			switch {
			case string(raw) == "false":
				put(s, 0)
			case string(raw) != "true":
				return fail(http.StatusBadRequest, "%s: %s is not true or false", on, raw)
			case get(*s) <= 0:
				return fail(http.StatusConflict, "%s: needs %s above 0", on, value)
			}
			return nil
		}},
	}
}

// preferencesOf are those that a node has, and those that clients decide by.
func preferencesOf() [][]preference {
	return [][]preference{
		{
			rate("dl_limit", true, false), rate("up_limit", false, false),
			rate("alt_dl_limit", true, true), rate("alt_up_limit", false, true),
			typed("scheduler_enabled", func(s node.Settings) bool { return s.Alternative.Schedule.On },
				func(s *node.Settings, v bool) { s.Alternative.Schedule.On = v }),
			bounded("scheduler_days", 9, func(s node.Settings) int { return daysNumber(s.Alternative.Schedule.Days) },
				func(s *node.Settings, v int) {
					if v != daysNumber(s.Alternative.Schedule.Days) { // sets without a number stay
						s.Alternative.Schedule.Days = daysOf(v)
					}
				}),
		},
		clock("schedule_from", func(s *node.Settings) *int { return &s.Alternative.Schedule.From }),
		clock("schedule_to", func(s *node.Settings) *int { return &s.Alternative.Schedule.To }),
		{
			fixed("queueing_enabled", true),
			typed("max_active_downloads", func(s node.Settings) int { return cmp.Or(s.Queue.Downloads, -1) },
				func(s *node.Settings, v int) { s.Queue.Downloads = max(v, 0) }),
			typed("max_active_uploads", func(s node.Settings) int { return cmp.Or(s.Queue.Seeds, -1) },
				func(s *node.Settings, v int) { s.Queue.Seeds = max(v, 0) }),
			fixed("max_active_torrents", -1),
			fixed("dont_count_slow_torrents", true),
		},
		limited("max_ratio_enabled", "max_ratio", func(s node.Settings) float64 { return s.Goal.Ratio },
			func(s *node.Settings, v float64) { s.Goal.Ratio = v }),
		limited("max_seeding_time_enabled", "max_seeding_time", func(s node.Settings) float64 { return s.Goal.Time.Minutes() },
			func(s *node.Settings, v float64) { s.Goal.Time = foreign.Minutes(v) }),
		limited("max_inactive_seeding_time_enabled", "max_inactive_seeding_time", func(s node.Settings) float64 { return s.Goal.Idle.Minutes() },
			func(s *node.Settings, v float64) { s.Goal.Idle = foreign.Minutes(v) }),
		{fixed("max_ratio_act", 0)}, // the torrent is stopped
		{
			typed("temp_path_enabled", func(s node.Settings) bool { return s.CompleteDir != "" }, func(s *node.Settings, v bool) {
				if !v && s.CompleteDir != "" {
					s.Dir, s.CompleteDir = s.CompleteDir, ""
				} else if v && s.CompleteDir == "" {
					s.CompleteDir = s.Dir
				}
			}),
			typed("save_path", foreign.Final, func(s *node.Settings, v string) {
				if s.CompleteDir != "" {
					s.CompleteDir = v
				} else {
					s.Dir = v
				}
			}),
			typed("temp_path", func(s node.Settings) string { return s.Dir }, func(s *node.Settings, v string) {
				if s.CompleteDir != "" {
					s.Dir = v
				}
			}),
			typed("add_stopped_enabled", func(s node.Settings) bool { return s.AddPaused }, func(s *node.Settings, v bool) { s.AddPaused = v }),
			typed("start_paused_enabled", func(s node.Settings) bool { return s.AddPaused }, func(s *node.Settings, v bool) { s.AddPaused = v }),
			typed("autorun_enabled", func(s node.Settings) bool { return s.Script != "" && !s.ScriptOff },
				func(s *node.Settings, v bool) { s.ScriptOff = !v }),
			typed("autorun_program", func(s node.Settings) string { return s.Script }, func(s *node.Settings, v string) { s.Script = v }),
			typed("max_connec_per_torrent", func(s node.Settings) int { return cmp.Or(s.PeerLimit, -1) },
				func(s *node.Settings, v int) { s.PeerLimit = max(v, 0) }),
		},
		{
			typed("pex", func(s node.Settings) bool { return !s.NoPEX }, func(s *node.Settings, v bool) { s.NoPEX = !v }),
			typed("lsd", func(s node.Settings) bool { return s.LSD }, func(s *node.Settings, v bool) { s.LSD = v }),
			fixed("dht", false), fixed("upnp", false), fixed("encryption", 0),
			fixed("bittorrent_protocol", 1), fixed("anonymous_mode", false), fixed("auto_tmm_enabled", false),
			fixed("preallocate_all", false), fixed("incomplete_files_ext", false), fixed("torrent_content_layout", "Original"),
			fixed("max_connec", -1), fixed("max_uploads", -1), fixed("max_uploads_per_torrent", -1), fixed("random_port", false),
			fixed("ip_filter_enabled", false), fixed("add_trackers_enabled", false), fixed("web_ui_csrf_protection_enabled", true),
			fixed("web_ui_host_header_validation_enabled", true), fixed("locale", "en"), fixed("proxy_type", "None"),
		},
	}
}

// daysNumber is 0 for every day, 1 for Monday to Friday, 2 for the weekend, and 3 to 9 for Monday to
// Sunday. Other sets of days have no number: they are told as every day.
func daysNumber(days [7]bool) int {
	for n := range 10 {
		if daysOf(n) == days {
			return n
		}
	}
	return 0
}

func daysOf(n int) (days [7]bool) { // Sunday first
	for i := range days {
		weekend := i == 0 || i == 6
		days[i] = n == 0 || n == 1 && !weekend || n == 2 && weekend || n >= 3 && i == (n-2)%7
	}
	return days
}

func (c *call) preferences() (any, error) {
	s, out := c.node.Settings(), map[string]any{}
	for _, group := range preferencesOf() {
		for _, p := range group {
			out[p.name] = p.get(s)
		}
	}
	for _, p := range c.node.Listening() {
		out["listen_port"] = p.Port()
		break
	}
	return out, nil
}

// setPreferences changes the preferences in the argument json: all of them, or none. It passes over
// names that it does not know, as qBittorrent does.
func (c *call) setPreferences() (any, error) {
	var wanted map[string]json.RawMessage
	if json.Unmarshal([]byte(c.needed("json")), &wanted) != nil {
		c.wrong("json: not an object in JSON")
	}
	if c.err != nil {
		return nil, c.err
	}
	var err error
	changed := c.node.Change(func(s *node.Settings) {
		after := *s
		for _, group := range preferencesOf() {
			for _, p := range group {
				raw, ok := wanted[p.name]
				switch {
				case !ok || err != nil:
				case p.put != nil:
					err = p.put(&after, raw)
				case !same(raw, p.get(after)):
					err = lacking("other value for " + p.name)
				}
			}
		}
		if err == nil {
			*s = after
		}
	})
	return nil, cmp.Or(err, changed)
}

func same(raw json.RawMessage, v any) bool {
	b, err := json.Marshal(v)
	return err == nil && bytes.Equal(bytes.TrimSpace(raw), b)
}

func (c *call) buildInfo() (any, error) {
	return map[string]any{
		"bitness": 32 << (^uint(0) >> 63), "boost": "", "libtorrent": "", "openssl": "", "qt": "", "zlib": "", "platform": runtime.GOOS,
	}, nil
}

// transferInfo is the state of the whole program.
func (c *call) transferInfo() (any, error) {
	s, now := c.node.Settings(), c.node.Stats()
	rates, alternative := s.RatesAt(time.Now())
	return map[string]any{
		"connection_status": "connected", "dht_nodes": 0, "dl_info_data": now.Fetched, "dl_info_speed": int64(now.ReadRate / 8),
		"dl_rate_limit": limitOf(rates, true), "up_info_data": now.Sent, "up_info_speed": int64(now.WriteRate / 8),
		"up_rate_limit": limitOf(rates, false), "use_alt_speed_limits": alternative, "queueing": true, "refresh_interval": 1500,
	}, nil
}

func (c *call) speedLimitsMode() (any, error) {
	_, on := c.node.Settings().RatesAt(time.Now())
	return text([]string{"0", "1"}[number(on)]), nil
}

// serverState is what sync/maindata tells of the whole program.
func (c *call) serverState() map[string]any {
	info, _ := c.transferInfo()
	out := info.(map[string]any)
	ever, dir := c.node.Totals(), c.node.Settings().Dir
	free, _, err := storage.DiskSpace(dir)
	if err != nil {
		free = -1
	}
	ratio := "0"
	if ever.Fetched > 0 {
		b, _ := json.Marshal(math.Round(float64(ever.Sent)/float64(ever.Fetched)*100) / 100)
		ratio = string(b)
	}
	out["alltime_dl"], out["alltime_ul"], out["global_ratio"] = ever.Fetched, ever.Sent, ratio //nolint:misspell // the names of the API
	out["free_space_on_disk"], out["total_peer_connections"] = free, c.node.Stats().Peers
	out["use_subcategories"], out["queued_io_jobs"], out["read_cache_hits"] = false, 0, "0"
	return out
}
