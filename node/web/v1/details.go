package v1

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"time"

	"braid/client"
	"braid/node"
	"braid/pathsel"
	"braid/tracker"
	"braid/units/lists"
)

var priorities = []string{"skip", "low", "normal", "high"} // by client.Priority

func (a *API) files(t *node.Torrent, _ none) ([]File, error) {
	return lists.Map(t.Files(), func(f node.File) File {
		return File{
			Number:    f.Index + 1,
			Path:      f.Path,
			SizeBytes: f.Length,
			HaveBytes: f.Have,
			Priority:  priorities[f.Priority],
		}
	}), nil
}

// pieces returns no pieces of a torrent that does not run, since they are not known one by one.
func (a *API) pieces(t *node.Torrent, _ none) (Pieces, error) {
	p := t.Pieces()
	n := len(p.State)
	out := Pieces{
		Count:       n,
		LengthBytes: t.Source().Layout.PieceLength,
		Have:        make([]byte, (n+7)/8),
		Partial:     make([]byte, (n+7)/8),
		Available:   lists.Map(p.Peers, func(peers int) byte { return byte(min(peers, 255)) }),
	}
	for i, x := range p.State {
		switch bit := byte(0x80) >> (i % 8); x {
		case client.PieceRight:
			out.Done++
			out.Have[i/8] |= bit
		case client.PiecePartial, client.PieceChecked:
			out.Partial[i/8] |= bit
		}
	}
	return out, nil
}

func (a *API) peers(t *node.Torrent, _ none) ([]Peer, error) {
	all := t.Peers()
	var read uint64
	for _, p := range all {
		read += p.BytesRead
	}
	return lists.Map(all, func(p client.PeerProgress) Peer {
		x := Peer{
			Address:      p.Peer,
			Source:       string(p.Source),
			Client:       p.Name,
			Have:         p.Have,
			Incoming:     p.Accepted,
			Transport:    p.Transport,
			ActivePaths:  p.Conns,
			DownMbitS:    p.ReadRate / mega,
			UpMbitS:      p.WriteRate / mega,
			ReadBytes:    p.BytesRead,
			WrittenBytes: p.BytesWritten,
			Interested:   p.Interested,
			Choked:       p.Choked,
			PeerWants:    p.PeerInterested,
			Held:         p.Held,
			Requests:     p.Outstanding,
		}
		if peer, err := client.ParsePeer(p.Peer); err == nil {
			if s, ok := peer.SCION(); ok {
				x.ISDAS = s.IA.String()
			}
		}
		if read > 0 {
			x.Share = float64(p.BytesRead) / float64(read)
		}
		return x
	}), nil
}

func (a *API) trackers(t *node.Torrent, _ none) ([]Tracker, error) {
	return lists.Map(t.Trackers(), func(s node.TrackerStatus) Tracker {
		x := Tracker{
			Tier:    s.Tier,
			URL:     tracker.RedactURL(s.URL),
			State:   "waiting",
			LastAt:  s.Last,
			NextAt:  s.Next,
			Warning: tracker.Redact(s.Warning),
		}
		switch {
		case s.Answered:
			x.State = "working"
			x.Seeders, x.Leechers, x.Peers = ifKnown(s.Seeds), ifKnown(s.Leechers), ifKnown(s.Peers)
		case s.Err != nil:
			x.State, x.Error = "failed", tracker.Redact(s.Err.Error())
		}
		return x
	}), nil
}

// ifKnown returns nil for a number below 0, which stands for an unknown one.
func ifKnown[T int | int64](n T) *T {
	if n < 0 {
		return nil
	}
	return &n
}

func (a *API) paths(t *node.Torrent, _ none) ([]Path, error) {
	all := t.Paths()
	var read uint64
	for _, p := range all {
		read += p.BytesRead
	}
	return lists.Map(all, func(p node.PathStatus) Path {
		x := newPath(p.PathProgress, read)
		x.Reason, x.ReasonSince, x.Refused = p.Reason, p.Since, p.Refused
		return x
	}), nil
}

