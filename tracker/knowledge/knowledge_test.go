package knowledge

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"braid/pathsel"
	"braid/tracker/wire"
)

var epoch = time.Unix(1e9, 0)

const ms = time.Millisecond

func as(n int) pathsel.IA { return pathsel.IA(1<<48 | 0xff00_0000_0000 | uint64(n)) }

func host(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

func at(n, h int) wire.Addr { return wire.Addr{IA: as(n), Host: host(h)} }

// via is a path through those ASes. The first of them is left at the interface with that ID; all
// other IDs follow from the ASes of the link.
func via(first uint64, ases ...int) []pathsel.Interface {
	var out []pathsel.Interface
	for i := 0; i+1 < len(ases); i++ {
		a, b := ases[i], ases[i+1]
		out = append(out, pathsel.Interface{IA: as(a), ID: uint64(b)}, pathsel.Interface{IA: as(b), ID: uint64(a)})
	}
	if first != 0 {
		out[0].ID, out[1].ID = first, first
	}
	return out
}

func report(rtt time.Duration, mbits float64, ifs []pathsel.Interface) wire.PathReport {
	return wire.PathReport{Interfaces: ifs, RTT: rtt, Rate: int64(mbits * 1e6 / 8)}
}

// limited has the usual limits where these are zero.
func limited(l limits) *Base {
	b := New()
	u := b.limits
	b.limits = limits{
		paths: cmp.Or(l.paths, u.paths), perAS: cmp.Or(l.perAS, u.perAS), perPair: cmp.Or(l.perPair, u.perPair),
		votes: cmp.Or(l.votes, u.votes), ases: cmp.Or(l.ases, u.ases),
		halfLife: cmp.Or(l.halfLife, u.halfLife), forget: cmp.Or(l.forget, u.forget),
	}
	return b
}

func base(l limits, ases int) *Base {
	b := limited(l)
	for n := range ases {
		b.Meet(epoch, as(n))
	}
	return b
}

func lots() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func (b *Base) hint(now time.Time, src, dst int, random *rand.Rand) (out []pathsel.Fingerprint) {
	for _, h := range b.Hints(now, as(src), []pathsel.IA{as(dst)}, wire.MaxHints, random)[as(dst)] {
		out = append(out, h.Path)
	}
	return out
}

func TestWhatIsTaken(t *testing.T) {
	ok := report(10*ms, 1, via(0, 1, 2))
	for _, tt := range []struct {
		name   string
		from   wire.Addr
		report wire.PathReport
		taken  int
	}{
		{"good", at(1, 1), ok, 1},
		{"of another AS", at(2, 1), ok, 0},
		{"on IP", wire.Addr{Host: host(1)}, ok, 0},
		{"to where nobody is", at(1, 1), report(10*ms, 1, via(0, 1, 9)), 0},
		{"too old", at(1, 1), wire.PathReport{Interfaces: ok.Interfaces, RTT: ms, Age: Forget}, 0},
		{"without a figure", at(1, 1), wire.PathReport{Interfaces: ok.Interfaces, Sent: 5}, 0},
	} {
		b := base(limits{}, 3)
		if got := b.Report(epoch, tt.from, []wire.PathReport{tt.report}); got != tt.taken || b.Known().Paths != tt.taken {
			t.Errorf("%s: %d taken, %+v", tt.name, got, b.Known())
		}
	}
}

// Whoever has less than half of the weight cannot move a median out of what the others say.
func TestMedianIsBounded(t *testing.T) {
	random := lots()
	for range 5_000 {
		var all []weighed
		least, most, honest, lies := math.Inf(1), math.Inf(-1), 0.0, 0.0
		for range 1 + random.IntN(8) {
			x := weighed{random.Float64(), 0.01 + random.Float64()}
			least, most, honest = min(least, x.value), max(most, x.value), honest+x.weight
			all = append(all, x)
		}
		for range random.IntN(8) {
			x := weighed{1e6 * (random.Float64() - 0.5), random.Float64()}
			if lies+x.weight < honest {
				lies += x.weight
				all = append(all, x)
			}
		}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if m := median(all); m < least || m > most {
			t.Fatalf("%v of %+v: not from %v to %v", m, all, least, most)
		}
	}
}

// A host has one vote on a path, however often it reports.
func TestOneVoteForEachHost(t *testing.T) {
	b := base(limits{}, 3)
	path := via(0, 1, 2)
	for n := range 3 {
		b.Report(epoch, at(1, n), []wire.PathReport{report(20*ms, 0, path)})
	}
	for range 100 {
		b.Report(epoch, at(1, 7), []wire.PathReport{report(ms, 0, path), report(ms, 0, path)})
	}
	if d, known := b.Distance(epoch, as(1), as(2)); !known || d != 20*ms {
		t.Errorf("%v, %v", d, known)
	}
	// And what one AS says of another's paths is not heard at all; of the way to itself only by
	// those who know nothing.
	b.Report(epoch, at(2, 1), []wire.PathReport{report(ms, 0, via(0, 2, 1))})
	if d, _ := b.Distance(epoch, as(1), as(2)); d != 20*ms {
		t.Errorf("the other side has changed it to %v", d)
	}
	b = base(limits{}, 3)
	b.Report(epoch, at(2, 1), []wire.PathReport{report(30*ms, 9, via(0, 2, 1))})
	if d, known := b.Distance(epoch, as(1), as(2)); !known || d != 30*ms {
		t.Errorf("%v, %v", d, known)
	}
	if got := b.hint(epoch, 1, 2, lots()); !slices.Equal(got, []pathsel.Fingerprint{pathsel.FingerprintOf(via(0, 1, 2))}) {
		t.Errorf("the way back: %v", got)
	}
}

func TestDecay(t *testing.T) {
	b := base(limits{halfLife: time.Minute, forget: 10 * time.Minute}, 3)
	path := via(0, 1, 2)
	for n := range 3 {
		b.Report(epoch, at(1, n), []wire.PathReport{report(10*ms, 0, path)})
	}
	later := epoch.Add(3 * time.Minute) // the three weigh an eighth each
	b.Report(later, at(1, 9), []wire.PathReport{report(50*ms, 0, path)})
	if d, _ := b.Distance(later, as(1), as(2)); d != 50*ms {
		t.Errorf("three old votes outweigh a new one: %v", d)
	}
	// A late report of an old measurement counts as the old one that it is.
	b.Report(later, at(1, 8), []wire.PathReport{{Interfaces: path, RTT: ms, Age: 3 * time.Minute}})
	if d, _ := b.Distance(later, as(1), as(2)); d != 50*ms {
		t.Errorf("an old measurement counts as a new one: %v", d)
	}
	b.Refresh(epoch.Add(12 * time.Minute))
	if k := b.Known(); k.Paths != 1 || k.Pairs != 1 || k.Links != 1 {
		t.Errorf("%+v", k)
	}
	b.Refresh(epoch.Add(14 * time.Minute))
	if k := b.Known(); k != (Sizes{}) {
		t.Errorf("nothing is forgotten: %+v", k)
	}
	if _, known := b.Distance(epoch.Add(14*time.Minute), as(1), as(2)); known {
		t.Error("a distance is remembered")
	}
	// Some of the paths between two ASes are forgotten, and the others stay.
	b = base(limits{forget: 10 * time.Minute}, 3)
	for n := range 6 {
		at := epoch.Add(time.Duration(n%2) * 5 * time.Minute)
		b.Report(at, wire.Addr{IA: as(1), Host: host(1)}, []wire.PathReport{report(ms, 0, via(uint64(100+n), 1, 2))})
	}
	b.Refresh(epoch.Add(12 * time.Minute))
	if k := b.Known(); k.Paths != 3 || len(b.hint(epoch.Add(12*time.Minute), 1, 2, lots())) != 3 {
		t.Errorf("%+v", k)
	}
}

// When a clock is set back, votes from the time ahead do not hide later ones.
func TestClockSetBack(t *testing.T) {
	b := base(limits{}, 3)
	path := via(0, 1, 2)
	b.Report(epoch.Add(24*time.Hour), at(1, 1), []wire.PathReport{report(50*ms, 0, path)})
	b.Refresh(epoch)
	b.Report(epoch, at(1, 1), []wire.PathReport{report(10*ms, 0, path)})
	if d, _ := b.Distance(epoch, as(1), as(2)); d != 10*ms {
		t.Errorf("the distance is %v", d)
	}
}

// However much some ASes report, the memory stays within its limits, and the others keep what they
// have reported.
func TestMemory(t *testing.T) {
	l := limits{paths: 640, perAS: 200, perPair: 8, votes: 4, ases: 64}
	b := base(l, 40)
	for n := range 20 { // modest ones: ten paths each
		for p := range 10 {
			b.Report(epoch, at(n, 1), []wire.PathReport{report(ms, 1, via(uint64(100+p%2), n, 30+p/2))})
		}
	}
	for round := range 100 { // and ten that report without end
		for n := 20; n < 30; n++ {
			for dst := 30; dst < 40; dst++ {
				b.Report(epoch.Add(time.Duration(round)*time.Second), at(n, round), []wire.PathReport{report(ms, 1, via(uint64(100+round), n, dst))})
			}
		}
		if k := b.Known(); k.Paths > l.paths {
			t.Fatalf("%+v", k)
		}
	}
	all := 0
	for ia, s := range b.sources {
		n, paths := int(ia&0xff), 0
		for dst, known := range s.to {
			paths += len(known)
			for _, p := range known {
				if len(p.votes) > l.votes || p.dst() != dst {
					t.Errorf("%v: %d votes, to %s", p.interfaces, len(p.votes), p.dst())
				}
			}
			if len(known) > l.perPair {
				t.Errorf("%d paths from %s to %s", len(known), ia, dst)
			}
		}
		if all += paths; paths != s.paths || n < 20 && paths != 10 || paths > l.perAS {
			t.Errorf("%d paths of AS %d, counted %d", paths, n, s.paths)
		}
	}
	if all != b.paths {
		t.Errorf("%d paths, counted %d", all, b.paths)
	}
	for n := range 1000 {
		b.Meet(epoch.Add(time.Duration(n)*time.Second), as(n))
	}
	if len(b.met) > l.ases {
		t.Errorf("%d ASes are remembered", len(b.met))
	}
}

func TestHints(t *testing.T) {
	paths := map[string][]pathsel.Interface{}
	for i := range 6 {
		paths[fmt.Sprint(i)] = via(uint64(100+i), 1, 2)
	}
	name := func(f pathsel.Fingerprint) string {
		for n, p := range paths {
			if pathsel.FingerprintOf(p) == f {
				return n
			}
		}
		return "?"
	}
	names := func(fs []pathsel.Fingerprint) (out string) {
		for _, f := range fs {
			out += name(f)
		}
		return out
	}
	b := base(limits{}, 5)
	b.Report(epoch, at(1, 1), []wire.PathReport{
		report(10*ms, 20, paths["0"]), report(50*ms, 20, paths["1"]), report(10*ms, 2, paths["2"]), // weak: 2 of 20
		report(5*ms, 0, paths["3"]), // nothing came over it: no figure beside those with one
	})
	random, first := lots(), map[string]int{}
	for range 200 {
		first[names(b.hint(epoch, 1, 2, random))]++
	}
	if first["012"] < 60 || first["102"] < 60 || len(first) != 2 {
		t.Errorf("equal paths: %v", first)
	}
	b.Report(epoch, at(1, 1), []wire.PathReport{report(10*ms, 10, paths["1"])})
	clear(first)
	for range 1700 {
		first[names(b.hint(epoch, 1, 2, random))]++
	}
	if first["102"] < 50 || first["102"] > 160 {
		t.Errorf("the better one 16 times in 17: %v", first)
	}
	// Without rates: by round trip and loss.
	b = base(limits{}, 5)
	b.Report(epoch, at(1, 1), []wire.PathReport{
		report(10*ms, 0, paths["0"]), report(100*ms, 0, paths["1"]),
		{Interfaces: paths["2"], RTT: 10 * ms, Sent: 100, Lost: 90}, {Interfaces: paths["3"], RTT: 11 * ms, Sent: 10, Lost: 9}, // too few to tell
	})
	if got := names(b.hint(epoch, 1, 2, lots())); got != "0312" && got != "3012" {
		t.Errorf("%q", got)
	}
	if got := b.hint(epoch, 1, 1, lots()); got != nil {
		t.Errorf("within an AS: %v", got)
	}
	if got := b.Hints(epoch, as(1), []pathsel.IA{as(2), as(2), as(3)}, 1, lots()); len(got) != 1 || len(got[as(2)]) != 1 {
		t.Errorf("%v", got)
	}
}

// A hint says what hosts of this AS have received lately. What hosts of the other AS have received
// went the other way.
func TestHintedRates(t *testing.T) {
	there, back := via(0, 1, 2), via(0, 2, 1)
	b := base(limits{}, 5)
	b.Report(epoch, at(1, 1), []wire.PathReport{report(10*ms, 20, there)})
	rate := func(after time.Duration, src, dst int) float64 {
		h := b.Hints(epoch.Add(after), as(src), []pathsel.IA{as(dst)}, wire.MaxHints, lots())[as(dst)]
		if len(h) != 1 {
			t.Fatalf("%d hints, want 1", len(h))
		}
		return h[0].Rate * 8 / 1e6
	}
	if got := rate(0, 1, 2); got != 20 {
		t.Errorf("%v Mbit/s, want 20", got)
	}
	if got := rate(0, 2, 1); got != 0 {
		t.Errorf("the other way: %v Mbit/s", got)
	}
	if got := rate(b.limits.halfLife, 1, 2); got != 0 {
		t.Errorf("too long ago: %v Mbit/s", got)
	}
	b.Report(epoch, at(2, 1), []wire.PathReport{report(10*ms, 3, back)})
	b.Report(epoch.Add(b.limits.halfLife/2), at(1, 2), []wire.PathReport{report(10*ms, 0, there)})
	if a, z := rate(0, 1, 2), rate(0, 2, 1); a != 20 || z != 3 {
		t.Errorf("%v and %v Mbit/s, want 20 and 3", a, z)
	}
	if got := rate(b.limits.halfLife, 1, 2); got != 0 {
		t.Errorf("a newer report without a rate renews the older one's: %v Mbit/s", got)
	}
}

// world is a network of core ASes in a ring with chords, with leaves below, of which every link has
// a delay.
type world struct {
	leaves []int
	delay  map[[2]int]time.Duration
	next   map[int][]int
}

func newWorld(random *rand.Rand, cores, leaves int) *world {
	w := &world{delay: map[[2]int]time.Duration{}, next: map[int][]int{}}
	link := func(a, b int) {
		if a == b || w.delay[[2]int{a, b}] != 0 {
			return
		}
		d := time.Duration(2+random.IntN(80)) * ms
		w.delay[[2]int{a, b}], w.delay[[2]int{b, a}] = d, d
		w.next[a], w.next[b] = append(w.next[a], b), append(w.next[b], a)
	}
	for n := range cores {
		link(n+1, 1+(n+1)%cores)
		link(n+1, 1+random.IntN(cores))
	}
	for n := range leaves {
		leaf := 100 + n
		w.leaves = append(w.leaves, leaf)
		link(leaf, 1+random.IntN(cores))
		link(leaf, 1+random.IntN(cores))
	}
	return w
}

// way is the shortest one through the core, and its round trip.
func (w *world) way(src, dst int) (best []int, rtt time.Duration) {
	rtt = time.Hour
	var walk func(way []int, d time.Duration)
	walk = func(way []int, d time.Duration) {
		last := way[len(way)-1]
		if d >= rtt {
			return
		}
		if last == dst {
			best, rtt = slices.Clone(way), d
			return
		}
		for _, n := range w.next[last] {
			if (n < 100 || n == dst) && !slices.Contains(way, n) {
				walk(append(way, n), d+2*w.delay[[2]int{last, n}])
			}
		}
	}
	walk([]int{src}, 0)
	return best, rtt
}

// Half of the pairs of ASes report; the distances of the others follow from links well enough to
// tell near from far. An AS that lies changes that little.
func TestLinks(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	w := newWorld(random, 8, 20)
	for _, tt := range []struct {
		name string
		lies func(time.Duration) time.Duration
		most float64 // median relative error
	}{
		{"honest", nil, 0.15},
		{"one says that all is near", func(time.Duration) time.Duration { return 10 * time.Microsecond }, 0.25},
		{"one says that all is far", func(time.Duration) time.Duration { return time.Minute }, 0.25},
	} {
		b := limited(limits{})
		for n := range 128 {
			b.Meet(epoch, as(n))
		}
		told := map[[2]int]bool{}
		for _, src := range w.leaves {
			for _, dst := range w.leaves {
				if src == dst || (src*7+dst*13)%5 >= 2 {
					continue
				}
				way, rtt := w.way(src, dst)
				if tt.lies != nil && src == w.leaves[0] {
					rtt = tt.lies(rtt)
				}
				told[[2]int{src, dst}], told[[2]int{dst, src}] = true, true
				if b.Report(epoch, at(src, 1), []wire.PathReport{report(rtt, 0, via(0, way...))}) != 1 {
					t.Fatalf("%v is not taken", way)
				}
			}
		}
		b.Refresh(epoch)
		var errs []float64
		unknown := 0
		for _, src := range w.leaves[1:] {
			for _, dst := range w.leaves[1:] {
				if src == dst || told[[2]int{src, dst}] {
					continue
				}
				_, rtt := w.way(src, dst)
				d, known := b.Distance(epoch, as(src), as(dst))
				if !known {
					unknown++
					continue
				}
				errs = append(errs, math.Abs(d.Seconds()-rtt.Seconds())/rtt.Seconds())
			}
		}
		if len(errs) < 50 || unknown > len(errs)/10 {
			t.Fatalf("%s: %d pairs to judge, %d unknown", tt.name, len(errs), unknown)
		}
		slices.Sort(errs)
		mid := errs[len(errs)/2]
		if mid > tt.most {
			t.Errorf("%s: %d pairs that nobody reported: median relative error %.2f, want at most %.2f", tt.name, len(errs), mid, tt.most)
		}
	}
}

// A link that one AS alone names leads nobody else anywhere.
func TestInventedLinks(t *testing.T) {
	b := base(limits{}, 10)
	b.Report(epoch, at(1, 1), []wire.PathReport{report(100*ms, 0, via(0, 1, 5, 2))})
	b.Report(epoch, at(3, 1), []wire.PathReport{report(100*ms, 0, via(0, 3, 5, 2))})
	// 4 invents short ways between all of them.
	b.Report(epoch, at(4, 1), []wire.PathReport{report(ms, 0, via(0, 4, 1, 3)), report(ms, 0, via(0, 4, 3, 1)), report(ms, 0, via(0, 4, 1, 2))})
	b.Refresh(epoch)
	// The links 1-5 and 3-5 are each named by one AS, so that 1 and 3 know their own halves only.
	if d, known := b.Distance(epoch, as(1), as(3)); known {
		t.Errorf("from 1 to 3 in %v", d)
	}
	if got := b.hint(epoch, 1, 3, lots()); got != nil {
		t.Errorf("%v", got)
	}
	b.Report(epoch, at(2, 1), []wire.PathReport{report(100*ms, 0, via(0, 2, 5, 3)), report(100*ms, 0, via(0, 2, 5, 1))})
	b.Refresh(epoch)
	d, known := b.Distance(epoch, as(1), as(3))
	if !known || d < 50*ms || d > 150*ms {
		t.Errorf("from 1 to 3 over 5: %v, %v", d, known)
	}
	if got := b.hint(epoch, 1, 3, lots()); !slices.Equal(got, []pathsel.Fingerprint{pathsel.FingerprintOf(via(0, 1, 5, 3))}) {
		t.Errorf("%v", got)
	}
}

// Two ASes can invent very many others. The ways from all ASes to them take bounded memory.
func TestManyInventedASes(t *testing.T) {
	const many, hub, first = 1 << 14, 2, 1000
	var paths []reportedPath
	for n := range many {
		for by := range 2 {
			paths = append(paths, reportedPath{as(by), 0.1, via(0, by, hub, first+n)})
		}
	}
	g, known := newGraph(paths), 0
	for n := range 1 + mostStops/many {
		if _, ok := g.distance(as(first+n), as(hub)); ok {
			known++
		}
	}
	if known != mostStops/many {
		t.Errorf("%d ASes know the ways to %d others", known, many)
	}
	if _, ok := g.distance(as(first), as(hub)); !ok {
		t.Error("a way that was known is forgotten")
	}
}

func TestChoose(t *testing.T) {
	var peers []wire.Peer
	for n := range 40 {
		peers = append(peers, wire.Peer{Addr: wire.Addr{IA: as(n), Host: host(n), Port: 1}})
	}
	distance := func(ia pathsel.IA) (time.Duration, bool) { return time.Duration(ia&0xff) * ms, ia&0xff < 30 }
	numbers := func(of []wire.Peer) (out []int) {
		for _, p := range of {
			out = append(out, int(p.Addr.IA&0xff))
		}
		return out
	}
	if got := numbers(Choose(peers, 6, wire.Nearest, distance, lots())); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5}) {
		t.Errorf("nearest: %v", got)
	}
	// Half near, half anybody; nobody twice; and everybody sooner or later, also those of whom no
	// distance is known.
	random, seen := lots(), map[int]bool{}
	for range 200 {
		got := numbers(Choose(peers, 6, wire.Mixed, distance, random))
		if len(got) != 6 || !slices.Equal(got[:3], []int{0, 1, 2}) || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 6 {
			t.Fatalf("mixed: %v", got)
		}
		for _, n := range got {
			seen[n] = true
		}
	}
	if len(seen) != 40 {
		t.Errorf("only %d of 40 were ever chosen", len(seen))
	}
	// An AS that says it is near to all is half of the nearest at most, while there are others.
	crowd := slices.Clone(peers)
	for n := range 100 {
		crowd = append(crowd, wire.Peer{Addr: wire.Addr{IA: as(0), Host: host(100 + n), Port: 1}})
	}
	for _, tt := range []struct {
		order wire.Order
		most  int
	}{{wire.Nearest, 5}, {wire.Mixed, 8}} { // the other half of mixed is by chance: the store bounds it
		n := 0
		for _, as := range numbers(Choose(crowd, 10, tt.order, distance, lots())) {
			if as == 0 {
				n++
			}
		}
		if n > tt.most {
			t.Errorf("%s: %d of 10 peers are of one AS", tt.order, n)
		}
	}
	ip := []wire.Peer{{Addr: wire.Addr{Host: host(1), Port: 1}}, {Addr: wire.Addr{Host: host(2), Port: 1}}, {Addr: wire.Addr{Host: host(3), Port: 1}}}
	for _, tt := range []struct{ ip, scion, n, wantIP int }{{3, 40, 4, 2}, {1, 40, 4, 1}, {3, 1, 4, 3}, {3, 0, 2, 2}, {0, 3, 9, 0}, {3, 3, 0, 0}} {
		got := Choose(append(slices.Clone(ip[:tt.ip]), peers[:tt.scion]...), tt.n, wire.Mixed, distance, lots())
		n := 0
		for _, p := range got {
			if !p.Addr.IsSCION() {
				n++
			}
		}
		if n != tt.wantIP || len(got) != min(tt.n, tt.ip+tt.scion) {
			t.Errorf("%+v: %d on IP of %d", tt, n, len(got))
		}
	}
}

// A full memory stays within its bound, and still answers.
func TestFull(t *testing.T) {
	b := limited(limits{})
	random := lots()
	for n := range 400 {
		b.Meet(epoch, as(n))
	}
	for n := range 20_000 {
		src, dst := random.IntN(200), 200+random.IntN(200)
		way := []int{src, 1000 + random.IntN(40), 2000 + random.IntN(10), 1000 + random.IntN(40), dst}
		if way[1] == way[3] {
			continue
		}
		b.Report(epoch, at(src, n%20), []wire.PathReport{report(50*ms, 5, via(0, way...))})
	}
	b.Refresh(epoch)
	hinted := 0
	for n := range 100 {
		b.Distance(epoch, as(n), as(199))
		hinted += len(b.Hints(epoch, as(n), []pathsel.IA{as(200 + n)}, 8, random))
	}
	if k := b.Known(); k.Paths > b.limits.paths || k.Paths < 10_000 || hinted == 0 {
		t.Errorf("%+v; %d hints", k, hinted)
	}
}
