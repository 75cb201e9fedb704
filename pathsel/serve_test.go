package pathsel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// Slots go to peers, whatever their number of connections. All peers take turns, and nobody is
// replaced before a minimum time.
func TestSlotsForPeers(t *testing.T) {
	now := time.Unix(1e9, 0)
	var uploads []Upload
	for i := range 5 {
		for c := range 1 + 3*i {
			uploads = append(uploads, Upload{Peer: PeerID(fmt.Sprint("p", i)), Conn: fmt.Sprint(i, "/", c), Wants: c == 0 || i < 3})
		}
	}
	var m UploadMemory
	turns, since := map[PeerID]int{}, map[PeerID]time.Time{}
	for range 300 {
		plan := ServeUploads(UploadView{Now: now, Uploads: uploads, MaxUploads: 2, Memory: m})
		m = plan.Memory
		served := map[PeerID]bool{}
		for _, u := range uploads {
			if plan.Barred[u.Conn] == "" {
				served[u.Peer] = true
			} else if served[u.Peer] {
				t.Fatalf("%s is served on some connections only", u.Peer)
			}
		}
		if len(served) != 2 {
			t.Fatalf("%d peers are served", len(served))
		}
		for p, s := range since {
			if !served[p] {
				if held := now.Sub(s); held < turnTime {
					t.Fatalf("%s was replaced after %v", p, held)
				}
				delete(since, p)
			}
		}
		for p := range served {
			if since[p].IsZero() {
				since[p] = now
				turns[p]++
			}
		}
		now = now.Add(time.Second)
	}
	for i := range 5 {
		if n := turns[PeerID(fmt.Sprint("p", i))]; n < 3 || n > 5 {
			t.Errorf("turns %v", turns)
		}
	}
}

func TestSlots(t *testing.T) {
	up := func(peers ...PeerID) (out []Upload) {
		for _, p := range peers {
			out = append(out, Upload{Peer: p, Conn: string(p), Wants: true})
		}
		return out
	}
	for _, c := range []struct {
		name   string
		v      UploadView
		barred int
	}{
		{"no limit", UploadView{Uploads: up("a", "b", "c")}, 0},
		{"room for all", UploadView{Uploads: up("a", "b", "c"), MaxUploads: 3}, 0},
		{"one too many", UploadView{Uploads: up("a", "b", "c"), MaxUploads: 2}, 1},
		{"one slot", UploadView{Uploads: up("a", "b", "c"), MaxUploads: 1}, 2},
		{"one slot for who serves us", UploadView{Uploads: up("a", "b"), MaxUploads: 1, Received: map[PeerID]float64{"b": 1}}, 1},
		{"nobody wants anything", UploadView{Uploads: []Upload{{Peer: "a", Conn: "a"}}, MaxUploads: 1}, 1},
		{"nobody", UploadView{MaxUploads: 1}, 0},
	} {
		c.v.Now = time.Unix(1e9, 0)
		if got := ServeUploads(c.v).Barred; len(got) != c.barred {
			t.Errorf("%s: barred %v", c.name, got)
		}
	}
	v := UploadView{Now: time.Unix(1e9, 0), Uploads: up("a", "b", "c", "d", "e"), MaxUploads: 3, Received: map[PeerID]float64{"d": 9, "c": 8, "b": 7}}
	for range 200 {
		plan := ServeUploads(v)
		if plan.Barred["c"] != "" || plan.Barred["d"] != "" {
			t.Fatal("the two that serve us best are not served")
		}
		v.Memory, v.Now = plan.Memory, v.Now.Add(time.Second)
	}
}

