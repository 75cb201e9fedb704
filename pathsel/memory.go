package pathsel

import (
	"hash/fnv"
	"strconv"
	"time"
)

// adaptiveMemory is what the adaptive selector remembers from one view to the next. Decide returns
// a new one and never changes the one in the view. Paths and peers that have left the view are
// forgotten, so that the memory does not grow.
type adaptiveMemory struct {
	Paths []PathMemory `json:"paths,omitempty"` // in the order of the view's candidates
	Peers []PeerMemory `json:"peers,omitempty"`
	// Quiet is the earliest time for the next change that only verifies an earlier measurement.
	// Round counts these changes and varies their jitter.
	Quiet time.Time `json:"quiet,omitzero"`
	Round int       `json:"round,omitempty"`
}

// PathMemory is what the adaptive selector remembers of one path-level peer.
type PathMemory struct {
	Key Key `json:"key"`
	// Why tells why the path is set aside. It is Used while the path carries pieces or is untried.
	Why Why `json:"why,omitempty"`
	// Tried is when the path was last given requests.
	Tried time.Time `json:"tried,omitzero"`
	// Next is the earliest time for the next probe of a path that is set aside.
	Next time.Time `json:"next,omitzero"`
	// Backoff counts how many times in a row the path was set aside.
	Backoff int `json:"backoff,omitempty"`
	// Level is what the others on its bottleneck carried when the path was found to add nothing, in
	// bytes per second.
	Level float64 `json:"level,omitempty"`
	// Up tells whether the connection was open in the last view. Breaks counts recent failures of
	// an open connection, the last at Broke.
	Up     bool      `json:"up,omitempty"`
	Breaks int       `json:"breaks,omitempty"`
	Broke  time.Time `json:"broke,omitzero"`
}

// Why is the reason for which a path is set aside. It determines what a probe of the path must
// show.
type Why string

const (
	Used    Why = ""        // not set aside
	Shared  Why = "shared"  // others fill the same bottleneck
	Weak    Why = "weak"    // almost no bandwidth
	Waste   Why = "waste"   // too many duplicate bytes or lost packets
	Late    Why = "late"    // too slow for the end of the download
	Rotated Why = "rotated" // closed because there are more paths than places
)

// PeerMemory is what the adaptive selector remembers of one address-level peer.
type PeerMemory struct {
	Peer PeerID `json:"peer"`
	// Explored tells whether each of the peer's paths was tried once.
	Explored bool `json:"explored,omitempty"`
	// Started is set once it is known whether paths with common links add bandwidth; until then,
	// only disjoint paths are opened. Group is the experiment that finds out, while it runs.
	Started bool   `json:"started,omitempty"`
	Group   *Group `json:"group,omitempty"`
	// Displaced is the path that lent its place to a path that was unused for long.
	Displaced Fingerprint `json:"displaced,omitempty"`
}

// chance returns a pseudo-random number from 0 to 1 that depends only on its arguments. Clients
// have different seeds and so draw different numbers; otherwise all clients in the same situation
// would do the same at the same moment.
func chance(seed uint64, k Key, n int) float64 {
	h := fnv.New64a()
	h.Write(strconv.AppendUint(nil, seed, 16))
	h.Write([]byte("|" + string(k.Peer) + "|" + string(k.Path) + "|"))
	h.Write(strconv.AppendInt([]byte{'0'}, int64(n), 16)) // the 0 is for traces of earlier versions
	// FNV mixes its last bytes badly, so finish as splitmix64 does.
	z := h.Sum64()
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return float64((z^z>>31)>>11) / (1 << 53)
}

// jitter lengthens or shortens d by up to a quarter.
func jitter(d time.Duration, seed uint64, k Key, n int) time.Duration {
	return time.Duration(float64(d) * (0.75 + 0.5*chance(seed, k, n)))
}
