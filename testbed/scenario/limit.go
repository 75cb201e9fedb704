package scenario

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"

	"braid/pathsel"
)

// mostPayload is the largest sum of payload rates, in bits per second, that routes can carry together: a linear programme
// with a rate for each route and a bound for each link. For one leecher it is the maximum flow over its paths.
func mostPayload(routes []route, capacity map[pathsel.Interface]float64) (float64, error) {
	const mega = 1e6 // keeps the programme's numbers near 1
	var open []route
	rows := map[pathsel.Interface]int{}
	var bounds []float64
	for _, r := range routes {
		if slices.ContainsFunc(r.links, func(i pathsel.Interface) bool { return capacity[i] <= 0 }) {
			continue
		}
		bounded := false
		for _, l := range r.links {
			if c := capacity[l]; !math.IsInf(c, 1) {
				bounded = true
				if _, ok := rows[l]; !ok {
					rows[l] = len(bounds)
					bounds = append(bounds, c/mega)
				}
			}
		}
		if !bounded {
			return 0, fmt.Errorf("path %s has no link with a rate: there is no limit to compare with", r.fingerprint.Short())
		}
		open = append(open, r)
	}
	if len(open) == 0 {
		return 0, nil
	}
	// A route's variable is its payload; on a link it takes that much divided by the payload's share. Slack variables
	// follow, and are a first solution.
	n := len(open)
	cost := make([]float64, n+len(bounds))
	a := mat.NewDense(len(bounds), n+len(bounds), nil)
	basis := make([]int, len(bounds))
	for i, r := range open {
		cost[i] = -1
		r.load(func(l pathsel.Interface, bits float64) {
			if row, ok := rows[l]; ok {
				a.Set(row, i, a.At(row, i)+bits)
			}
		})
	}
	for row := range bounds {
		a.Set(row, n+row, 1)
		basis[row] = n + row
	}
	best, _, err := lp.Simplex(cost, a, bounds, 1e-9, basis)
	if err != nil {
		return 0, fmt.Errorf("compute the limit of %d paths over %d links: %w", n, len(bounds), err)
	}
	return -best * mega, nil
}

// load tells what each bit of payload on the route takes of which link: on the way there, and for acknowledgements on the way
// back.
func (r route) load(on func(l pathsel.Interface, bits float64)) {
	for _, l := range r.links {
		on(l, 1/r.share)
	}
	for _, l := range r.back {
		on(l, r.acks)
	}
}

// allowed is how much payload, in bits, all links together could have carried to who was there between two times:
// leechers, and the competing flows. Datagrams at a constant rate have their rate in advance.
func (r record) allowed(from, to float64) (float64, error) {
	return r.integrate(from, to, func(t float64) (float64, error) {
		var routes []route
		for _, l := range r.leechers {
			if l.start <= t && t < l.end {
				routes = append(routes, l.routes...)
			}
		}
		capacity := r.capacityAt(t)
		reserved := false
		for _, f := range r.flows {
			switch {
			case t < f.start || t >= f.end:
			case f.Kind == Bulk:
				routes = append(routes, f.route)
			default:
				if !reserved {
					capacity, reserved = maps.Clone(capacity), true
				}
				for _, l := range f.route.links {
					capacity[l] = max(0, capacity[l]-float64(f.Rate))
				}
			}
		}
		return mostPayload(routes, capacity)
	})
}

// fair is how much payload, in bits, a competing flow gets between two times if each link is divided evenly among
// the flows and leechers that could use it.
func (r record) fair(f flowRecord, from, to float64) (float64, error) {
	return r.integrate(from, to, func(t float64) (float64, error) {
		capacity := r.capacityAt(t)
		least := math.Inf(1)
		for _, link := range f.route.links {
			users := 0
			uses := func(x route) bool { return slices.Contains(x.links, link) }
			for _, l := range r.leechers {
				if l.start <= t && t < l.end && slices.ContainsFunc(l.routes, uses) {
					users++
				}
			}
			for _, g := range r.flows {
				if g.Kind == Bulk && g.start <= t && t < g.end && uses(g.route) {
					users++
				}
			}
			least = min(least, capacity[link]/float64(max(1, users)))
		}
		if math.IsInf(least, 1) {
			return 0, fmt.Errorf("the path of %s has no link with a rate: there is no share to compare with", f.Name)
		}
		return least * f.route.share, nil
	})
}

// integrate sums a rate that only changes with links, leechers and flows.
func (r record) integrate(from, to float64, rate func(t float64) (float64, error)) (sum float64, err error) {
	steps := []float64{from, to}
	for _, s := range r.states {
		steps = append(steps, s.t)
	}
	for _, l := range r.leechers {
		steps = append(steps, l.start, l.end)
	}
	for _, f := range r.flows {
		steps = append(steps, f.start, f.end)
	}
	slices.Sort(steps)
	for i := 1; i < len(steps); i++ {
		a, b := max(from, steps[i-1]), min(to, steps[i])
		if a >= b {
			continue
		}
		v, err := rate(a)
		if err != nil {
			return 0, err
		}
		sum += v * (b - a)
	}
	return sum, nil
}
