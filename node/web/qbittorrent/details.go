package qbittorrent

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"braid/client"
	"braid/node"
	"braid/node/web/foreign"
	"braid/units/lists"
)

// Priorities of files.
const (
	skipped = 0
	normal  = 1
	high    = 6
	maximal = 7
)

// files lists the files. It shows the priority low as normal, since qBittorrent has no low one.
func (c *call) files(t *node.Torrent) (any, error) {
	wanted := lists.Split(c.text("indexes"), "|")
	s, pieces := t.Status(), t.Pieces()
	out := []map[string]any{}
	for _, f := range t.Files() {
		if len(wanted) > 0 && !slices.Contains(wanted, strconv.Itoa(f.Index)) {
			continue
		}
		p := normal
		switch f.Priority {
		case client.Skip:
			p = skipped
		case client.High:
			p = high
		}
		done := 1.0
		if f.Length > 0 {
			done = float64(f.Have) / float64(f.Length)
		}
		out = append(out, map[string]any{
			"index": f.Index, "name": f.Path, "size": f.Length, "progress": done, "priority": p,
			"is_seed":      foreign.IsComplete(s),
			"piece_range":  []int{f.FirstPiece, max(f.FirstPiece, f.EndPiece-1)},
			"availability": available(f, pieces),
		})
	}
	return out, nil
}

// available returns the part of the pieces of a file that are here or at a connected peer; -1 if
// that is unknown, as it is while the torrent is stopped. Decluttarr gives up files below 1.
func available(f node.File, all client.Pieces) float64 {
	if len(all.State) == 0 || len(all.State) < f.EndPiece {
		return -1
	}
	if f.EndPiece <= f.FirstPiece {
		return 1
	}
	n := 0
	for i := f.FirstPiece; i < f.EndPiece; i++ {
		if all.State[i] == client.PieceRight || all.Peers[i] > 0 {
			n++
		}
	}
	return float64(n) / float64(f.EndPiece-f.FirstPiece)
}

// Values of the status of a tracker.
const (
	trackerOff     = 0
	trackerUnused  = 1
	trackerWorks   = 2
	trackerAsked   = 3
	trackerFailing = 4
)

// trackers lists the trackers, after the DHT, peer exchange and local discovery. As in qBittorrent,
// these three have no figures, the status 0, and a message by which Flood knows private torrents.
func (*call) trackers(t *node.Torrent) (any, error) {
	var out []map[string]any
	for _, name := range []string{"** [DHT] **", "** [PeX] **", "** [LSD] **"} {
		x := trackerFields(name, -1, trackerOff)
		if t.Source().IsPrivate() {
			x["msg"] = "This torrent is private"
		}
		out = append(out, x)
	}
	return append(out, trackersOf(t.Trackers())...), nil
}

func trackersOf(all []node.TrackerStatus) []map[string]any {
	out := []map[string]any{}
	for _, t := range all {
		x := trackerFields(t.URL, t.Tier, trackerAsked)
		switch {
		case t.Err != nil:
			x["status"], x["msg"] = trackerFailing, t.Err.Error()
		case t.Answered:
			x["status"], x["msg"] = trackerWorks, t.Warning
			x["num_peers"], x["num_seeds"], x["num_leeches"] = t.Peers, t.Seeds, t.Leechers
		case t.Last.IsZero():
			x["status"] = trackerUnused
		}
		out = append(out, x)
	}
	return out
}

// trackerFields are the fields of a tracker without figures.
func trackerFields(url string, tier, status int) map[string]any {
	return map[string]any{
		"url": url, "tier": tier, "status": status, "msg": "",
		"num_peers": -1, "num_seeds": -1, "num_leeches": -1, "num_downloaded": -1,
	}
}

func (*call) webSeeds(t *node.Torrent) (any, error) {
	return lists.Map(t.Options().WebSeedURLs(), func(u string) map[string]string {
		return map[string]string{"url": u}
	}), nil
}

// pieceStates has a number for each piece: 0 missing, 1 partly on disk, 2 verified.
func (*call) pieceStates(t *node.Torrent) (any, error) {
	out := make([]int, t.Source().Layout.Pieces())
	complete, states := t.Status().Missing == 0, t.Pieces().State
	for i := range out {
		switch {
		case i >= len(states):
			out[i] = 2 * foreign.Number(complete)
		case states[i] == client.PieceRight:
			out[i] = 2
		case states[i] != client.PieceMissing:
			out[i] = 1
		}
	}
	return out, nil
}

func (*call) pieceHashes(t *node.Torrent) (any, error) {
	out := []string{}
	if info := t.Source().Info; info != nil {
		for h := range slices.Chunk(info.Pieces, 20) {
			out = append(out, fmt.Sprintf("%x", h))
		}
	}
	return out, nil
}

// peersOf returns the connected peers of a torrent, by their addresses.
func peersOf(t *node.Torrent) map[string]any {
	out := map[string]any{}
	for _, p := range t.Peers() {
		host, port := foreign.SplitPeer(p.Peer)
		out[p.Peer] = map[string]any{
			"client": p.Name, "connection": p.Transport, "ip": host, "port": port,
			"progress": p.Have,
			"dl_speed": int64(p.ReadRate / 8), "up_speed": int64(p.WriteRate / 8),
			"downloaded": p.BytesRead, "uploaded": p.BytesWritten,
			"flags":   strings.Join(foreign.Flags(p, "DdUuIHXLE"), " "),
			"country": "", "country_code": "", "files": "", "flags_desc": "",
			"peer_id_client": "", "relevance": 0,
		}
	}
	return out
}

// log returns the newest log entries of all torrents.
func (c *call) log() (any, error) {
	last := c.whole("last_known_id", -1)
	out := []map[string]any{}
	for _, t := range c.node.Torrents() {
		name := t.Progress().Name
		for _, e := range t.Log() {
			kind, level := 1, "normal"
			switch {
			case e.Level >= 8:
				kind, level = 8, "critical"
			case e.Level >= 4:
				kind, level = 4, "warning"
			case e.Level < 0:
				kind, level = 2, "info"
			}
			if wanted := c.flag(level); e.Number > last && (wanted == nil || *wanted) {
				out = append(out, map[string]any{
					"id":        e.Number,
					"message":   name + ": " + e.Text,
					"timestamp": e.Time.Unix(),
					"type":      kind,
				})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b map[string]any) int {
		return cmp.Compare(a["id"].(int), b["id"].(int))
	})
	return out, c.err
}
