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
	"braid/units/lists"
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
	{"activityDate", func(v *view) any { return stamp(v.LastActive) }},
	{"addedDate", func(v *view) any { return stamp(v.Added) }},
	{"availability", func(v *view) any { return availability(v) }},
	{"bandwidthPriority", func(v *view) any { return int(v.Priority) }},
	{"bytesCompleted", func(v *view) any {
		return lists.Map(v.files(), func(f node.File) any { return f.Have })
	}},
	{"comment", func(v *view) any { return v.Source.Comment }},
	{"corruptEver", func(v *view) any { return v.Dropped * v.Source.Layout.PieceLength }},
	{"creator", func(v *view) any { return v.Source.Creator }},
	{"dateCreated", func(v *view) any { return stamp(v.Source.Created) }},
	{"desiredAvailable", func(v *view) any { return desiredAvailable(v) }},
	{"doneDate", func(v *view) any { return stamp(v.Completed) }},
	{"downloadDir", func(v *view) any { return v.Storage.Dir }},
	{"downloadLimit", func(v *view) any { return kilobytes(v.Rates.Download) }},
	{"downloadLimited", func(v *view) any { return v.Rates.Download > 0 && !v.Rates.DownloadOff }},
	{"downloadedEver", func(v *view) any { return v.Fetched }},
	{"editDate", func(*view) any { return 0 }},
	{"error", func(v *view) any { code, _ := v.trouble(); return code }},
	{"errorString", func(v *view) any { _, text := v.trouble(); return text }},
	{"eta", func(v *view) any { return v.eta() }},
	{"etaIdle", func(v *view) any { return v.etaIdle() }},
	{"file-count", func(v *view) any { return len(v.Source.Layout.Files) }},
	{"fileStats", func(v *view) any { return fileStats.list(v.dialect, v.files()) }},
	{"files", func(v *view) any { return fileFields.list(v.dialect, v.files()) }},
	{"group", func(*view) any { return "" }},
	{"hashString", func(v *view) any { return v.InfoHash }},
	{"haveUnchecked", func(*view) any { return 0 }},
	{"haveValid", func(v *view) any { return v.have() }},
	{"honorsSessionLimits", func(v *view) any { return !v.IgnoreGlobal }},
	{"id", func(v *view) any { return v.id }},
	{"isFinished", func(v *view) any { return v.State == node.Served }},
	{"isPrivate", func(v *view) any { return v.Source.IsPrivate() }},
	{"isStalled", func(v *view) any { return v.Stalled }},
	{"labels", func(v *view) any { return append([]string{}, v.Labels...) }},
	{"leftUntilDone", func(v *view) any { return v.Total - v.Have }},
	{"magnetLink", func(v *view) any { return v.Source.Magnet() }},
	{"manualAnnounceTime", func(*view) any { return 0 }},
	{"maxConnectedPeers", func(v *view) any { return v.peerLimit() }},
	{"metadataPercentComplete", func(v *view) any {
		return float64(foreign.Number(!v.Source.IsMagnet()))
	}},
	// Clients look for files of this name.
	{"name", func(v *view) any { return cmp.Or(v.Source.Name, v.Name) }},
	{"peer-limit", func(v *view) any { return v.peerLimit() }},
	{"peers", func(v *view) any { return peerFields.list(v.dialect, v.peers()) }},
	{"peersConnected", func(v *view) any { return v.Peers }},
	{"peersFrom", func(v *view) any { return peersFrom.object(v.dialect, v.peers()) }},
	{"peersGettingFromUs", func(v *view) any { return v.Getting }},
	{"peersSendingToUs", func(v *view) any { return v.Sending }},
	{"percentComplete", func(v *view) any { return share(v.have(), v.Source.Layout.Length) }},
	{"percentDone", func(v *view) any { return share(v.Have, v.Total) }},
	{"pieceCount", func(v *view) any { return v.Source.Layout.Pieces() }},
	{"pieceSize", func(v *view) any { return v.Source.Layout.PieceLength }},
	{"pieces", func(v *view) any { return bitfield(v) }},
	{"primary-mime-type", func(v *view) any { return primaryType(v.files()) }},
	{"priorities", func(v *view) any {
		return lists.Map(v.files(), func(f node.File) any { return priority(f.Priority) })
	}},
	{"queuePosition", func(v *view) any { return v.QueuePosition }},
	{"rateDownload", func(v *view) any { return int64(v.ReadRate / 8) }},
	{"rateUpload", func(v *view) any { return int64(v.WriteRate / 8) }},
	{"recheckProgress", func(v *view) any { return v.rechecked() }},
	{"secondsDownloading", func(v *view) any {
		return foreign.Seconds(v.ActiveFor - v.SeedingFor)
	}},
	{"secondsSeeding", func(v *view) any { return foreign.Seconds(v.SeedingFor) }},
	{"seedIdleLimit", func(v *view) any { return math.Ceil(v.idle().value) }},
	{"seedIdleMode", func(v *view) any { return v.idle().mode }},
	{"seedRatioLimit", func(v *view) any { return v.ratio().value }},
	{"seedRatioMode", func(v *view) any { return v.ratio().mode }},
	{"sequential_download", func(v *view) any { return v.Selection.Sequential }},
	{"sequential_download_from_piece", func(*view) any { return 0 }},
	{"sizeWhenDone", func(v *view) any { return v.Total }},
	{"startDate", func(v *view) any { return stamp(v.Started) }},
	{"status", func(v *view) any { return v.state() }},
	{"torrentFile", func(*view) any { return "" }},
	{"totalSize", func(v *view) any { return v.Source.Layout.Length }},
	{"trackerList", func(v *view) any { return trackerList(v.trackers()) }},
	{"trackerStats", func(v *view) any { return trackerStats.list(v.dialect, v.trackers()) }},
	{"trackers", func(v *view) any { return trackerFields.list(v.dialect, v.trackers()) }},
	{"uploadLimit", func(v *view) any { return kilobytes(v.Rates.Upload) }},
	{"uploadLimited", func(v *view) any { return v.Rates.Upload > 0 && !v.Rates.UploadOff }},
	{"uploadRatio", func(v *view) any { return v.uploadRatio() }},
	{"uploadedEver", func(v *view) any { return v.Sent }},
	{"wanted", func(v *view) any {
		return lists.Map(v.files(), func(f node.File) any {
			return foreign.Number(f.Priority != client.Skip)
		})
	}},
	{"webseeds", func(v *view) any { return append([]string{}, v.WebSeedURLs()...) }},
	{"webseedsSendingToUs", func(*view) any { return 0 }},
}

