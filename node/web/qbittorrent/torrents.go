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
)

// unlimitedETA is how clients know a time that is unknown: 100 days.
const unlimitedETA = 8640000

// torrentInfo is a torrent in torrents/info and sync/maindata. Fields without a value from the node
// are what docs/rpc.md says that braid lacks.
type torrentInfo struct {
	AddedOn                  int64   `json:"added_on"`
	AmountLeft               int64   `json:"amount_left"`
	AutoTMM                  bool    `json:"auto_tmm"`
	Availability             float64 `json:"availability"`
	Category                 string  `json:"category"`
	Comment                  string  `json:"comment"`
	Completed                int64   `json:"completed"`
	CompletionOn             int64   `json:"completion_on"`
	ContentPath              string  `json:"content_path"`
	DownLimit                int64   `json:"dl_limit"`
	DownSpeed                int64   `json:"dlspeed"`
	DownloadPath             string  `json:"download_path"`
	Downloaded               int64   `json:"downloaded"`
	DownloadedSession        int64   `json:"downloaded_session"`
	ETA                      int64   `json:"eta"`
	FirstLastPiecePrio       bool    `json:"f_l_piece_prio"`
	ForceStart               bool    `json:"force_start"`
	HasMetadata              bool    `json:"has_metadata"`
	Hash                     string  `json:"hash"`
	InactiveSeedingTimeLimit int64   `json:"inactive_seeding_time_limit"`
	InfoHashV1               string  `json:"infohash_v1"`
	InfoHashV2               string  `json:"infohash_v2"`
	LastActivity             int64   `json:"last_activity"`
	MagnetURI                string  `json:"magnet_uri"`
	MaxInactiveSeedingTime   int64   `json:"max_inactive_seeding_time"`
	MaxRatio                 float64 `json:"max_ratio"`
	MaxSeedingTime           int64   `json:"max_seeding_time"`
	Name                     string  `json:"name"`
	NumComplete              int     `json:"num_complete"`
	NumIncomplete            int     `json:"num_incomplete"`
	NumLeechs                int     `json:"num_leechs"`
	NumSeeds                 int     `json:"num_seeds"`
	Popularity               float64 `json:"popularity"`
	Priority                 int     `json:"priority"`
	Private                  bool    `json:"private"`
	Progress                 float64 `json:"progress"`
	Ratio                    float64 `json:"ratio"`
	RatioLimit               float64 `json:"ratio_limit"`
	Reannounce               int64   `json:"reannounce"`
	RootPath                 string  `json:"root_path"`
	SavePath                 string  `json:"save_path"`
	SeedingTime              int64   `json:"seeding_time"`
	SeedingTimeLimit         int64   `json:"seeding_time_limit"`
	SeenComplete             int64   `json:"seen_complete"`
	Sequential               bool    `json:"seq_dl"`
	Size                     int64   `json:"size"`
	State                    string  `json:"state"`
	SuperSeeding             bool    `json:"super_seeding"`
	Tags                     string  `json:"tags"`
	TimeActive               int64   `json:"time_active"`
	TotalSize                int64   `json:"total_size"`
	Tracker                  string  `json:"tracker"`
	TrackersCount            int     `json:"trackers_count"`
	UpLimit                  int64   `json:"up_limit"`
	Uploaded                 int64   `json:"uploaded"`
	UploadedSession          int64   `json:"uploaded_session"`
	UpSpeed                  int64   `json:"upspeed"`
}

// describe is a torrent as clients see it.
func describe(t *node.Torrent, s node.Status, settings node.Settings) torrentInfo {
	src := t.Source()
	category, tags := parse(s.Labels)
	goal := goalOf(s.Goal, settings.Goal)
	x := torrentInfo{
		AddedOn: stamp(s.Added), AmountLeft: s.Total - s.Have, Availability: -1, Category: category, Comment: src.Comment,
		Completed: s.Have, CompletionOn: stamp(s.Completed), DownLimit: limitOf(s.Rates, true), DownSpeed: int64(s.DownRate / 8),
		Downloaded: s.Downloaded, DownloadedSession: s.Downloaded, ETA: eta(s), ForceStart: s.Forced, HasMetadata: !s.IsMagnet,
		Hash: s.InfoHash, InactiveSeedingTimeLimit: minutesOf(s.Goal.Idle), InfoHashV1: s.InfoHash, InfoHashV2: src.HashV2,
		LastActivity: stamp(s.LastActive), MagnetURI: src.Magnet(), MaxInactiveSeedingTime: minutesOf(goal.Idle),
		MaxRatio: ratioOf(goal.Ratio), MaxSeedingTime: minutesOf(goal.Time), Name: s.Name, NumComplete: -1, NumIncomplete: -1,
		NumLeechs: max(s.Getting, s.Peers-s.Sending), NumSeeds: s.Sending, Priority: s.QueuePosition + 1, Private: s.Private,
		Progress: progress(s), Ratio: s.Ratio, RatioLimit: ratioOf(s.Goal.Ratio), SavePath: s.Storage.Dir,
		SeedingTime: seconds(s.SeedingFor), SeedingTimeLimit: minutesOf(s.Goal.Time), SeenComplete: stamp(s.Completed),
		Sequential: s.Sequential, Size: s.Total, State: stateOf(s), SuperSeeding: s.SuperSeeding != client.NoSuperSeeding,
		Tags: strings.Join(tags, ", "), TimeActive: seconds(s.ActiveFor), TotalSize: s.Size, UpLimit: limitOf(s.Rates, false),
		Uploaded: s.Uploaded, UploadedSession: s.Uploaded, UpSpeed: int64(s.UpRate / 8),
	}
	if s.IsMagnet {
		x.TotalSize = -1
	} else {
		x.ContentPath = filepath.Join(s.Storage.Dir, src.Layout.Name)
		if s.Files > 1 {
			x.RootPath = x.ContentPath
		}
	}
	if a := seconds(s.ActiveFor); a > 0 && s.Ratio > 0 {
		x.Popularity = s.Ratio / (float64(a) / (30 * 24 * 3600))
	}
	for _, tier := range t.Trackers() {
		x.TrackersCount++
		if tier.Answered && x.Tracker == "" {
			x.Tracker = tier.URL
		}
	}
	return x
}