// There are 32 keys of one host, 32 hosts of one network, and 32 peers with unproven ASes. Each
// crowd gets the turns of one network, and every other peer its own, whether the crowd keeps its
// keys or changes them.
func TestCrowdsDoNotTakeTheSlots(t *testing.T) {
	for _, slots := range []int{1, 3, 4, 9} {
		for _, fresh := range []bool{false, true} {
			var m UploadMemory
			now := time.Unix(1e9, 0)
			served, seconds := map[string]int{}, 1800
			for s := 0; s < seconds; s += 5 {
				var uploads []Upload
				add := func(who string, o Origin) {
					uploads = append(uploads, Upload{Peer: PeerID(who), Conn: who, Origin: o, Wants: true})
				}
				for i := range 32 {
					n := i
					if fresh {
						n += s / 60 * 1000
					}
					add(fmt.Sprint("host ", n), Origin{Net: "10.1.0.0/24", Host: "10.1.0.1"})
					add(fmt.Sprint("net ", n), Origin{Net: "10.2.0.0/24", Host: fmt.Sprint("10.2.0.", i)})
					add(fmt.Sprint("claimed ", n), OriginUnproven(fmt.Sprint(n)))
				}
				for i := range 3 {
					add(fmt.Sprint("honest ", i), Origin{Net: fmt.Sprintf("10.3.%d.0/24", i), Host: fmt.Sprintf("10.3.%d.1", i)})
				}
				plan := ServeUploads(UploadView{Now: now, Uploads: uploads, MaxUploads: slots, Memory: m})
				m, now = plan.Memory, now.Add(5*time.Second)
				for _, u := range uploads {
					if plan.Barred[u.Conn] == "" {
						who := string(u.Peer)
						if !strings.HasPrefix(who, "honest") {
							who, _, _ = strings.Cut(who, " ")
						}
						served[who] += 5
					}
				}
			}
			// Six networks want slots; an honest peer cannot use more than one at a time.
			want := min(1, float64(slots)/6)
			for i := range 3 {
				if got := float64(served[fmt.Sprint("honest ", i)]) / float64(seconds); got < 0.85*want {
					t.Errorf("%d slots, new keys %v: an honest peer is served %.2f of the time, want %.2f: %v", slots, fresh, got, want, served)
				}
			}
			for _, crowd := range []string{"host", "net", "claimed"} {
				if got := float64(served[crowd]) / float64(seconds); got < 0.8*want {
					t.Errorf("%d slots, new keys %v: %q is served %.2f of the time", slots, fresh, crowd, got)
				}
			}
		}
	}
}

// A host that serves us under many keys gets one slot before other serving hosts get theirs.
func TestFavoredHosts(t *testing.T) {
	v := UploadView{Now: time.Unix(1e9, 0), MaxUploads: 4, Received: map[PeerID]float64{}}
	add := func(who, host string, rate float64) {
		v.Uploads = append(v.Uploads, Upload{Peer: PeerID(who), Conn: who, Origin: Origin{Net: host + "/24", Host: host}, Wants: true})
		v.Received[PeerID(who)] = rate
	}
	for i := range 20 {
		add(fmt.Sprint("key ", i), "10.0.0.1", 100)
	}
	add("a", "10.0.1.1", 50)
	add("b", "10.0.2.1", 20)
	if barred := ServeUploads(v).Barred; barred["a"] != "" || barred["b"] != "" {
		t.Error("the keys of one host have taken the slots of others that serve us")
	}
}

// fluid is a network in which each connection gets an equal share of its scarcest link, in bytes
// per second.
type fluid struct {
	capacity map[Interface]float64
	uploads  []Upload
	open     []bool
}

func (f *fluid) run(seconds float64) {
	users := map[Interface]int{}
	for i, u := range f.uploads {
		for _, l := range u.Links {
			if f.open[i] && u.Wants {
				users[l]++
			}
		}
	}
	for i := range f.uploads {
		rate := math.Inf(1)
		for _, l := range f.uploads[i].Links {
			rate = min(rate, f.capacity[l]/float64(users[l]))
		}
		if f.open[i] && f.uploads[i].Wants {
			f.uploads[i].Sent += uint64(rate * seconds)
		}
	}
}