var fileFields = table[node.File]{
	{"begin_piece", func(f node.File) any { return f.FirstPiece }},
	{"bytesCompleted", func(f node.File) any { return f.Have }},
	{"end_piece", func(f node.File) any { return f.EndPiece }},
	{"length", func(f node.File) any { return f.Length }},
	{"name", func(f node.File) any { return f.Path }},
}

var fileStats = table[node.File]{
	{"bytesCompleted", func(f node.File) any { return f.Have }},
	{"priority", func(f node.File) any { return priority(f.Priority) }},
	{"wanted", func(f node.File) any { return f.Priority != client.Skip }},
}

var peerFields = table[client.PeerProgress]{
	{"address", func(p client.PeerProgress) any { return hostOfPeer(p.Peer) }},
	{"bytes_to_client", func(p client.PeerProgress) any { return p.BytesRead }},
	{"bytes_to_peer", func(p client.PeerProgress) any { return p.BytesWritten }},
	{"clientIsChoked", func(p client.PeerProgress) any { return p.Choked }},
	{"clientIsInterested", func(p client.PeerProgress) any { return p.Interested }},
	{"clientName", func(p client.PeerProgress) any { return p.Name }},
	{"flagStr", func(p client.PeerProgress) any {
		return strings.Join(foreign.Flags(p, "DdUuEIHX"), "")
	}},
	{"isDownloadingFrom", func(p client.PeerProgress) any { return p.ReadRate > 0 }},
	{"isEncrypted", func(p client.PeerProgress) any { return p.Transport != "tcp" }},
	{"isIncoming", func(p client.PeerProgress) any { return p.Accepted }},
	{"isUploadingTo", func(p client.PeerProgress) any { return p.WriteRate > 0 }},
	{"isUTP", func(client.PeerProgress) any { return false }},
	{"peerIsChoked", func(p client.PeerProgress) any { return p.Held }},
	{"peerIsInterested", func(p client.PeerProgress) any { return p.PeerInterested }},
	{"port", func(p client.PeerProgress) any {
		_, port := foreign.SplitPeer(p.Peer)
		return port
	}},
	{"progress", func(p client.PeerProgress) any { return p.Have }},
	{"rateToClient", func(p client.PeerProgress) any { return int64(p.ReadRate / 8) }},
	{"rateToPeer", func(p client.PeerProgress) any { return int64(p.WriteRate / 8) }},
}

