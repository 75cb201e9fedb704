package qbittorrent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"time"

	"braid/node"
	"braid/node/web/foreign"
)

// preference is a setting as clients see it.
type preference struct {
	name string
	get  func(*node.Settings) any
	put  func(*node.Settings, json.RawMessage) error
}

// typed makes a preference of type T.
func typed[T any](name string, get func(*node.Settings) T, put func(*node.Settings, T)) preference {
	return checked(name, "of another type", func(T) bool { return true }, get, put)
}

// checked makes a preference that accepts only some values of type T. fault describes the others.
func checked[T any](
	name, fault string, right func(T) bool, get func(*node.Settings) T, put func(*node.Settings, T),
) preference {
	return preference{
		name: name,
		get:  func(s *node.Settings) any { return get(s) },
		put: func(s *node.Settings, raw json.RawMessage) error {
			var v T
			if err := json.Unmarshal(raw, &v); err != nil || !right(v) {
				return fail(http.StatusBadRequest, "%s: %s is %s", name, raw, fault)
			}
			put(s, v)
			return nil
		},
	}
}

// bounded makes a preference for a number from 0 to largest.
func bounded(
	name string, largest int, get func(*node.Settings) int, put func(*node.Settings, int),
) preference {
	fault := fmt.Sprintf("not a number from 0 to %d", largest)
	return checked(name, fault, func(v int) bool { return v >= 0 && v <= largest }, get, put)
}

// flag makes a preference for a switch of the node. If same is false, the node's switch is the
// opposite.
func flag(name string, same bool, of func(*node.Settings) *bool) preference {
	return typed(name, func(s *node.Settings) bool { return *of(s) == same },
		func(s *node.Settings, v bool) { *of(s) = v == same })
}

// most makes a preference for an upper bound; -1 is no bound.
func most(name string, of func(*node.Settings) *int) preference {
	return typed(name, func(s *node.Settings) int { return cmp.Or(*of(s), -1) },
		func(s *node.Settings, v int) { *of(s) = max(v, 0) })
}

// clock makes two preferences for a time of the day: its hour and its minute.
func clock(name string, of func(*node.Settings) *int) []preference {
	return []preference{
		bounded(name+"_hour", 23, func(s *node.Settings) int { return *of(s) / 60 },
			func(s *node.Settings, v int) { *of(s) = v*60 + *of(s)%60 }),
		bounded(name+"_min", 59, func(s *node.Settings) int { return *of(s) % 60 },
			func(s *node.Settings, v int) { *of(s) = *of(s)/60*60 + v }),
	}
}

// rates makes the preferences for limits in bytes per second; 0 or less is no limit.
func rates(prefix string, of func(*node.Settings) *node.Rates) (out []preference) {
	for name, down := range map[string]bool{"dl_limit": true, "up_limit": false} {
		out = append(out, typed(prefix+name,
			func(s *node.Settings) float64 { return float64(limitOf(*of(s), down)) },
			func(s *node.Settings, v float64) {
				*of(s) = withRate(*of(s), down, int(min(max(v, 0), 1<<53)))
			}))
	}
	return out
}

// limited makes two preferences for a limit: a value, which is negative if the limit is off, and a
// switch, which is applied last.
func limited(
	value string, get func(*node.Settings) float64, put func(*node.Settings, float64),
) []preference {
	on := value + "_enabled"
	return []preference{
		typed(value, func(s *node.Settings) float64 { return cmp.Or(max(get(s), 0), -1) },
			func(s *node.Settings, v float64) { put(s, max(v, 0)) }),
		{
			name: on,
			get:  func(s *node.Settings) any { return get(s) > 0 },
			put: func(s *node.Settings, raw json.RawMessage) error {
				switch {
				case string(raw) == "false":
					put(s, 0)
				case string(raw) != "true":
					return fail(http.StatusBadRequest, "%s: %s is not true or false", on, raw)
				case get(s) <= 0:
					return fail(http.StatusConflict, "%s: needs %s above 0", on, value)
				}
				return nil
			},
		},
	}
}

// limitedTime is limited for a time in minutes.
func limitedTime(value string, of func(*node.Settings) *time.Duration) []preference {
	return limited(value, func(s *node.Settings) float64 { return foreign.WholeMinutes(*of(s)) },
		func(s *node.Settings, v float64) { foreign.SetMinutes(of(s), v) })
}

