package scenario

import (
	"maps"
	"slices"

	"braid/pathsel"
)

// handshakeRank tells how well handshakes predicted bandwidth: the rank correlation (Spearman) of the paths' order by handshake,
// shortest first, with their order by what came over them for each second in which they were in use, most first. 1 is a
// perfect prediction, -1 the opposite. Of several leechers it is the mean; ok is false if none had two paths to compare.
func (r record) handshakeRank() (rho float64, ok bool) {
	n := 0
	for _, l := range r.leechers {
		if v, ok := l.handshakeRank(); ok {
			rho += v
			n++
		}
	}
	return rho / float64(max(1, n)), n > 0
}

func (l leecherRecord) handshakeRank() (rho float64, ok bool) {
	last := l.before(l.end)
	if last < 0 {
		return 0, false
	}
	used := l.used()
	var quick, rate []float64
	for _, f := range slices.Sorted(maps.Keys(used)) {
		if h := l.handshakes[f]; h > 0 && used[f] > 0 {
			quick = append(quick, -h)
			rate = append(rate, float64(l.samples[last].paths[f])/used[f])
		}
	}
	return pathsel.Spearman(quick, rate)
}

// used is how long each path could bring payload, in seconds: while it was selected, or tried for a moment.
func (l leecherRecord) used() map[pathsel.Fingerprint]float64 {
	used, since := map[pathsel.Fingerprint]float64{}, map[pathsel.Key]float64{}
	leave := func(k pathsel.Key, t float64) {
		if from, in := since[k]; in {
			used[k.Path] += t - from
			delete(since, k)
		}
	}
	for _, c := range l.choices {
		switch {
		case c.t >= l.end || c.key.Conn != 0: // more connections on a path are no other path
		case leaves(c.name):
			leave(c.key, c.t)
		case c.name == "path-opened" || c.name == "path-returned" || c.name == "path-probed":
			if _, in := since[c.key]; !in {
				since[c.key] = c.t
			}
		}
	}
	for k := range since {
		leave(k, l.end)
	}
	return used
}
