package page

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "braid/node/web/v1"
	"braid/pathsel"
)

// world answers /api/v1 with a made-up daemon of any size, for what a testbed of seconds cannot
// have: a thousand torrents, two hundred paths, thirty ASes.
type world struct {
	begin    time.Time
	torrents []v1.Torrent
	paths    []v1.Path

	mu       sync.Mutex
	policy   v1.Policy
	settings v1.Settings
	own      v1.TorrentSettings // of the first torrent
	asked    []string           // method and address of each request
	broken   chan struct{}      // closed to end all streams
}

const local = "1-ff00:0:110"

func newWorld(torrents, peers, pathsPerPeer int) *world {
	w := &world{begin: time.Now(), broken: make(chan struct{}), policy: v1.Policy{Limits: []v1.PathLimit{}}}
	w.settings = v1.Settings{Directory: "/srv/mirror", Schedule: v1.Schedule{Begin: "08:00", End: "18:00", Days: []string{"mon"}}, Watched: "keep"}
	r := rand.New(rand.NewPCG(1, 2))
	states := []string{"seeding", "seeding", "seeding", "seeding", "downloading", "paused", "queued", "checking", "failed", "metadata"}
	for i := range torrents {
		state, size := states[r.IntN(len(states))], int64(math.Pow(10, 7+4*r.Float64()))
		if i == 0 {
			state = "downloading"
		}
		t := v1.Torrent{
			InfoHash: fmt.Sprintf("%040x", i+1), Number: i + 1, Name: fmt.Sprintf("%s-%d.%d", titles[i%len(titles)], 2020+i%7, i), State: state,
			SizeBytes: size, HaveBytes: size, Ratio: 3 * r.Float64(), Labels: []string{"data"}, Directory: "/srv/mirror", Priority: "normal",
			QueuePosition: i, Added: w.begin.Add(-time.Duration(i) * time.Hour),
		}
		switch state {
		case "downloading":
			t.HaveBytes = int64(float64(size) * r.Float64())
			t.DownMbitS, t.Peers, t.Paths = 60*r.Float64(), 1+r.IntN(5), 4+r.IntN(9)
			left := float64(size-t.HaveBytes) * 8 / t.DownMbitS / 1e6
			t.LeftS = &left
		case "seeding":
			if i%7 == 0 {
				t.UpMbitS, t.Peers, t.Paths = 20*r.Float64(), 2, 3
			}
		case "failed":
			t.Error = "open /srv/mirror: no space left on device"
		default:
			t.HaveBytes = size / 3
			t.CheckedBytes = size / 2
		}
		w.torrents = append(w.torrents, t)
	}
	w.paths = makePaths(r, peers, pathsPerPeer)
	w.torrents[0].Name, w.torrents[0].Paths, w.torrents[0].Peers = "genome-archive-2026.1", len(w.paths), peers
	return w
}

var titles = []string{"climate-reanalysis", "debian-live", "genome-archive", "sky-survey", "linux-kernel", "street-imagery", "protein-structures", "web-crawl"}

