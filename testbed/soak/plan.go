package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"time"
)

// Kind is a kind of fault.
type Kind string

const (
	Cut    Kind = "cut"    // a link drops everything
	Delay  Kind = "delay"  // a link has more delay, and jitter
	Lossy  Kind = "loss"   // a link loses packets
	Slow   Kind = "slow"   // a link has little bandwidth
	Narrow Kind = "narrow" // a link carries small packets only, and may or may not say so

	Pause Kind = "pause" // a router stops

	KillTracker  Kind = "kill-tracker"
	KillSeeder   Kind = "kill-seeder"
	KillDownload Kind = "kill-download"
	FullDisk     Kind = "full-disk"

	// Attacks of hostile hosts on the seeders and the tracker.
	Silence       Kind = "silence"        // many silent connections
	HaveFlood     Kind = "have-flood"     // HaveAll without end
	MetadataFlood Kind = "metadata-flood" // requests for metadata whose answers are never read
	RequestFlood  Kind = "request-flood"  // requests for blocks whose answers are never read
	Garbage       Kind = "garbage"        // random bytes behind the handshake
	ForgedDown    Kind = "forged-down"    // SCMP "interface down" that quotes packets that were never sent
	ForgedMTU     Kind = "forged-mtu"     // SCMP "packet too big" with an impossible MTU
	SwarmFlood    Kind = "swarm-flood"    // one host joins swarm after swarm
)

// Kinds are all kinds of faults.
var Kinds = []Kind{
	Cut, Delay, Lossy, Slow, Narrow, Pause, KillTracker, KillSeeder, KillDownload, FullDisk,
	Silence, HaveFlood, MetadataFlood, RequestFlood, Garbage, ForgedDown, ForgedMTU, SwarmFlood,
}

// Bounds of a plan. Two minutes have each kind at least once. With longer faults nothing would
// work.
const (
	shortestFault, longestFault            = 3 * time.Second, 12 * time.Second
	shortestGap, longestGap                = 1500 * time.Millisecond, 5 * time.Second
	shortestPeriod, longestPeriod          = 4 * time.Second, 9 * time.Second // between the starts of downloads
	links, routers                         = 6, 5                             // of the topology
	mostLoss, mostDelay, leastNarrow       = 0.2, 300 * time.Millisecond, 1280
	slowRate                         int64 = 1_000_000
)

// LeastLength is the length of the shortest run that has faults.
const LeastLength = 10 * time.Second

// longestWarmUp is how long the first part of a run lasts at most. It is long enough for nearly
// every kind of fault, so that the processes' tables (of remembered peers, for example) are full
// when their levels are taken. With an earlier level, the filling of these tables would look like a
// leak.
const longestWarmUp = time.Minute

// Fault is a fault that lasts for a while.
type Fault struct {
	At   time.Duration `json:"at_ns"`
	For  time.Duration `json:"for_ns"`
	Kind Kind          `json:"kind"`
	// Target is the number of the link or router in the topology.
	Target int `json:"target"`
	// Strength is from 0 to 1, the worst of the kind.
	Strength float64 `json:"strength"`
}

// scope names what the fault affects. Faults of one scope must not overlap, because the end of one
// would end both.
func (f Fault) scope() string {
	switch f.Kind {
	case Cut, Delay, Lossy, Slow, Narrow:
		return fmt.Sprint("link ", f.Target)
	case Pause:
		return fmt.Sprint("router ", f.Target)
	}
	return string(f.Kind)
}

func (f Fault) String() string { return fmt.Sprintf("%6.1f s  %s", f.At.Seconds(), f.what()) }

// what describes the fault without its time.
func (f Fault) what() string {
	s := fmt.Sprintf("%-14s for %4.1f s", f.Kind, f.For.Seconds())
	switch f.Kind {
	case Cut, Delay, Lossy, Slow, Narrow, Pause:
		s += "  " + f.scope()
	}
	return fmt.Sprintf("%s  strength %.2f", s, f.Strength)
}

// Neighbour is a hostile peer among the peers of a download.
type Neighbour string

const (
	Nobody  Neighbour = ""
	Corrupt Neighbour = "corrupt" // sends wrong blocks
	Mute    Neighbour = "mute"    // has everything and sends nothing
	Stingy  Neighbour = "stingy"  // ignores some requests
	Raving  Neighbour = "raving"  // floods with HaveAll
)

