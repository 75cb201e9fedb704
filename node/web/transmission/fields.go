package transmission

import (
	"cmp"
	"encoding/base64"
	"math"
	"mime"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"braid/client"
	"braid/node"
	"braid/node/web/foreign"
)

// Values of the field status.
const (
	stopped = iota
	verifyQueued
	verifying
	downloadQueued
	downloading
	seedQueued
	seeding
)

// Values of the modes of seeding limits.
const (
	limitGlobal = iota // the session's
	limitOwn
	limitNone
)

// Values of the field eta.
const (
	etaNone    = -1
	etaUnknown = -2
)

// torrentFields are the fields of torrent_get, in alphabetical order. docs/rpc.md lists those whose
// values are fixed, because braid lacks what they describe.
var torrentFields = table[*view]{
	{"activity_date", camel, func(v *view) any { return stamp(v.status.LastActive) }},
	{"added_date", camel, func(v *view) any { return stamp(v.status.Added) }},
	{"availability", camel, func(v *view) any { return availability(v) }},
	{"bandwidth_priority", camel, func(v *view) any { return int(v.status.Priority) }},
	{"bytes_completed", camel, func(v *view) any {
		return mapped(v.files(), func(f node.File) any { return f.Have })
	}},
	{"comment", camel, func(v *view) any { return v.status.Source.Comment }},
	{"corrupt_ever", camel, func(v *view) any {
		return v.status.Dropped * v.status.Source.Layout.PieceLength
	}},
	{"creator", camel, func(v *view) any { return v.status.Source.Creator }},
	{"date_created", camel, func(v *view) any { return stamp(v.status.Source.Created) }},
	{"desired_available", camel, func(v *view) any { return desiredAvailable(v) }},
	{"done_date", camel, func(v *view) any { return stamp(v.status.Completed) }},
	{"download_dir", camel, func(v *view) any { return v.status.Storage.Dir }},
	{"download_limit", camel, func(v *view) any { return kilobytes(v.status.Rates.Download) }},
	{"download_limited", camel, func(v *view) any {
		return v.status.Rates.Download > 0 && !v.status.Rates.DownloadOff
	}},
	{"downloaded_ever", camel, func(v *view) any { return v.status.Fetched }},
	{"edit_date", camel, func(*view) any { return 0 }},
	{"error", camel, func(v *view) any { code, _ := v.trouble(); return code }},
	{"error_string", camel, func(v *view) any { _, text := v.trouble(); return text }},
	{"eta", camel, func(v *view) any { return v.eta() }},
	{"eta_idle", camel, func(v *view) any { return v.etaIdle() }},
	{"file_count", kebab, func(v *view) any { return len(v.status.Source.Layout.Files) }},
	{"file_stats", camel, func(v *view) any { return fileStats.list(v.dialect, v.files()) }},
	{"files", camel, func(v *view) any { return fileFields.list(v.dialect, v.files()) }},
	{"group", camel, func(*view) any { return "" }},
	{"hash_string", camel, func(v *view) any { return v.status.InfoHash }},
	{"have_unchecked", camel, func(*view) any { return 0 }},
	{"have_valid", camel, func(v *view) any { return v.have() }},
	{"honors_session_limits", camel, func(v *view) any { return !v.status.IgnoreGlobal }},
	{"id", camel, func(v *view) any { return v.id }},
	{"is_finished", camel, func(v *view) any { return v.status.State == node.Served }},
	{"is_private", camel, func(v *view) any { return v.status.Source.IsPrivate() }},
	{"is_stalled", camel, func(v *view) any { return v.status.Stalled }},
	{"labels", camel, func(v *view) any { return append([]string{}, v.status.Labels...) }},
	{"left_until_done", camel, func(v *view) any { return v.status.Total - v.status.Have }},
	{"magnet_link", camel, func(v *view) any { return v.status.Source.Magnet() }},
	{"manual_announce_time", camel, func(*view) any { return 0 }},
	{"max_connected_peers", camel, func(v *view) any { return v.peerLimit() }},
	{"metadata_percent_complete", camel, func(v *view) any {
		return float64(foreign.Number(!v.status.Source.IsMagnet()))
	}},
	// Clients look for files of this name.
	{"name", camel, func(v *view) any { return cmp.Or(v.status.Source.Name, v.status.Name) }},
	{"peer_limit", kebab, func(v *view) any { return v.peerLimit() }},
	{"peers", camel, func(v *view) any { return peerFields.list(v.dialect, v.peers()) }},
	{"peers_connected", camel, func(v *view) any { return v.status.Peers }},
	{"peers_from", camel, func(v *view) any { return peersFrom.object(v.dialect, v.peers()) }},
	{"peers_getting_from_us", camel, func(v *view) any { return v.status.Getting }},
	{"peers_sending_to_us", camel, func(v *view) any { return v.status.Sending }},
	{"percent_complete", camel, func(v *view) any {
		return share(v.have(), v.status.Source.Layout.Length)
	}},
	{"percent_done", camel, func(v *view) any { return share(v.status.Have, v.status.Total) }},
	{"piece_count", camel, func(v *view) any { return v.status.Source.Layout.Pieces() }},
	{"piece_size", camel, func(v *view) any { return v.status.Source.Layout.PieceLength }},
	{"pieces", camel, func(v *view) any { return bitfield(v) }},
	{"primary_mime_type", kebab, func(v *view) any { return primaryType(v.files()) }},
	{"priorities", camel, func(v *view) any {
		return mapped(v.files(), func(f node.File) any { return priority(f.Priority) })
	}},
	{"queue_position", camel, func(v *view) any { return v.status.QueuePosition }},
	{"rate_download", camel, func(v *view) any { return int64(v.status.ReadRate / 8) }},
	{"rate_upload", camel, func(v *view) any { return int64(v.status.WriteRate / 8) }},
	{"recheck_progress", camel, func(v *view) any { return v.rechecked() }},
	{"seconds_downloading", camel, func(v *view) any {
		return foreign.Seconds(v.status.ActiveFor - v.status.SeedingFor)
	}},
	{"seconds_seeding", camel, func(v *view) any { return foreign.Seconds(v.status.SeedingFor) }},
	{"seed_idle_limit", camel, func(v *view) any { return math.Ceil(v.idle().value) }},
	{"seed_idle_mode", camel, func(v *view) any { return v.idle().mode }},
	{"seed_ratio_limit", camel, func(v *view) any { return v.ratio().value }},
	{"seed_ratio_mode", camel, func(v *view) any { return v.ratio().mode }},
	{"sequential_download", snake, func(v *view) any { return v.status.Selection.Sequential }},
	{"sequential_download_from_piece", snake, func(*view) any { return 0 }},
	{"size_when_done", camel, func(v *view) any { return v.status.Total }},
	{"start_date", camel, func(v *view) any { return stamp(v.status.Started) }},
	{"status", camel, func(v *view) any { return v.state() }},
	{"torrent_file", camel, func(*view) any { return "" }},
	{"total_size", camel, func(v *view) any { return v.status.Source.Layout.Length }},
	{"tracker_list", camel, func(v *view) any { return trackerList(v.trackers()) }},
	{"tracker_stats", camel, func(v *view) any {
		return trackerStats.list(v.dialect, v.trackers())
	}},
	{"trackers", camel, func(v *view) any { return trackerFields.list(v.dialect, v.trackers()) }},
	{"upload_limit", camel, func(v *view) any { return kilobytes(v.status.Rates.Upload) }},
	{"upload_limited", camel, func(v *view) any {
		return v.status.Rates.Upload > 0 && !v.status.Rates.UploadOff
	}},
	{"upload_ratio", camel, func(v *view) any { return v.uploadRatio() }},
	{"uploaded_ever", camel, func(v *view) any { return v.status.Sent }},
	{"wanted", camel, func(v *view) any {
		return mapped(v.files(), func(f node.File) any {
			return foreign.Number(f.Priority != client.Skip)
		})
	}},
	{"webseeds", camel, func(v *view) any {
		return append([]string{}, v.status.WebSeedURLs()...)
	}},
	{"webseeds_sending_to_us", camel, func(*view) any { return 0 }},
}