// makePaths walks at random through three ISDs of ten ASes each, from their edges over their cores.
func makePaths(r *rand.Rand, peers, each int) (out []v1.Path) {
	as := func(isd, n int) string { return fmt.Sprintf("%d-ff00:0:%x0", isd, isd*16+n) }
	ids, last := map[string]uint64{}, map[string]uint64{} // of links from one AS to another; the last of each AS
	id := func(a, b string) uint64 {
		if ids[a+b] == 0 {
			last[a] += 1 + uint64(r.IntN(9))
			ids[a+b] = last[a]
		}
		return ids[a+b]
	}
	for p := range peers {
		isd := 1 + p%3
		dst := as(isd, 3+(p*5)%7)
		if dst == local {
			dst = as(isd, 9)
		}
		seen := map[pathsel.Fingerprint]int{} // connections on each route
		for n, tries := 0, 0; n < each; tries++ {
			route := []string{local, as(1, 2+r.IntN(2)), as(1, 0)}
			if r.IntN(2) == 0 {
				route[1] = as(1, 8)
			}
			if isd > 1 {
				if r.IntN(2) == 0 {
					route = append(route, as(5-isd, 0))
				}
				route = append(route, as(isd, r.IntN(2)), as(isd, 2))
			} else {
				route = append(route, as(1, 4+r.IntN(3)))
			}
			route = append(route, dst)
			route = slices.Compact(route)
			var hops []v1.Hop
			for i, a := range route {
				h := v1.Hop{ISDAS: a}
				if i > 0 {
					h.Ingress = id(a, route[i-1])
				}
				if i < len(route)-1 {
					h.Egress = id(a, route[i+1])
				}
				hops = append(hops, h)
			}
			var ifs []pathsel.Interface
			for _, h := range hops {
				ia, err := pathsel.ParseIA(h.ISDAS)
				if err != nil {
					panic(err)
				}
				ifs = append(ifs, pathsel.Interface{IA: ia, ID: h.Ingress}, pathsel.Interface{IA: ia, ID: h.Egress})
			}
			f := pathsel.FingerprintOf(ifs)
			// Where there are fewer routes than paths are wanted, some have several connections.
			conn := seen[f]
			if conn > 0 && tries < 20*each {
				continue
			}
			seen[f]++
			n++
			out = append(out, makePath(r, fmt.Sprintf("%s,[10.0.%d.7]:6881", dst, p), f, conn, hops))
		}
	}
	total := 0.0
	for _, p := range out {
		total += float64(p.ReadBytes)
	}
	for i := range out {
		out[i].Share = float64(out[i].ReadBytes) / total
	}
	return out
}

func makePath(r *rand.Rand, peer string, f pathsel.Fingerprint, conn int, hops []v1.Hop) v1.Path {
	p := v1.Path{
		ID: peer + "/" + f.Short() + fmt.Sprint(conn), Peer: peer, Fingerprint: f, Conn: conn, Transport: "quic", Hops: hops,
		MTUBytes: 1472, RTTMs: 10 + 80*r.Float64(), PacketsSent: 10000, AnnouncedLatencyMs: 5 + 20*r.Float64(), AnnouncedLatencyKnown: r.IntN(3) > 0,
		AnnouncedBandwidthMbitS: []float64{20, 40, 100}[r.IntN(3)],
	}
	p.Expiry = time.Now().Add(time.Duration(1+r.IntN(300)) * time.Minute)
	p.MinRTTMs = p.RTTMs * 0.8
	p.MeasuredLatencyMs = p.MinRTTMs / 2
	switch n := r.IntN(10); {
	case n < 4:
		p.State, p.Reason = "active", "carries data: 3 of 4 places are taken by the fastest paths"
		p.DownMbitS, p.Loss = math.Pow(10, 2.2*r.Float64()-0.4), 0.003*r.Float64()
		p.MeasuredBandwidthMbitS = p.DownMbitS * 1.1
	case n < 6:
		p.State, p.Reason = "parked", "shares the link 1-ff00:0:100#4 with a faster path of this peer; parked, none became slower"
	case n < 7:
		p.State, p.Reason, p.DownMbitS = "probing", "parked for 30 s; measured again for 2 s", 2*r.Float64()
	case n < 8:
		p.State, p.Error, p.Reason = "failed", "no answer to the handshake for 4 s", "tried again in 20 s"
	default:
		p.State, p.Reason, p.RTTMs, p.MinRTTMs, p.MeasuredLatencyMs, p.PacketsSent = "idle", "no free place: 4 of 4 are taken", 0, 0, 0, 0
	}
	p.ReadBytes = uint64(p.DownMbitS * 1e7)
	return p
}

// now moves the rates, so that something changes each second.
func (w *world) now() []v1.Path {
	t := time.Since(w.begin).Seconds()
	out := slices.Clone(w.paths)
	for i := range out {
		out[i].DownMbitS *= wave(t, i)
	}
	return out
}

func wave(t float64, i int) float64 {
	return 0.8 + 0.15*math.Sin(t/7+float64(i)) + 0.08*math.Sin(t*1.3+3*float64(i))
}

