package figure

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// Scale maps values to places along a line.
type Scale struct {
	Min, Max float64 // values
	From, To float64 // places
}

// At returns the place of a value, which may lie beyond the ends.
func (s Scale) At(v float64) float64 {
	if s.Max == s.Min {
		return s.From
	}
	return s.From + (v-s.Min)/(s.Max-s.Min)*(s.To-s.From)
}

// Clamp returns the place of a value; a value beyond an end is placed at that end.
func (s Scale) Clamp(v float64) float64 { return s.At(min(max(v, s.Min), s.Max)) }

// Ticks returns about n round values from lo to hi, and the number of decimals that they need.
func Ticks(lo, hi float64, n int) (ticks []float64, decimals int) {
	if !(hi > lo) || math.IsInf(hi-lo, 0) || n < 1 {
		return []float64{lo}, 0
	}
	raw := (hi - lo) / float64(n)
	unit := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * unit
	for _, k := range []float64{1, 2, 5} {
		if k*unit >= raw*(1-1e-9) {
			step = k * unit
			break
		}
	}
	// The number of ticks is bounded: far from 0, neighbouring ticks may be the same float64.
	for k, end := math.Ceil(lo/step-1e-9), 3*n+3; k*step <= hi+step*1e-9 && len(ticks) < end; k++ {
		ticks = append(ticks, k*step+0) // -0 is 0
	}
	return ticks, max(0, -int(math.Floor(math.Log10(step)+1e-9)))
}

// RoundUp returns the first tick at or above v, for an axis that starts at 0.
func RoundUp(v float64, n int) float64 {
	if !(v > 0) {
		return 1
	}
	ticks, _ := Ticks(0, v, n)
	if last := ticks[len(ticks)-1]; len(ticks) > 1 && last < v*(1-1e-9) {
		return last + ticks[1] - ticks[0]
	}
	return v
}

// Frame is the area of a plot, with a scale in each direction.
type Frame struct{ X, Y Scale }

// Place returns the place of a pair of values.
func (f Frame) Place(x, y float64) Point { return Point{f.X.At(x), f.Y.At(y)} }

// TitleHeight is the height of a title below an axis.
const TitleHeight = 16.0

// GridX draws a line down the plot for about n values.
func (f Frame) GridX(n int) (marks []Mark) {
	ticks, _ := Ticks(f.X.Min, f.X.Max, n)
	for _, v := range ticks {
		marks = append(marks, Segment(f.X.At(v), f.Y.To, f.X.At(v), f.Y.From, Grid))
	}
	return marks
}

// AxisX draws ticks and labels for about n values below the plot, and the title, which names the
// unit, below the labels.
func (f Frame) AxisX(n int, title string) []Mark {
	marks := []Mark{Segment(f.X.From, f.Y.From, f.X.To, f.Y.From, Muted)}
	ticks, decimals := Ticks(f.X.Min, f.X.Max, n)
	for _, v := range ticks {
		x := f.X.At(v)
		marks = append(marks, Segment(x, f.Y.From, x, f.Y.From+4, Muted),
			Words(x, f.Y.From+16, strconv.FormatFloat(v, 'f', decimals, 64), Muted, Middle))
	}
	if title != "" {
		marks = append(marks, Words((f.X.From+f.X.To)/2, f.Y.From+16+TitleHeight, title, Muted, Middle))
	}
	return marks
}

// AxisY draws a line across the plot, and a label to its left, for about n values.
func (f Frame) AxisY(n int) []Mark {
	var marks []Mark
	ticks, decimals := Ticks(f.Y.Min, f.Y.Max, n)
	for _, v := range ticks {
		y := f.Y.At(v)
		marks = append(marks, Segment(f.X.From, y, f.X.To, y, Grid),
			Words(f.X.From-6, y+4, strconv.FormatFloat(v, 'f', decimals, 64), Muted, End))
	}
	return marks
}

// Spread places labels between lo and hi, at least gap apart and as near to their wishes as
// possible. The places are in the order of the wishes.
func Spread(wishes []float64, gap, lo, hi float64) []float64 {
	order := make([]int, len(wishes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(wishes[a], wishes[b]) })
	if n := float64(len(wishes) - 1); n > 0 && n*gap > hi-lo {
		gap = (hi - lo) / n
	}
	// Labels that touch form a block, which stands at the mean of their wishes.
	type block struct {
		first, n int
		sum      float64 // of wishes, each less its place within the block
	}
	var blocks []block
	top := func(b block) float64 {
		return min(max(b.sum/float64(b.n), lo), hi-float64(b.n-1)*gap)
	}
	for i, k := range order {
		b := block{i, 1, wishes[k]}
		for len(blocks) > 0 {
			p := blocks[len(blocks)-1]
			if top(p)+float64(p.n)*gap <= top(b) {
				break
			}
			b = block{p.first, p.n + b.n, p.sum + b.sum - float64(b.n)*float64(p.n)*gap}
			blocks = blocks[:len(blocks)-1]
		}
		blocks = append(blocks, b)
	}
	out := make([]float64, len(wishes))
	for _, b := range blocks {
		for i := range b.n {
			out[order[b.first+i]] = top(b) + float64(i)*gap
		}
	}
	return out
}