var fileFields = table[node.File]{
	{"begin_piece", snake, func(f node.File) any { return f.FirstPiece }},
	{"bytes_completed", camel, func(f node.File) any { return f.Have }},
	{"end_piece", snake, func(f node.File) any { return f.EndPiece }},
	{"length", camel, func(f node.File) any { return f.Length }},
	{"name", camel, func(f node.File) any { return f.Path }},
}

var fileStats = table[node.File]{
	{"bytes_completed", camel, func(f node.File) any { return f.Have }},
	{"priority", camel, func(f node.File) any { return priority(f.Priority) }},
	{"wanted", camel, func(f node.File) any { return f.Priority != client.Skip }},
}

var peerFields = table[client.PeerProgress]{
	{"address", camel, func(p client.PeerProgress) any { return hostOfPeer(p.Peer) }},
	{"bytes_to_client", snake, func(p client.PeerProgress) any { return p.BytesRead }},
	{"bytes_to_peer", snake, func(p client.PeerProgress) any { return p.BytesWritten }},
	{"client_is_choked", camel, func(p client.PeerProgress) any { return p.Choked }},
	{"client_is_interested", camel, func(p client.PeerProgress) any { return p.Interested }},
	{"client_name", camel, func(p client.PeerProgress) any { return p.Name }},
	{"flag_str", camel, func(p client.PeerProgress) any {
		return strings.Join(foreign.Flags(p, "DdUuEIHX"), "")
	}},
	{"is_downloading_from", camel, func(p client.PeerProgress) any { return p.ReadRate > 0 }},
	{"is_encrypted", camel, func(p client.PeerProgress) any { return p.Transport != "tcp" }},
	{"is_incoming", camel, func(p client.PeerProgress) any { return p.Accepted }},
	{"is_uploading_to", camel, func(p client.PeerProgress) any { return p.WriteRate > 0 }},
	{"is_utp", camel, func(client.PeerProgress) any { return false }},
	{"peer_is_choked", camel, func(p client.PeerProgress) any { return p.Held }},
	{"peer_is_interested", camel, func(p client.PeerProgress) any { return p.PeerInterested }},
	{"port", camel, func(p client.PeerProgress) any {
		_, port := foreign.SplitPeer(p.Peer)
		return port
	}},
	{"progress", camel, func(p client.PeerProgress) any { return p.Have }},
	{"rate_to_client", camel, func(p client.PeerProgress) any { return int64(p.ReadRate / 8) }},
	{"rate_to_peer", camel, func(p client.PeerProgress) any { return int64(p.WriteRate / 8) }},
}

