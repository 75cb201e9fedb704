package scenario

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"braid/pathsel"
)

// mostPayload returns the largest sum of payload rates, in bits per second, that routes can carry
// together; NaN if there is no limit, because no link of some route has a rate. It solves a linear
// programme with a rate for each route and a bound for each link. For one leecher the result is the
// maximum flow over its paths, unless acknowledgements fill a link.
func mostPayload(routes []route, capacity map[pathsel.Interface]float64) float64 {
	var open []route
	isDown := func(l pathsel.Interface) bool { return capacity[l] <= 0 }
	for _, r := range routes {
		if slices.ContainsFunc(r.Links, isDown) || slices.ContainsFunc(r.Back, isDown) {
			continue
		}
		if !r.hasLimit(capacity) {
			return math.NaN()
		}
		open = append(open, r)
	}
	if len(open) == 0 {
		return 0
	}
	bounds := boundsOf(open, capacity)
	x := maximise(slices.Repeat([]float64{1}, len(open)), len(bounds.rates), bounds.fill)
	var sum float64
	for _, v := range x[:len(open)] {
		sum += v
	}
	return sum * mega
}

// hasLimit tells whether a link of the route has a rate.
func (r route) hasLimit(capacity map[pathsel.Interface]float64) bool {
	return slices.ContainsFunc(r.Links, func(l pathsel.Interface) bool {
		return !math.IsInf(capacity[l], 1)
	})
}

// linkBounds are rows of a linear programme whose first variables are the payloads of routes. There
// is a row for each link that has a rate and carries payload or acknowledgements.
type linkBounds struct {
	routes []route
	rows   map[pathsel.Interface]int
	rates  []float64 // of the rows, in Mbit/s
}

const mega = 1e6 // keeps the numbers of a programme near 1

func boundsOf(routes []route, capacity map[pathsel.Interface]float64) linkBounds {
	bounds := linkBounds{routes: routes, rows: map[pathsel.Interface]int{}}
	for _, r := range routes {
		r.load(func(l pathsel.Interface, _ float64) {
			if _, ok := bounds.rows[l]; !ok && !math.IsInf(capacity[l], 1) {
				bounds.rows[l] = len(bounds.rates)
				bounds.rates = append(bounds.rates, capacity[l]/mega)
			}
		})
	}
	return bounds
}

// fill writes the rows, which are the first of the programme.
func (bounds linkBounds) fill(a *mat.Dense, b []float64) {
	copy(b, bounds.rates)
	for i, r := range bounds.routes {
		r.load(func(l pathsel.Interface, bits float64) {
			if row, ok := bounds.rows[l]; ok {
				a.Set(row, i, a.At(row, i)+bits)
			}
		})
	}
}

// load calls on for each link of the route, with the bits that each bit of payload takes there.
// This includes acknowledgements on the way back.
func (r route) load(on func(l pathsel.Interface, bits float64)) {
	for _, l := range r.Links {
		on(l, 1/r.Share)
	}
	for _, l := range r.Back {
		on(l, r.Acks)
	}
}

// present returns the leechers that are there at a time.
func (r *Record) present(t float64) (there []*Leecher) {
	for _, l := range r.Leechers {
		if l.Start <= t && t < l.End {
			there = append(there, l)
		}
	}
	return there
}

// carriesAll returns how much payload, in bits per second, the links could carry at a time to the
// leechers and bulk flows that are there; NaN if there is no limit.
func (r *Record) carriesAll(t float64) float64 {
	var bulk []route
	for _, f := range r.Flows {
		if f.Kind == Bulk && f.Start <= t && t < f.End {
			bulk = append(bulk, f.route)
		}
	}
	return r.carries(t, r.present(t), bulk...)
}

// carries returns the same for some leechers, and over more routes. Datagrams at a constant rate
// have their rate reserved.
func (r *Record) carries(t float64, leechers []*Leecher, more ...route) float64 {
	routes := more
	for _, l := range leechers {
		routes = append(routes, l.routes...)
	}
	capacity := maps.Clone(r.capacityAt(t))
	for _, f := range r.Flows {
		if f.Kind == Datagrams && f.Start <= t && t < f.End {
			for _, l := range f.route.Links {
				capacity[l] = max(0, capacity[l]-float64(f.Rate))
			}
		}
	}
	return mostPayload(routes, capacity)
}

// LimitStep is the payload that the links could carry, in Mbit/s, from a time until the next step.
// Times are in seconds after the first payload byte.
type LimitStep struct {
	T     float64 `json:"t"`
	MbitS float64 `json:"mbit_s"`
}