// preferences has the settings that can be changed, in the order in which changes are applied.
var preferences = slices.Concat(
	rates("", func(s *node.Settings) *node.Rates { return &s.Rates }),
	rates("alt_", func(s *node.Settings) *node.Rates { return &s.Alternative.Rates }),
	clock("schedule_from", func(s *node.Settings) *int { return &s.Alternative.Schedule.From }),
	clock("schedule_to", func(s *node.Settings) *int { return &s.Alternative.Schedule.To }),
	limited("max_ratio", func(s *node.Settings) float64 { return s.Goal.Ratio },
		func(s *node.Settings, v float64) { s.Goal.Ratio = v }),
	limitedTime("max_seeding_time", func(s *node.Settings) *time.Duration { return &s.Goal.Time }),
	limitedTime("max_inactive_seeding_time",
		func(s *node.Settings) *time.Duration { return &s.Goal.Idle }),
	[]preference{
		flag("scheduler_enabled", true,
			func(s *node.Settings) *bool { return &s.Alternative.Schedule.On }),
		bounded("scheduler_days", 9,
			func(s *node.Settings) int { return daysNumber(s.Alternative.Schedule.Days) },
			func(s *node.Settings, v int) {
				if v != daysNumber(s.Alternative.Schedule.Days) { // keep a set without a number
					s.Alternative.Schedule.Days = daysOf(v)
				}
			}),
		most("max_active_downloads", func(s *node.Settings) *int { return &s.Queue.Downloads }),
		most("max_active_uploads", func(s *node.Settings) *int { return &s.Queue.Seeds }),
		most("max_connec_per_torrent", func(s *node.Settings) *int { return &s.PeerLimit }),
		typed("temp_path_enabled", func(s *node.Settings) bool { return s.CompleteDir != "" },
			func(s *node.Settings, v bool) {
				if !v && s.CompleteDir != "" {
					s.Dir, s.CompleteDir = s.CompleteDir, ""
				} else if v && s.CompleteDir == "" {
					s.CompleteDir = s.Dir
				}
			}),
		typed("save_path", func(s *node.Settings) string { return foreign.Final(*s) },
			func(s *node.Settings, v string) {
				if s.CompleteDir != "" && v != "" {
					s.CompleteDir = v
				} else {
					s.Dir = v // setPreferences refuses an empty one
				}
			}),
		typed("temp_path", func(s *node.Settings) string { return s.Dir },
			func(s *node.Settings, v string) {
				if s.CompleteDir != "" {
					s.Dir = v
				}
			}),
		flag("add_stopped_enabled", true, func(s *node.Settings) *bool { return &s.AddPaused }),
		flag("start_paused_enabled", true, func(s *node.Settings) *bool { return &s.AddPaused }),
		typed("autorun_enabled",
			func(s *node.Settings) bool { return s.Script != "" && !s.ScriptOff },
			func(s *node.Settings, v bool) { s.ScriptOff = !v }),
		typed("autorun_program", func(s *node.Settings) string { return s.Script },
			func(s *node.Settings, v string) { s.Script = v }),
		flag("pex", false, func(s *node.Settings) *bool { return &s.NoPEX }),
		flag("lsd", true, func(s *node.Settings) *bool { return &s.LSD }),
	},
)

// fixedPreferences have one value each, and every other value is refused.
var fixedPreferences = map[string]any{
	"queueing_enabled": true, "max_active_torrents": -1, "dont_count_slow_torrents": true,
	"max_ratio_act": 0, // the torrent is stopped
	"upnp":          false, "random_port": false, "proxy_type": "None",
	"bittorrent_protocol": 1, "encryption": 0, "anonymous_mode": false, "ip_filter_enabled": false,
	"max_connec": -1, "max_uploads": -1, "max_uploads_per_torrent": -1,
	"auto_tmm_enabled": false, "preallocate_all": false, "incomplete_files_ext": false,
	"torrent_content_layout": "Original", "add_trackers_enabled": false, "locale": "en",
	"web_ui_csrf_protection_enabled": true, "web_ui_host_header_validation_enabled": true,
}