// peersFrom counts peers by the source of their address. Transmission has no counter for peers that
// the user or the torrent names, so they count as peers from the cache.
var peersFrom = table[[]client.PeerProgress]{
	{"from_cache", camel, from(client.FromUser, client.FromEarlier)},
	{"from_dht", camel, from(client.FromDHT)},
	{"from_incoming", camel, from(client.FromItself)},
	{"from_lpd", camel, from(client.FromLSD)},
	{"from_ltep", camel, from()},
	{"from_pex", camel, from(client.FromPEX)},
	{"from_tracker", camel, from(client.FromTracker)},
}

func from(sources ...client.PeerSource) func([]client.PeerProgress) any {
	return func(all []client.PeerProgress) any {
		n := 0
		for _, p := range all {
			n += foreign.Number(slices.Contains(sources, p.Source))
		}
		return n
	}
}

var trackerFields = table[numberedTracker]{
	{"announce", camel, func(t numberedTracker) any { return t.URL }},
	{"id", camel, func(t numberedTracker) any { return t.id }},
	{"scrape", camel, func(t numberedTracker) any { return scrapeURL(t.URL) }},
	{"sitename", camel, func(t numberedTracker) any { return siteName(t.URL) }},
	{"tier", camel, func(t numberedTracker) any { return t.Tier }},
}