// Download is a download of the stream.
type Download struct {
	At        time.Duration `json:"at_ns"`
	Torrent   int           `json:"torrent"` // of the torrents of the run
	Storage   string        `json:"storage"`
	TCP       bool          `json:"tcp"`        // peers on IP only; else on SCION only
	SmallDisk bool          `json:"small_disk"` // on the disk that FullDisk fills
	Tracked   bool          `json:"tracked"`    // the seeders come from the tracker only; not with TCP
	Neighbour Neighbour     `json:"neighbour,omitempty"`
}

func (d Download) String() string {
	return fmt.Sprintf("%6.1f s  download of torrent %d, storage %s, TCP %t, small disk %t, "+
		"tracker only %t, neighbour %q",
		d.At.Seconds(), d.Torrent, d.Storage, d.TCP, d.SmallDisk, d.Tracked, d.Neighbour)
}

// Plan is what happens in a run, and when.
type Plan struct {
	Faults    []Fault    `json:"faults"`    // in the order of their times
	Downloads []Download `json:"downloads"` // likewise
	// WarmUp is when the run rests and the levels of its processes are taken. The clock of the plan
	// stands still meanwhile.
	WarmUp time.Duration `json:"warm_up_ns"`
}

// split returns the part of the plan that starts during the warm-up, and the part that starts
// later.
func (p Plan) split() (first, second Plan) {
	f := sort.Search(len(p.Faults), func(i int) bool { return p.Faults[i].At >= p.WarmUp })
	d := sort.Search(len(p.Downloads), func(i int) bool { return p.Downloads[i].At >= p.WarmUp })
	first = Plan{Faults: p.Faults[:f], Downloads: p.Downloads[:d]}
	second = Plan{Faults: p.Faults[f:], Downloads: p.Downloads[d:]}
	return first, second
}

// NewPlan makes the plan of a run. It depends on the seed and the length only. All faults are over
// at its end.
func NewPlan(seed uint64, length time.Duration) Plan {
	r := rand.New(rand.NewPCG(seed, 0))
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(r.Int64N(int64(most-least)))
	}
	p := Plan{WarmUp: min(length/3, longestWarmUp)}
	var bag []Kind // each kind comes once before any comes again
	free := map[string]time.Duration{}
	for at := between(shortestGap, longestGap); at+shortestFault <= length; at += between(shortestGap, longestGap) {
		if len(bag) == 0 {
			bag = slices.Clone(Kinds)
			r.Shuffle(len(bag), func(i, j int) { bag[i], bag[j] = bag[j], bag[i] })
		}
		// A process that is killed forgets its tables. Hence all that live long live through the
		// warm-up.
		next := slices.IndexFunc(bag, func(k Kind) bool {
			return at >= p.WarmUp || k != KillTracker && k != KillSeeder
		})
		if next < 0 {
			continue
		}
		lasts := min(between(shortestFault, longestFault), length-at)
		f := Fault{At: at, For: lasts, Kind: bag[next], Strength: r.Float64()}
		switch f.Kind {
		case Cut, Delay, Lossy, Slow, Narrow:
			f.Target = r.IntN(links)
		case Pause:
			f.Target = r.IntN(routers)
		}
		if free[f.scope()] > at {
			continue // its turn comes later
		}
		free[f.scope()] = f.At + f.For
		bag = slices.Delete(bag, next, next+1)
		p.Faults = append(p.Faults, f)
	}
	for at := time.Duration(0); at < length; at += between(shortestPeriod, longestPeriod) {
		d := Download{At: at, Torrent: r.IntN(torrents), Storage: []string{"file", "file", "mmap", "bolt"}[r.IntN(4)]}
		d.TCP, d.SmallDisk = r.IntN(4) == 0, r.IntN(3) == 0
		d.Tracked = !d.TCP && r.IntN(2) == 0
		if r.IntN(2) == 0 {
			d.Neighbour = []Neighbour{Corrupt, Mute, Stingy, Raving}[r.IntN(4)]
		}
		p.Downloads = append(p.Downloads, d)
	}
	return p
}