// newPath converts a path-level peer. read is the number of bytes that all connections of the
// torrent have read.
func newPath(p client.PathProgress, read uint64) Path {
	out := Path{
		ID:                      pathID(p.Peer, p.Path.Fingerprint),
		Peer:                    p.Peer,
		Source:                  string(p.Source),
		Fingerprint:             p.Path.Fingerprint,
		Transport:               p.Transport,
		Incoming:                p.Accepted,
		Hops:                    hopsOf(p.Path),
		State:                   p.State.String(),
		DownMbitS:               p.ReadRate / mega,
		UpMbitS:                 p.WriteRate / mega,
		RTTMs:                   ms(p.RTT),
		MinRTTMs:                ms(p.MinRTT),
		HandshakeMs:             ms(p.Handshake),
		PacketsSent:             p.PacketsSent,
		PacketsLost:             p.PacketsLost,
		MTUBytes:                p.Path.MTU,
		AnnouncedLatencyMs:      ms(p.Path.Latency),
		AnnouncedLatencyKnown:   p.Path.LatencyKnown,
		MeasuredLatencyMs:       ms(p.MinRTT) / 2,
		AnnouncedBandwidthMbitS: float64(p.Path.Bandwidth) / mega,
		MeasuredBandwidthMbitS:  p.Carried.Rate * 8 / mega,
		ReadBytes:               p.BytesRead,
		WrittenBytes:            p.BytesWritten,
		Failures:                p.Failures,
		Congestion:              p.Congestion.State,
		WindowBytes:             p.Window,
	}
	if p.PacketsSent > 0 {
		out.Loss = float64(p.PacketsLost) / float64(p.PacketsSent)
	}
	if read > 0 {
		out.Share = float64(p.BytesRead) / float64(read)
	}
	if p.Path.Hops() > 0 {
		out.Expiry = p.Path.Expiry
	}
	if p.Err != nil {
		out.Error = p.Err.Error()
	}
	return out
}

// pathID names a path-level peer.
func pathID(peer string, f pathsel.Fingerprint) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s 0", peer, f))
	return hex.EncodeToString(sum[:6])
}

// hopsOf returns the ASes of a path with the interfaces by which it enters and leaves them.
func hopsOf(p pathsel.Path) []Hop {
	out := []Hop{}
	if len(p.Interfaces) < 2 || len(p.Interfaces)%2 != 0 {
		return out
	}
	for i := 0; i <= len(p.Interfaces); i += 2 {
		var h Hop
		if i > 0 {
			h.ISDAS, h.Ingress = p.Interfaces[i-1].IA.String(), p.Interfaces[i-1].ID
		}
		if i < len(p.Interfaces) {
			h.ISDAS, h.Egress = p.Interfaces[i].IA.String(), p.Interfaces[i].ID
		}
		out = append(out, h)
	}
	return out
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (a *API) history(t *node.Torrent, _ none) (History, error) {
	hops := map[string][]Hop{}
	for _, p := range t.Paths() {
		hops[pathID(p.Peer, p.Path.Fingerprint)] = hopsOf(p.Path)
	}
	h := newHistory(t.InfoHash(), t.History(), time.Now())
	for i := range h.Paths {
		if x := hops[h.Paths[i].ID]; x != nil {
			h.Paths[i].Hops = x
		}
	}
	return h, nil
}

// newHistory puts the samples of all paths on one scale: one sample a second, up to now.
func newHistory(infoHash string, all []node.PathHistory, now time.Time) History {
	end := now.Truncate(time.Second)
	h := History{StepS: 1, End: end, Paths: []PathHistory{}, Decisions: []Decision{}}
	first := end.Unix()
	for _, p := range all {
		if len(p.Samples) > 0 {
			first = min(first, int64(p.Samples[0].Second))
		}
	}
	const most = 600 // samples; a path that was idle for long may have older ones
	n := min(most, int(end.Unix()-first)+1)
	first = end.Unix() - int64(n-1)
	for _, p := range all {
		x := PathHistory{
			ID:          pathID(string(p.Key.Peer), p.Key.Path),
			Peer:        string(p.Key.Peer),
			Fingerprint: p.Key.Path,
			Hops:        []Hop{},
			DownMbitS:   make([]float64, n),
			UpMbitS:     make([]float64, n),
		}
		for _, s := range p.Samples {
			if i := int(int64(s.Second) - first); i >= 0 && i < n {
				x.DownMbitS[i], x.UpMbitS[i] = float64(s.In)/mega, float64(s.Out)/mega
			}
		}
		h.Paths = append(h.Paths, x)
		for _, m := range p.Marks {
			h.Decisions = append(h.Decisions, newDecision(infoHash, p.Key, m))
		}
	}
	slices.SortStableFunc(h.Decisions, func(a, b Decision) int { return a.Time.Compare(b.Time) })
	return h
}

func newDecision(infoHash string, k pathsel.Key, m node.Mark) Decision {
	return Decision{
		Time:        m.Time,
		Event:       m.Event,
		InfoHash:    infoHash,
		PathID:      pathID(string(k.Peer), k.Path),
		Peer:        string(k.Peer),
		Fingerprint: k.Path,
		Reason:      m.Reason,
	}
}

func (a *API) log(*http.Request, none) ([]LogEntry, error) { return a.Journal.Entries(), nil }

// torrentLog returns the entries about a torrent in its own log and in the journal.
func (a *API) torrentLog(t *node.Torrent, _ none) ([]LogEntry, error) {
	out := lists.Map(t.Log(), func(e node.LogEntry) LogEntry {
		return LogEntry{
			Time:     e.Time,
			Level:    levelName(e.Level),
			InfoHash: t.InfoHash(),
			Text:     tracker.Redact(e.Text),
		}
	})
	for _, e := range a.Journal.Entries() {
		if e.InfoHash == t.InfoHash() {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b LogEntry) int { return a.Time.Compare(b.Time) })
	return out, nil
}