func stamp(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return t.Unix()
}

func seconds(d time.Duration) int64 { return int64(max(d, 0) / time.Second) }

// Limits of seeding: -2 stands for the global one, -1 for none.
const (
	globalLimit = -2
	noLimit     = -1
)

func ratioOf(r float64) float64 {
	switch {
	case r == 0:
		return globalLimit
	case r < 0:
		return noLimit
	}
	return r
}

func minutesOf(d time.Duration) int64 {
	switch {
	case d == 0:
		return globalLimit
	case d < 0:
		return noLimit
	}
	return int64(math.Round(d.Minutes()))
}

// goalOf is the goal that holds. Its parts are negative if there is no limit.
func goalOf(own, global node.Goal) node.Goal {
	return node.Goal{
		Ratio: cmp.Or(own.Ratio, global.Ratio, -1), Time: cmp.Or(own.Time, global.Time, -1), Idle: cmp.Or(own.Idle, global.Idle, -1),
	}
}

// limitOf is a limit in bytes per second; 0 is none.
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
	if s.Phase == client.Checking && s.Size > 0 {
		return float64(s.Checked) / float64(s.Size)
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
	return min(seconds(s.Remaining), unlimitedETA)
}

func isComplete(s node.Status) bool { return !s.IsMagnet && s.Total > 0 && s.Have >= s.Total }

// stateOf is qBittorrent's name of the state.
func stateOf(s node.Status) string {
	side := "DL"
	if isComplete(s) {
		side = "UP"
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
	case node.Starting:
		return "checkingResumeData"
	}
	switch {
	case s.Phase == client.Checking:
		return "checking" + side
	case s.IsMagnet && s.Forced:
		return "forcedMetaDL"
	case s.IsMagnet:
		return "metaDL"
	case s.Forced:
		return "forced" + side
	case side == "UP" && s.UpRate == 0:
		return "stalledUP"
	case side == "UP":
		return "uploading"
	case s.DownRate == 0:
		return "stalledDL"
	}
	return "downloading"
}

// filters are the values of the argument filter of torrents/info. Those with two names had the second
// one before version 5.
var filters = map[string]func(torrentInfo) bool{
	"all":         func(torrentInfo) bool { return true },
	"downloading": func(x torrentInfo) bool { return x.AmountLeft > 0 || !x.HasMetadata },
	"seeding": func(x torrentInfo) bool {
		return strings.HasSuffix(x.State, "UP") && !isStopped(x) || x.State == "uploading"
	},
	"completed":           func(x torrentInfo) bool { return x.HasMetadata && x.AmountLeft == 0 },
	"stopped":             isStopped,
	"paused":              isStopped,
	"running":             func(x torrentInfo) bool { return !isStopped(x) },
	"resumed":             func(x torrentInfo) bool { return !isStopped(x) },
	"active":              func(x torrentInfo) bool { return x.UpSpeed > 0 || x.DownSpeed > 0 },
	"inactive":            func(x torrentInfo) bool { return x.UpSpeed == 0 && x.DownSpeed == 0 },
	"stalled":             func(x torrentInfo) bool { return strings.HasPrefix(x.State, "stalled") },
	"stalled_uploading":   func(x torrentInfo) bool { return x.State == "stalledUP" },
	"stalled_downloading": func(x torrentInfo) bool { return x.State == "stalledDL" },
	"checking":            func(x torrentInfo) bool { return strings.HasPrefix(x.State, "checking") },
	"moving":              func(x torrentInfo) bool { return x.State == "moving" },
	"errored":             func(x torrentInfo) bool { return x.State == "error" },
}