func (w *world) history() v1.History {
	h := v1.History{StepS: 1, End: time.Now()}
	events := []string{"path-selected", "path-opened", "path-parked", "path-probed", "path-returned"}
	for i, p := range w.paths {
		ph := v1.PathHistory{ID: p.ID, Peer: p.Peer, Fingerprint: p.Fingerprint, Conn: p.Conn, Hops: p.Hops}
		base, at := p.DownMbitS, 30+i*17%200
		for s := range 300 {
			rate := base * wave(float64(s-300), i)
			if s < at {
				rate = 0
			}
			if s >= 200 && s < 200+i*7%60 && i%3 == 0 {
				rate = 0
			}
			ph.DownMbitS, ph.UpMbitS = append(ph.DownMbitS, rate), append(ph.UpMbitS, 0)
		}
		h.Paths = append(h.Paths, ph)
		if i > 40 {
			continue
		}
		for k, e := range events {
			when := at + k*(270-at)/len(events)
			h.Decisions = append(h.Decisions, v1.Decision{
				Time: h.End.Add(time.Duration(when-300) * time.Second), Event: e, PathID: p.ID, Peer: p.Peer, Fingerprint: p.Fingerprint,
				Reason: []string{"first of 3 candidates", "handshake took 34 ms", "shares 1-ff00:0:100#4 with a faster path", "parked for 30 s", "19.2 Mbit/s in the probe; worth a place"}[k],
			})
		}
	}
	slices.SortFunc(h.Decisions, func(a, b v1.Decision) int { return a.Time.Compare(b.Time) })
	return h
}

func (w *world) network() v1.Map {
	m := v1.Map{Local: local}
	ases, links := map[string]*v1.MapAS{}, map[string]*v1.MapLink{}
	for _, p := range w.now() {
		for i, h := range p.Hops {
			a := ases[h.ISDAS]
			if a == nil {
				a = &v1.MapAS{ISDAS: h.ISDAS}
				ases[h.ISDAS] = a
			}
			a.Paths++
			a.DownMbitS += p.DownMbitS
			if i == len(p.Hops)-1 {
				a.Peers = 1
				break
			}
			from, to := fmt.Sprintf("%s#%d", h.ISDAS, h.Egress), fmt.Sprintf("%s#%d", p.Hops[i+1].ISDAS, p.Hops[i+1].Ingress)
			l := links[from+to]
			if l == nil {
				l = &v1.MapLink{A: from, B: to, Forbidden: strings.Contains(w.policy.ACL, from) || strings.Contains(w.policy.ACL, to), Torrents: []string{}}
				links[from+to] = l
			}
			l.Paths++
			if !l.Forbidden {
				l.DownMbitS += p.DownMbitS
			}
		}
	}
	for _, a := range ases {
		m.ASes = append(m.ASes, *a)
	}
	for _, l := range links {
		m.Links = append(m.Links, *l)
	}
	return m
}

func (w *world) preview(ask v1.PreviewPolicy) (out v1.PolicyPreview) {
	out.Policy = w.policy
	if ask.Policy != nil {
		out.Policy = *ask.Policy
	}
	if len(ask.Forbid) > 0 {
		out.Policy.ACL = "- " + ask.Forbid[0] + ", +"
	}
	out.Policy.Limits = append(slices.Clone(out.Policy.Limits), ask.Limit...)
	byDst := map[string]*v1.PreviewDestination{}
	for _, p := range w.paths {
		dst := p.Hops[len(p.Hops)-1].ISDAS
		d := byDst[dst]
		if d == nil {
			d = &v1.PreviewDestination{ISDAS: dst}
			byDst[dst] = d
		}
		path := v1.PreviewPath{Fingerprint: p.Fingerprint, Hops: p.Hops, Allowed: true}
		for _, h := range p.Hops {
			for _, f := range ask.Forbid {
				if f == h.ISDAS || f == fmt.Sprintf("%s#%d", h.ISDAS, h.Ingress) || f == fmt.Sprintf("%s#%d", h.ISDAS, h.Egress) {
					path.Allowed, path.Clause, path.Reason = false, "acl", "denied by the ACL "+out.Policy.ACL
				}
			}
		}
		if path.Allowed {
			d.Remaining++
		}
		d.Paths = append(d.Paths, path)
	}
	for _, d := range byDst {
		out.Destinations = append(out.Destinations, *d)
	}
	slices.SortFunc(out.Destinations, func(a, b v1.PreviewDestination) int { return strings.Compare(a.ISDAS, b.ISDAS) })
	return out
}