// serve simulates some seconds and returns each peer's rate in the last of them.
func (f *fluid) serve(m *UploadMemory, now *time.Time, seconds int) (rates map[PeerID]float64, barred int) {
	for range seconds {
		was := slices.Clone(f.uploads)
		f.run(1)
		*now = now.Add(time.Second)
		plan := ServeUploads(UploadView{Now: *now, Uploads: f.uploads, Memory: *m})
		*m = plan.Memory
		rates, barred = map[PeerID]float64{}, len(plan.Barred)
		for i, u := range f.uploads {
			rates[u.Peer] += float64(u.Sent - was[i].Sent)
			f.open[i] = plan.Barred[u.Conn] == ""
		}
	}
	return rates, barred
}

func TestPathsAreBalancedOverPeers(t *testing.T) {
	const mb = 1e6
	link := func(id uint64) Interface { return Interface{IA: 1, ID: id} }
	up := func(p PeerID, n int, links ...uint64) Upload {
		u := Upload{Peer: p, Conn: fmt.Sprint(p, n), Wants: true}
		for _, l := range links {
			u.Links = append(u.Links, link(l))
		}
		return u
	}
	for _, c := range []struct {
		name    string
		uploads []Upload
		rates   []float64 // of links 1, 2, …
		barred  int
		want    map[PeerID]float64
	}{
		{"two leechers of one AS, two links: one each",
			[]Upload{up("a", 1, 1), up("a", 2, 2), up("b", 1, 1), up("b", 2, 2)}, []float64{mb, mb}, 2, map[PeerID]float64{"a": mb, "b": mb}},
		{"four leechers, two links: two on each",
			[]Upload{up("a", 1, 1), up("a", 2, 2), up("b", 1, 1), up("b", 2, 2), up("c", 1, 1), up("c", 2, 2), up("d", 1, 1), up("d", 2, 2)},
			[]float64{mb, mb}, 4, map[PeerID]float64{"a": mb / 2, "b": mb / 2, "c": mb / 2, "d": mb / 2}},
		{"who has another path gives way",
			[]Upload{up("a", 1, 1), up("a", 2, 2), up("b", 1, 1)}, []float64{mb, mb}, 1, map[PeerID]float64{"a": mb, "b": mb}},
		{"many connections do not crowd out a single one",
			[]Upload{up("a", 1, 1), up("a", 2, 1), up("a", 3, 1), up("a", 4, 1), up("b", 1, 1)}, []float64{mb}, 3, map[PeerID]float64{"a": mb / 2, "b": mb / 2}},
		{"nor over links of their own that lead to the one that is shared",
			[]Upload{up("a", 1, 1, 2), up("a", 2, 1, 3), up("a", 3, 1, 4), up("b", 1, 1, 2)}, []float64{mb, mb, mb, mb}, 2,
			map[PeerID]float64{"a": mb / 2, "b": mb / 2}},
		{"links that differ are shared",
			[]Upload{up("a", 1, 1), up("a", 2, 2), up("b", 1, 1), up("b", 2, 2)}, []float64{10 * mb, mb}, 0, map[PeerID]float64{"a": 5.5 * mb, "b": 5.5 * mb}},
		{"what is limited elsewhere is left alone",
			[]Upload{up("a", 1, 1, 3), up("a", 2, 1, 4), up("b", 1, 1, 5)}, []float64{100 * mb, 0, mb, mb, mb}, 0, map[PeerID]float64{"a": 2 * mb, "b": mb}},
		{"nothing shared", []Upload{up("a", 1, 1), up("b", 1, 2)}, []float64{mb, mb}, 0, map[PeerID]float64{"a": mb, "b": mb}},
		{"unknown ways", []Upload{{Peer: "a", Conn: "a", Wants: true}, {Peer: "b", Conn: "b", Wants: true}}, nil, 0, nil},
	} {
		f := &fluid{capacity: map[Interface]float64{}, uploads: c.uploads, open: make([]bool, len(c.uploads))}
		for i := range f.open {
			f.open[i] = true
		}
		for i, r := range c.rates {
			f.capacity[link(uint64(i+1))] = r
		}
		var m UploadMemory
		now := time.Unix(1e9, 0)
		rates, barred := f.serve(&m, &now, 40)
		if barred != c.barred {
			t.Errorf("%s: %d connections barred, want %d", c.name, barred, c.barred)
		}
		for p, want := range c.want {
			if math.Abs(rates[p]-want) > 0.02*want {
				t.Errorf("%s: %v, want %v", c.name, rates, c.want)
			}
		}
		// When only one peer is left, none of its connections is barred.
		for i := range f.uploads {
			f.uploads[i].Wants = f.uploads[i].Wants && f.uploads[i].Peer == "a"
		}
		if _, barred = f.serve(&m, &now, 1); barred != 0 {
			t.Errorf("%s: %d connections of the last peer are barred", c.name, barred)
		}
	}
}