// peersFrom counts peers by the source of their address. Transmission has no counter for peers that
// the user or the torrent names, so they count as peers from the cache.
var peersFrom = table[[]client.PeerProgress]{
	{"fromCache", from(client.FromUser, client.FromEarlier)},
	{"fromDht", from(client.FromDHT)},
	{"fromIncoming", from(client.FromItself)},
	{"fromLpd", from(client.FromLSD)},
	{"fromLtep", from()},
	{"fromPex", from(client.FromPEX)},
	{"fromTracker", from(client.FromTracker)},
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
	{"announce", func(t numberedTracker) any { return t.URL }},
	{"id", func(t numberedTracker) any { return t.id }},
	{"scrape", func(t numberedTracker) any { return scrapeURL(t.URL) }},
	{"sitename", func(t numberedTracker) any { return siteName(t.URL) }},
	{"tier", func(t numberedTracker) any { return t.Tier }},
}

// trackerStats has fixed values for scrapes, which braid does not send: it learns the numbers of a
// swarm when it announces.
var trackerStats = append(table[numberedTracker]{
	{"announceState", func(t numberedTracker) any { return foreign.Number(!t.Last.IsZero()) }},
	{"downloadCount", func(numberedTracker) any { return -1 }},
	{"downloader_count", func(numberedTracker) any { return -1 }},
	{"hasAnnounced", func(t numberedTracker) any { return !t.Last.IsZero() }},
	{"hasScraped", func(numberedTracker) any { return false }},
	{"host", func(t numberedTracker) any { return hostOf(t.URL) }},
	{"isBackup", func(t numberedTracker) any { return t.backup }},
	{"lastAnnouncePeerCount", func(t numberedTracker) any { return t.Peers }},
	{"lastAnnounceResult", func(t numberedTracker) any { return t.result() }},
	{"lastAnnounceStartTime", func(t numberedTracker) any { return stamp(t.Last) }},
	{"lastAnnounceSucceeded", func(t numberedTracker) any { return t.Answered }},
	{"lastAnnounceTime", func(t numberedTracker) any { return stamp(t.Last) }},
	{"lastAnnounceTimedOut", func(t numberedTracker) any { return t.timedOut() }},
	{"lastScrapeResult", func(numberedTracker) any { return "" }},
	{"lastScrapeStartTime", func(numberedTracker) any { return 0 }},
	{"lastScrapeSucceeded", func(numberedTracker) any { return false }},
	{"lastScrapeTime", func(numberedTracker) any { return 0 }},
	{"lastScrapeTimedOut", func(numberedTracker) any { return false }},
	{"leecherCount", func(t numberedTracker) any { return t.ifAnswered(t.Leechers) }},
	{"nextAnnounceTime", func(t numberedTracker) any { return stamp(t.Next) }},
	{"nextScrapeTime", func(numberedTracker) any { return 0 }},
	{"scrapeState", func(numberedTracker) any { return 0 }},
	{"seederCount", func(t numberedTracker) any { return t.ifAnswered(t.Seeds) }},
}, trackerFields...)

func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
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
	out := make([]int, v.Source.Layout.Pieces())
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
	n := v.Source.Layout.Pieces()
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
	return v.Total > 0 && v.Missing == 0
}

func desiredAvailable(v *view) int64 {
	var n int64
	p := v.pieces()
	for i, s := range p.State {
		if s != client.PieceRight && i < len(p.Peers) && p.Peers[i] > 0 {
			n += v.Source.Layout.PieceLength
		}
	}
	return min(n, v.Total-v.Have)
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