// requests returns the requests so far that begin with this text.
func (w *world) requests(prefix string) (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.asked {
		if strings.HasPrefix(r, prefix) {
			out = append(out, r)
		}
	}
	return out
}

func (w *world) acl() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.policy.ACL
}

// breakStreams ends all streams of events, as a restart of the daemon does.
func (w *world) breakStreams() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.broken)
	w.broken = make(chan struct{})
}

// note keeps requests for the test, one at a time.
func (w *world) note(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.asked = append(w.asked, r.Method+" "+r.URL.String())
		w.mu.Unlock()
		next.ServeHTTP(rw, r)
	})
}

// serve answers as a daemon would, beside the page itself.
func (w *world) serve(t *testing.T) string {
	mux := http.NewServeMux()
	answer := func(pattern string, value func(r *http.Request) any) {
		mux.HandleFunc(pattern, func(rw http.ResponseWriter, r *http.Request) {
			w.mu.Lock()
			v := value(r)
			w.mu.Unlock()
			rw.Header().Set("Content-Type", "application/json")
			if _, bad := v.(v1.Problem); bad {
				rw.WriteHeader(http.StatusConflict)
			}
			if err := json.NewEncoder(rw).Encode(v); err != nil && r.Context().Err() == nil {
				t.Error(err)
			}
		})
	}
	mux.Handle("/", Handler())
	answer("GET /api/v1/session", func(*http.Request) any { return v1.Session{Name: "braid", Version: "test", ISDAS: local} })
	answer("GET /api/v1/map", func(*http.Request) any { return w.network() })
	answer("GET /api/v1/policy", func(*http.Request) any { return w.policy })
	answer("PUT /api/v1/policy", func(r *http.Request) any {
		w.policy = sent[v1.Policy](t, r)
		return w.policy
	})
	answer("POST /api/v1/policy/preview", func(r *http.Request) any {
		return w.preview(sent[v1.PreviewPolicy](t, r))
	})
	answer("GET /api/v1/settings", func(*http.Request) any { return w.settings })
	answer("PATCH /api/v1/settings", func(r *http.Request) any {
		if err := json.NewDecoder(r.Body).Decode(&w.settings); err != nil {
			t.Error(err)
		}
		return w.settings
	})
	detail := func(*http.Request) any {
		return v1.TorrentDetail{
			Torrent: w.torrents[0], Settings: w.own, Dropped: int64(len(w.asked)), FileCount: 200, Storage: "file",
			PieceLength: 1 << 20, Pieces: 4000, MagnetLink: "magnet:?xt=urn:btih:0001",
		}
	}
	answer("GET /api/v1/torrents/{hash}", detail)
	answer("PATCH /api/v1/torrents/{hash}", func(r *http.Request) any {
		if in := sent[v1.Change](t, r); in.Labels != nil {
			w.torrents[0].Labels, w.own.Limits, w.own.Sequential = *in.Labels, *in.Limits, *in.Sequential
		}
		return detail(r)
	})
	answer("GET /api/v1/torrents/{hash}/paths", func(*http.Request) any { return w.now() })
	answer("GET /api/v1/torrents/{hash}/history", func(*http.Request) any { return w.history() })
	answer("GET /api/v1/torrents/{hash}/pieces", func(r *http.Request) any {
		isIt := func(t v1.Torrent) bool { return t.InfoHash == r.PathValue("hash") && t.State == "queued" }
		if slices.ContainsFunc(w.torrents, isIt) {
			return v1.Pieces{LengthBytes: 1 << 20}
		}
		have, available := make([]byte, 500), make([]byte, 4000)
		for i := range have {
			have[i] = byte(rand.Uint32() | rand.Uint32())
		}
		for i := range available {
			available[i] = byte(min(3, rand.IntN(100)))
		}
		return map[string]any{"count": 4000, "length_bytes": 1 << 20, "done": 3000, "have": base64.StdEncoding.EncodeToString(have), "available": base64.StdEncoding.EncodeToString(available)}
	})
	answer("POST /api/v1/torrents", func(r *http.Request) any {
		n := len(w.asked)
		if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/form-data") {
			file, _, err := r.FormFile("torrent")
			if err != nil {
				t.Error(err)
			} else if content, _ := io.ReadAll(file); string(content) != "d4:infode" {
				t.Errorf("the file has %q", content)
			}
		} else if a := sent[v1.AddTorrent](t, r); !strings.HasPrefix(a.Source, "magnet:?") {
			return v1.Problem{Error: "source: want a magnet link"}
		}
		return v1.Added{InfoHash: fmt.Sprintf("%040x", n), Name: fmt.Sprint("new ", n)}
	})
	mux.HandleFunc("DELETE /api/v1/torrents/{hash}", func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(http.StatusNoContent) })
	answer("POST /api/v1/torrents/{hash}/resume", func(r *http.Request) any {
		number, err := strconv.ParseInt(r.PathValue("hash"), 16, 0)
		if err != nil {
			t.Error(err)
			return nil
		}
		state := w.torrents[number-1].State
		if now := sent[v1.Resume](t, r).Now; state == "paused" || now && state == "queued" { // as in the node
			return nil
		}
		return v1.Problem{Error: "it is " + state}
	})
	answer("GET /api/v1/torrents/{hash}/files", func(*http.Request) any {
		files := []v1.File{}
		for i := range 3000 {
			files = append(files, v1.File{Number: i + 1, Path: fmt.Sprintf("chromosome-%02d/reads-%04d.fastq.gz", i/150, i), SizeBytes: 1 << 20, HaveBytes: int64(i%5) << 18, Priority: []string{"high", "normal"}[min(1, i/50)]})
		}
		return files
	})
	answer("GET /api/v1/torrents/{hash}/log", func(*http.Request) any {
		return []v1.LogEntry{{Time: w.begin.AddDate(0, 0, -30), Level: "info", InfoHash: w.torrents[0].InfoHash, Text: "begun"}}
	})
	answer("GET /api/v1/torrents/{hash}/peers", func(*http.Request) any {
		return []v1.Peer{{
			Address: local + ",[10.0.0.7]:31000", Source: "tracker", Client: "braid 0.3.0", Have: 0.995, Transport: "scion",
			ActivePaths: 12, DownMbitS: 123, UpMbitS: 87.5, Share: 0.42, PeerWants: true,
		}}
	})
	answer("GET /api/v1/torrents/{hash}/trackers", func(*http.Request) any {
		return []v1.Tracker{{
			URL: "scion://tracker.example/announce", State: "failed", Error: "it does not answer", LastAt: w.begin, NextAt: w.begin,
			Seeders: new(int64(1000)), Leechers: new(int64(1000)),
		}}
	})
	mux.HandleFunc("GET /api/v1/events", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		send := func(event string, value any) {
			line, err := json.Marshal(value)
			if err != nil {
				t.Error(err)
			}
			_, _ = fmt.Fprintf(rw, "event: %s\ndata: %s\n\n", event, line)
			rw.(http.Flusher).Flush()
		}
		w.mu.Lock()
		broken, torrents := w.broken, slices.Clone(w.torrents)
		w.mu.Unlock()
		send("snapshot", v1.Snapshot{Torrents: torrents, Totals: v1.Totals{DownMbitS: 431.2, UpMbitS: 87.1}})
		for n := 0; ; n++ {
			select {
			case <-r.Context().Done():
				return
			case <-broken:
				return
			case <-time.After(time.Second):
			}
			changed := []v1.Torrent{}
			for i, x := range torrents {
				if x.DownMbitS+x.UpMbitS > 0 {
					x.DownMbitS *= wave(float64(n), i)
					changed = append(changed, x)
				}
			}
			send("torrents", v1.TorrentsChanged{Changed: changed, Removed: []string{}})
		}
	})
	s := httptest.NewServer(w.note(mux))
	t.Cleanup(func() {
		w.breakStreams()
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

func sent[T any](t *testing.T, r *http.Request) (value T) {
	if err := json.NewDecoder(r.Body).Decode(&value); err != nil {
		t.Errorf("%s: %v", r.URL, err)
	}
	return value
}