func isStopped(x torrentInfo) bool {
	return strings.HasPrefix(x.State, "stopped") || x.State == "error"
}

// all describes all torrents, in the order of the queue.
func (s *server) all() []torrentInfo {
	settings := s.node.Settings()
	var out []torrentInfo
	for _, x := range s.node.Statuses() {
		if t, err := s.node.Torrent(x.InfoHash); err == nil {
			out = append(out, describe(t, x, settings))
		}
	}
	return out
}

// info lists torrents: filtered, sorted, and from an offset.
func (c *call) info() (any, error) {
	keep, known := filters[cmp.Or(c.text("filter"), "all")]
	private, reverse := c.flag("private"), c.flag("reverse")
	limit, offset := c.whole("limit", 0), c.whole("offset", 0)
	hashes := split(strings.ToLower(c.text("hashes")), "|")
	if c.err != nil {
		return nil, c.err
	}
	out := []torrentInfo{}
	for _, x := range c.all() {
		tags := split(x.Tags, ",")
		switch {
		case known && !keep(x):
		case len(hashes) > 0 && !slices.Contains(hashes, x.Hash):
		case c.has("category") && c.text("category") != x.Category:
		case c.has("tag") && c.text("tag") == "" && len(tags) > 0:
		case c.text("tag") != "" && !slices.Contains(tags, c.text("tag")):
		case private != nil && *private != x.Private:
		default:
			out = append(out, x)
		}
	}
	if by := c.text("sort"); by != "" {
		sortBy(out, by)
	}
	if reverse != nil && *reverse {
		slices.Reverse(out)
	}
	if offset < 0 {
		offset = max(len(out)+offset, 0)
	}
	out = out[min(offset, len(out)):]
	if limit > 0 {
		out = out[:min(limit, len(out))]
	}
	return out, nil
}

// properties are details of one torrent.
func (c *call) properties() (any, error) {
	t, err := c.torrent()
	if err != nil {
		return nil, err
	}
	s := t.Status()
	x := describe(t, s, c.node.Settings())
	have := 0
	if s.PieceLength > 0 {
		have = int((s.Size - s.Missing) / s.PieceLength)
	}
	src := t.Source()
	layout := src.Layout
	pieces := layout.Pieces()
	if s.Missing == 0 {
		have = pieces
	}
	average := func(bytes int64) int64 {
		if a := seconds(s.ActiveFor); a > 0 {
			return bytes / a
		}
		return 0
	}
	dropped := s.Dropped * s.PieceLength
	return map[string]any{
		"addition_date": x.AddedOn, "comment": x.Comment, "completion_date": x.CompletionOn, "created_by": src.Creator, "creation_date": stamp(src.Created),
		"dl_limit": x.DownLimit, "dl_speed": x.DownSpeed, "dl_speed_avg": average(x.Downloaded), "download_path": "", "eta": x.ETA,
		"has_metadata": x.HasMetadata, "hash": x.Hash, "infohash_v1": x.InfoHashV1, "infohash_v2": x.InfoHashV2, "is_private": x.Private,
		"private": x.Private, "last_seen": x.SeenComplete, "name": x.Name, "nb_connections": s.Peers, "nb_connections_limit": limitOrNone(s.PeerLimit),
		"peers": x.NumLeechs, "peers_total": -1, "piece_size": s.PieceLength, "pieces_have": have, "pieces_num": pieces, "popularity": x.Popularity,
		"progress": x.Progress, "reannounce": 0, "save_path": x.SavePath, "seeding_time": x.SeedingTime, "seeds": x.NumSeeds, "seeds_total": -1,
		"share_ratio": x.Ratio, "time_elapsed": x.TimeActive, "total_downloaded": x.Downloaded, "total_downloaded_session": x.Downloaded,
		"total_size": x.TotalSize, "total_uploaded": x.Uploaded, "total_uploaded_session": x.Uploaded, "total_wasted": s.Wasted + dropped,
		"up_limit": x.UpLimit, "up_speed": x.UpSpeed, "up_speed_avg": average(x.Uploaded),
	}, nil
}

func limitOrNone(n int) int { return cmp.Or(n, noLimit) }

func (c *call) torrentLimits(down bool) (any, error) {
	out := map[string]int64{}
	for _, t := range c.torrents() {
		out[t.InfoHash()] = limitOf(t.Status().Rates, down)
	}
	return out, c.err
}

func rateText(r node.Rates, down bool) (any, error) {
	return text(fmt.Sprint(limitOf(r, down))), nil
}

// export is the .torrent file.
func (c *call) export() (any, error) {
	t, err := c.torrent()
	if err != nil {
		return nil, err
	}
	b := t.Source().Torrent()
	if b == nil {
		return nil, fail(http.StatusConflict, "it is not known yet what is in the torrent")
	}
	return file{t.InfoHash() + ".torrent", b}, nil
}
