package qbittorrent

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"braid/client"
	"braid/node"
)

// sortBy sorts by the value of a field of torrentInfo, by its name in JSON. Unknown names sort
// nothing.
func sortBy(all []torrentInfo, name string) {
	kind := reflect.TypeFor[torrentInfo]()
	for i := range kind.NumField() {
		if kind.Field(i).Tag.Get("json") != name {
			continue
		}
		slices.SortStableFunc(all, func(a, b torrentInfo) int {
			x, y := reflect.ValueOf(a).Field(i), reflect.ValueOf(b).Field(i)
			switch x.Kind() {
			case reflect.String:
				return cmp.Compare(strings.ToLower(x.String()), strings.ToLower(y.String()))
			case reflect.Bool:
				return cmp.Compare(number(x.Bool()), number(y.Bool()))
			case reflect.Float64:
				return cmp.Compare(x.Float(), y.Float())
			}
			return cmp.Compare(x.Int(), y.Int())
		})
	}
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Priorities of files.
const (
	skipped = 0
	normal  = 1
	high    = 6
	maximal = 7
)

// files lists the files. Low priority is shown as normal: qBittorrent has no such one.
func (c *call) files() (any, error) {
	t, err := c.torrent()
	if err != nil {
		return nil, err
	}
	wanted := split(c.text("indexes"), "|")
	s := t.Status()
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
			"index": f.Index, "name": f.Path, "size": f.Length, "progress": done, "priority": p, "is_seed": isComplete(s),
			"piece_range": []int{f.FirstPiece, max(f.FirstPiece, f.EndPiece-1)}, "availability": -1,
		})
	}
	return out, nil
}

// Values of the status of a tracker.
const (
	trackerUnused  = 1
	trackerWorks   = 2
	trackerAsked   = 3
	trackerFailing = 4
)

// trackers lists the trackers, after the three other sources of peers that qBittorrent has and braid
// lacks.
func (c *call) trackers() (any, error) {
	t, err := c.torrent()
	if err != nil {
		return nil, err
	}
	out := []map[string]any{}
	add := func(url string, tier, state int, message string) map[string]any {
		x := map[string]any{
			"url": url, "tier": tier, "status": state, "msg": message, "num_peers": -1, "num_seeds": -1, "num_leeches": -1, "num_downloaded": -1,
		}
		out = append(out, x)
		return x
	}
	for _, name := range []string{"** [DHT] **", "** [PeX] **", "** [LSD] **"} {
		add(name, -1, 0, "")
	}
	for _, x := range t.Trackers() {
		switch {
		case x.Err != nil:
			add(x.URL, x.Tier, trackerFailing, x.Err.Error())
		case x.Answered:
			to := add(x.URL, x.Tier, trackerWorks, x.Warning)
			to["num_peers"], to["num_seeds"], to["num_leeches"] = x.Peers, x.Seeds, x.Leechers
		case x.Last.IsZero():
			add(x.URL, x.Tier, trackerUnused, "")
		default:
			add(x.URL, x.Tier, trackerAsked, "")
		}
	}
	return out, nil
}

func (c *call) webSeeds() (any, error) {
	t, err := c.torrent()
	if err != nil {
		return nil, err
	}
	out := []map[string]string{}
	for _, u := range t.Options().WebSeedURLs() {
		out = append(out, map[string]string{"url": u})
	}
	return out, nil
}

// pieceStates has a number for each piece: 0 missing, 1 some of it is there, 2 it is there.
func (c *call) pieceStates() (any, error) {
	t, err := c.torrent()
	if err != nil {
		return nil, err
	}
	out := make([]int, t.Source().Layout.Pieces())
	complete, states := t.Status().Missing == 0, t.Pieces().State
	for i := range out {
		switch {
		case i >= len(states):
			out[i] = 2 * number(complete)
		case states[i] == client.PieceRight:
			out[i] = 2
		case states[i] != client.PieceMissing:
			out[i] = 1
		}
	}
	return out, nil
}

func (c *call) pieceHashes() (any, error) {
	t, err := c.torrent()
	if err != nil {
		return nil, err
	}
	out := []string{}
	if info := t.Source().Info; info != nil {
		for h := range slices.Chunk(info.Pieces, 20) {
			out = append(out, fmt.Sprintf("%x", h))
		}
	}
	return out, nil
}

// peersOf are the connected peers of a torrent, by their addresses.
func peersOf(t *node.Torrent) map[string]any {
	out := map[string]any{}
	for _, p := range t.Peers() {
		host, port := p.Peer, 0
		if h, n, err := net.SplitHostPort(p.Peer); err == nil {
			host = h
			port, _ = strconv.Atoi(n)
		} else if i := strings.LastIndex(p.Peer, ":"); i > 0 {
			host = p.Peer[:i]
			port, _ = strconv.Atoi(p.Peer[i+1:])
		}
		flags := ""
		for _, f := range []struct {
			letter string
			is     bool
		}{
			{"D", p.ReadRate > 0}, {"d", p.Interested && p.Choked}, {"U", p.WriteRate > 0}, {"u", p.PeerInterested && p.Held},
			{"I", p.Accepted}, {"H", p.Source == client.FromDHT}, {"X", p.Source == client.FromPEX}, {"L", p.Source == client.FromLSD}, {"E", p.Transport != "tcp"},
		} {
			if f.is {
				flags += f.letter + " "
			}
		}
		out[p.Peer] = map[string]any{
			"client": p.Name, "connection": p.Transport, "country": "", "country_code": "", "dl_speed": int64(p.ReadRate / 8),
			"downloaded": p.BytesRead, "files": "", "flags": strings.TrimSpace(flags), "flags_desc": "", "ip": host, "peer_id_client": "",
			"port": port, "progress": p.Have, "relevance": 0, "up_speed": int64(p.WriteRate / 8), "uploaded": p.BytesWritten,
		}
	}
	return out
}

// log is the log of the torrents, as far as the node keeps it. The number of an entry is its time in
// milliseconds, since the entries have none of their own.
func (c *call) log() (any, error) {
	last := c.whole("last_known_id", -1)
	out := []map[string]any{}
	if c.err != nil {
		return nil, c.err
	}
	for _, t := range c.node.Torrents() {
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
			id := int(e.Time.UnixMilli())
			if wanted := c.flag(level); id > last && (wanted == nil || *wanted) {
				out = append(out, map[string]any{"id": id, "message": t.Status().Name + ": " + e.Text, "timestamp": e.Time.Unix(), "type": kind})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b map[string]any) int { return cmp.Compare(a["id"].(int), b["id"].(int)) })
	return out, c.err
}

var errNoPeers = fail(http.StatusBadRequest, "none of the peers is an address")