// limit returns the limit over the time of the run. It is nil if leechers download from each other,
// since it is about data from seeds, and if some path has no link with a rate.
func (r *Record) limit() []LimitStep {
	if r.feed {
		return nil
	}
	var steps []LimitStep
	for _, t := range r.moments(r.began(), r.End) {
		v := r.carriesAll(t)
		if math.IsNaN(v) {
			return nil
		}
		if n := len(steps); t < r.End && (n == 0 || steps[n-1].MbitS != v/1e6) {
			steps = append(steps, LimitStep{t, v / 1e6})
		}
	}
	if !slices.ContainsFunc(steps, func(s LimitStep) bool { return s.MbitS > 0 }) {
		return nil // datagrams only, which have a rate of their own
	}
	return steps
}

// began returns when the first leecher started; 0 if there is traffic only.
func (r *Record) began() float64 {
	if len(r.Leechers) == 0 {
		return 0
	}
	byStart := func(a, b *Leecher) int { return cmp.Compare(a.Start, b.Start) }
	return slices.MinFunc(r.Leechers, byStart).Start
}

// leastTime returns T*, the least time in seconds, from the first leecher's start, in which the
// links could have carried the payload of all leechers. It is the longest of two times: the time
// that all need together, and the longest time that one would need alone. This is exact for one
// leecher and for equal leechers.
// It is infinite if the links never could, and NaN without a limit, without leechers, if leechers
// download from each other, or if a bulk flow competes.
func (r *Record) leastTime() (t float64) {
	if r.feed || slices.ContainsFunc(r.Flows, func(f *Flow) bool { return f.Kind == Bulk }) {
		return math.NaN()
	}
	groups := [][]*Leecher{r.Leechers}
	for _, l := range r.Leechers {
		groups = append(groups, []*Leecher{l})
	}
	for _, g := range groups {
		t = max(t, r.carried(g)-r.began()) // NaN stays NaN
	}
	return t
}

// carried returns when the links could have carried what some leechers got, each from its start on.
func (r *Record) carried(leechers []*Leecher) (done float64) {
	var missing float64
	for _, l := range leechers {
		missing += 8 * l.Payload.before(r.End)
	}
	if missing == 0 {
		return r.began()
	}
	moments := r.moments(r.began(), r.End)
	for i, a := range moments {
		there := slices.DeleteFunc(slices.Clone(leechers), func(l *Leecher) bool { return l.Start > a })
		rate := r.carries(a, there)
		if i+1 == len(moments) || rate*(moments[i+1]-a) >= missing {
			return a + missing/rate
		}
		missing -= rate * (moments[i+1] - a)
	}
	return math.NaN()
}

// fair returns how much payload, in bits, a flow gets between two times if each link is divided
// evenly among the flows and leechers that could use it; NaN if no link on its way has a rate.
func (r *Record) fair(f *Flow, from, to float64) float64 {
	return r.integrate(from, to, func(t float64) float64 {
		capacity := r.capacityAt(t)
		least := math.Inf(1)
		for _, link := range f.route.Links {
			users := 0
			uses := func(x route) bool { return slices.Contains(x.Links, link) }
			for _, l := range r.present(t) {
				if slices.ContainsFunc(l.routes, uses) {
					users++
				}
			}
			for _, g := range r.Flows {
				if g.Kind == Bulk && g.Start <= t && t < g.End && uses(g.route) {
					users++
				}
			}
			least = min(least, capacity[link]/float64(max(1, users)))
		}
		if math.IsInf(least, 1) {
			return math.NaN()
		}
		return least * f.route.Share
	})
}

// integrate integrates a rate that changes only at moments.
func (r *Record) integrate(from, to float64, rate func(t float64) float64) (sum float64) {
	moments := r.moments(from, to)
	for i := 1; i < len(moments); i++ {
		sum += rate(moments[i-1]) * (moments[i] - moments[i-1])
	}
	return sum
}

// moments returns the times at which links, leechers or flows change, with both ends of the span;
// nil if the span is empty.
func (r *Record) moments(from, to float64) []float64 {
	if from >= to {
		return nil
	}
	moments := []float64{from, to}
	add := func(t float64) {
		if from < t && t < to {
			moments = append(moments, t)
		}
	}
	for _, s := range r.states {
		add(s.t)
	}
	for _, l := range r.Leechers {
		add(l.Start)
		add(l.End)
	}
	for _, f := range r.Flows {
		add(f.Start)
		add(f.End)
	}
	slices.Sort(moments)
	return slices.Compact(moments)
}