// For random swarms, the plan leaves the view unchanged, is the same for the same view, and leaves
// each served peer a connection.
func TestServeUploadsProperties(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		var uploads []Upload
		for p := range 1 + r.IntN(6) {
			for c := range 1 + r.IntN(4) {
				u := Upload{Peer: PeerID(fmt.Sprint(p)), Conn: fmt.Sprint(p, "/", c), Wants: r.IntN(5) > 0}
				for range r.IntN(4) {
					u.Links = append(u.Links, Interface{IA: 1, ID: r.Uint64N(5)})
				}
				uploads = append(uploads, u)
			}
		}
		v := UploadView{Now: time.Unix(1e9, 0), Uploads: uploads, MaxUploads: r.IntN(4)}
		for range 100 {
			for i := range v.Uploads {
				v.Uploads[i].Sent += r.Uint64N(1e6)
				if r.IntN(200) == 0 {
					v.Uploads[i].Wants = !v.Uploads[i].Wants
				}
			}
			was := v
			was.Uploads = slices.Clone(v.Uploads)
			plan := ServeUploads(v)
			if !reflect.DeepEqual(v, was) || !reflect.DeepEqual(plan, ServeUploads(v)) {
				t.Fatal("the view has changed, or the plan depends on more than the view")
			}
			wants, open := map[PeerID]bool{}, map[PeerID]bool{}
			for _, u := range v.Uploads {
				wants[u.Peer] = wants[u.Peer] || u.Wants
				open[u.Peer] = open[u.Peer] || u.Wants && plan.Barred[u.Conn] == ""
			}
			served := 0
			for p := range wants {
				if open[p] {
					served++
				} else if v.MaxUploads == 0 && wants[p] {
					t.Fatalf("seed %d: %s is interested and barred on all of its connections", seed, p)
				}
			}
			if v.MaxUploads > 0 && served > v.MaxUploads {
				t.Fatalf("seed %d: %d served", seed, served)
			}
			v.Memory, v.Now = plan.Memory, v.Now.Add(time.Second)
		}
	}
}

// The peers of one host take turns, also if they are one more than the slots.
func TestSlotsForPeersOfOneHost(t *testing.T) {
	var uploads []Upload
	for i := range 3 {
		p := fmt.Sprint("p", i)
		uploads = append(uploads, Upload{Peer: PeerID(p), Conn: p, Wants: true})
	}
	var m UploadMemory
	served := map[string]int{}
	for i := range 3600 {
		now := time.Unix(1e9+int64(i), 0)
		plan := ServeUploads(UploadView{Now: now, Uploads: uploads, MaxUploads: 2, Memory: m})
		m = plan.Memory
		for _, u := range uploads {
			if plan.Barred[u.Conn] == "" {
				served[u.Conn]++
			}
		}
	}
	for p, seconds := range served {
		if seconds < 2300 || seconds > 2500 {
			t.Errorf("%s was served for %d of 3600 s, want two thirds", p, seconds)
		}
	}
}