// trackerStats has fixed values for scrapes, which braid does not send: it learns the numbers of a
// swarm when it announces.
var trackerStats = append(table[numberedTracker]{
	{"announce_state", camel, func(t numberedTracker) any { return foreign.Number(!t.Last.IsZero()) }},
	{"download_count", camel, func(numberedTracker) any { return -1 }},
	{"downloader_count", snake, func(numberedTracker) any { return -1 }},
	{"has_announced", camel, func(t numberedTracker) any { return !t.Last.IsZero() }},
	{"has_scraped", camel, func(numberedTracker) any { return false }},
	{"host", camel, func(t numberedTracker) any { return hostOf(t.URL) }},
	{"is_backup", camel, func(t numberedTracker) any { return t.backup }},
	{"last_announce_peer_count", camel, func(t numberedTracker) any { return t.Peers }},
	{"last_announce_result", camel, func(t numberedTracker) any { return t.result() }},
	{"last_announce_start_time", camel, func(t numberedTracker) any { return stamp(t.Last) }},
	{"last_announce_succeeded", camel, func(t numberedTracker) any { return t.Answered }},
	{"last_announce_time", camel, func(t numberedTracker) any { return stamp(t.Last) }},
	{"last_announce_timed_out", camel, func(t numberedTracker) any { return t.timedOut() }},
	{"last_scrape_result", camel, func(numberedTracker) any { return "" }},
	{"last_scrape_start_time", camel, func(numberedTracker) any { return 0 }},
	{"last_scrape_succeeded", camel, func(numberedTracker) any { return false }},
	{"last_scrape_time", camel, func(numberedTracker) any { return 0 }},
	{"last_scrape_timed_out", camel, func(numberedTracker) any { return false }},
	{"leecher_count", camel, func(t numberedTracker) any { return t.ifAnswered(t.Leechers) }},
	{"next_announce_time", camel, func(t numberedTracker) any { return stamp(t.Next) }},
	{"next_scrape_time", camel, func(numberedTracker) any { return 0 }},
	{"scrape_state", camel, func(numberedTracker) any { return 0 }},
	{"seeder_count", camel, func(t numberedTracker) any { return t.ifAnswered(t.Seeds) }},
}, trackerFields...)

func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func mapped[T any](all []T, f func(T) any) []any {
	out := make([]any, 0, len(all))
	for _, x := range all {
		out = append(out, f(x))
	}
	return out
}

func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// availability returns for each piece how many connected peers have it, or -1 if it is on disk.
func availability(v *view) []int {
	p := v.pieces()
	out := make([]int, v.status.Source.Layout.Pieces())
	for i := range out {
		if v.has(i) {
			out[i] = -1
		} else if i < len(p.Peers) {
			out[i] = p.Peers[i]
		}
	}
	return out
}

// bitfield has a bit for each piece. The first piece is the highest bit of the first byte.
func bitfield(v *view) string {
	n := v.status.Source.Layout.Pieces()
	b := make([]byte, (n+7)/8)
	for i := range n {
		if v.has(i) {
			b[i/8] |= 0x80 >> (i % 8)
		}
	}
	return base64.StdEncoding.EncodeToString(b)
}

// has tells whether a piece is on disk. If the torrent does not run, only the number of missing
// bytes is known.
func (v *view) has(piece int) bool {
	if state := v.pieces().State; len(state) > 0 {
		return piece < len(state) && state[piece] == client.PieceRight
	}
	return v.status.Total > 0 && v.status.Missing == 0
}

func desiredAvailable(v *view) int64 {
	var n int64
	p := v.pieces()
	for i, s := range p.State {
		if s != client.PieceRight && i < len(p.Peers) && p.Peers[i] > 0 {
			n += v.status.Source.Layout.PieceLength
		}
	}
	return min(n, v.status.Total-v.status.Have)
}

func priority(p client.Priority) int {
	switch p {
	case client.Low:
		return -1
	case client.High:
		return 1
	}
	return 0
}

// primaryType returns the media type of the largest file, by its name.
func primaryType(files []node.File) string {
	var largest node.File
	for _, f := range files {
		if f.Length >= largest.Length {
			largest = f
		}
	}
	kind, _, _ := strings.Cut(mime.TypeByExtension(path.Ext(largest.Path)), ";")
	return cmp.Or(kind, "application/octet-stream")
}

// scrapeURL returns the URL for scrapes. By convention, the last part of the path begins with
// scrape instead of announce.
func scrapeURL(announce string) string {
	i := strings.LastIndex(announce, "/announce")
	if i < 0 || strings.Contains(announce[i+1:], "/") {
		return ""
	}
	return announce[:i] + "/scrape" + announce[i+len("/announce"):]
}

func hostOf(announce string) string {
	if u, err := url.Parse(announce); err == nil && u.Host != "" {
		return u.Scheme + "://" + u.Host
	}
	return announce
}

// hostOfPeer returns the host of a peer's address: of a SCION address, ISD-AS,IP.
func hostOfPeer(address string) string {
	host, _ := foreign.SplitPeer(address)
	return strings.NewReplacer("[", "", "]", "").Replace(host)
}

func siteName(announce string) string {
	u, err := url.Parse(announce)
	if err != nil {
		return ""
	}
	parts := strings.Split(u.Hostname(), ".")
	return parts[max(0, len(parts)-2)]
}