// daysNumber returns 0 for every day, 1 for Monday to Friday, 2 for the weekend, and 3 to 9 for
// Monday to Sunday. Other sets of days have no number, and get 0.
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

// fixedPreferences returns them, with those that only a restart can change.
func (c *call) fixedPreferences() map[string]any {
	fixed := maps.Clone(fixedPreferences)
	fixed["dht"] = c.node.DHT() != nil
	for _, p := range c.node.Listening() {
		fixed["listen_port"] = p.Port()
		break
	}
	return fixed
}

func (c *call) preferences() (any, error) {
	s, out := c.node.Settings(), c.fixedPreferences()
	for _, p := range preferences {
		out[p.name] = p.get(&s)
	}
	return out, nil
}

// setPreferences changes the preferences in the argument json: all of them, or none. It ignores
// unknown names, as qBittorrent does.
func (c *call) setPreferences() error {
	var wanted map[string]json.RawMessage
	if json.Unmarshal([]byte(c.needed("json")), &wanted) != nil {
		c.wrong("json: not an object in JSON")
	}
	if c.err != nil {
		return c.err
	}
	return c.node.Change(func(s *node.Settings) error {
		before := s.Dir
		for _, p := range preferences {
			if raw, ok := wanted[p.name]; ok {
				if err := p.put(s, raw); err != nil {
					return err
				}
			}
		}
		if s.Dir == "" && before != "" { // qBittorrent has a default, braid has none
			return fail(http.StatusBadRequest, "save_path, temp_path: want absolute paths")
		}
		for name, v := range c.fixedPreferences() {
			if raw, ok := wanted[name]; ok && !foreign.Same(raw, v) {
				return lacking("other value for " + name)
			}
		}
		return nil
	})
}

func (c *call) buildInfo() (any, error) {
	return map[string]any{
		"bitness":    strconv.IntSize,
		"boost":      "",
		"libtorrent": "",
		"openssl":    "",
		"qt":         "",
		"zlib":       "",
		"platform":   runtime.GOOS,
	}, nil
}

func (c *call) transferInfo() (any, error) { return c.figures(c.node.Stats()), nil }

// figures returns the figures of the whole program.
func (c *call) figures(now node.Stats) map[string]any {
	s := c.node.Settings()
	rates, alternative := s.RatesAt(time.Now())
	dhtNodes := 0
	if d := c.node.DHT(); d != nil {
		dhtNodes = d.Nodes()
	}
	return map[string]any{
		"connection_status":    "connected",
		"dht_nodes":            dhtNodes,
		"dl_info_data":         now.Fetched,
		"dl_info_speed":        int64(now.ReadRate / 8),
		"dl_rate_limit":        limitOf(rates, true),
		"queueing":             true,
		"refresh_interval":     1500,
		"up_info_data":         now.Sent,
		"up_info_speed":        int64(now.WriteRate / 8),
		"up_rate_limit":        limitOf(rates, false),
		"use_alt_speed_limits": alternative,
	}
}

func (c *call) speedLimitsMode() (any, error) {
	_, on := c.node.Settings().RatesAt(time.Now())
	return text([]string{"0", "1"}[foreign.Number(on)]), nil
}

// noCache has the figures of a cache, which braid does not have. Some clients need all of them.
var noCache = map[string]any{
	"average_time_queue": 0, "queued_io_jobs": 0, "total_buffers_size": 0, "total_queued_size": 0,
	"read_cache_hits": "0", "read_cache_overload": "0", "write_cache_overload": "0",
}

// serverState returns the figures of the whole program for sync/maindata.
func (c *call) serverState() map[string]any {
	now := c.node.Stats()
	out, ever, ratio := c.figures(now), now.Ever, "0"
	if ever.Fetched > 0 {
		b, _ := json.Marshal(math.Round(float64(ever.Sent)/float64(ever.Fetched)*100) / 100)
		ratio = string(b)
	}
	out["alltime_dl"], out["alltime_ul"] = ever.Fetched, ever.Sent //nolint:misspell // API names
	out["global_ratio"] = ratio
	out["free_space_on_disk"] = foreign.FreeSpace(c.node.Settings())
	out["total_peer_connections"] = now.Peers
	out["use_subcategories"] = false
	maps.Copy(out, noCache)
	return out
}
