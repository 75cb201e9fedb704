package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"braid/testbed/figure"
	"braid/testbed/scenario"
)

// load is the cost of a process, from the first payload byte to the end.
type load struct {
	name                    string
	cpu, cores, perGB, peak float64
	component               int // of scenario.Components, or one more for several together
}

// loads are those of all processes, the most expensive first.
func (c *course) loads() (out []load) {
	gigabytes := c.Payload() / 1e9
	for _, p := range c.Processes {
		l := load{
			name: c.names.process(p.Name), component: slices.Index(scenario.Components[:], p.Component),
			cpu: p.Used, cores: p.Cores, peak: float64(p.Peak),
		}
		if gigabytes > 0 {
			l.perGB = l.cpu / gigabytes
		}
		out = append(out, l)
	}
	slices.SortStableFunc(out, func(a, b load) int { return cmp.Compare(b.cpu, a.cpu) })
	return out
}

const mostProcesses = 18 // in the figure

// cpuFigure draws how many processors each process used.
func (c *course) cpuFigure() figure.Figure {
	loads := c.loads()
	if rest := loads[min(len(loads), mostProcesses):]; len(rest) > 0 {
		others := load{name: fmt.Sprintf("%d others", len(rest)), component: len(scenario.Components)}
		for _, l := range rest {
			others.cpu, others.cores, others.perGB = others.cpu+l.cpu, others.cores+l.cores, others.perGB+l.perGB
		}
		loads = append(loads[:mostProcesses:mostProcesses], others)
	}
	most := 0.05
	var words []string
	for _, l := range loads {
		most = max(most, l.cores)
		words = append(words, fmt.Sprintf("%s %.2f", l.name, l.cores))
	}
	of := fmt.Sprintf("%s. All processors together: %.0f %% busy, %.0f %% by these",
		c.of, 100*c.result.CPU, 100*c.result.OwnCPU)
	f, y := begin("cpu", "Processors in use by each process", of, c.result.CPUBound,
		"process", "processors", "CPU s", "CPU s/GB")
	f.Text += "Processors in use on average: " + strings.Join(words, ", ") + "."
	at := bars(&f, y+4, len(loads), most, "processors in use, on average")
	for i, l := range loads {
		row, name := barRow(at, i, l.name)
		ink, _ := figure.SeriesInk(l.component)
		f.Data.Plot(l.name, l.cores, l.cpu, l.perGB)
		tip := fmt.Sprintf("%s: %.2f s of CPU time, %.3f processors on average, %.1f s for each GB of payload",
			l.name, l.cpu, l.cores, l.perGB)
		b := figure.Box(at.X.From, row-6, max(at.X.At(l.cores)-at.X.From, 1), 12, ink).WithTip(tip)
		f.Add(name, b, note(at.X.At(l.cores)+6, row+4, fmt.Sprintf("%.2f   %.1f s", l.cores, l.cpu), figure.Muted))
	}
	f.H = at.Y.From + 26 + figure.TitleHeight
	return f
}

// componentsFigure draws the processor time per GB of payload of each component, for each variant.
func componentsFigure(vs []scenario.Summary, of string) figure.Figure {
	f, y := begin("components", "CPU time for each GB of payload, by component",
		of+": means, in seconds", bound(vs), "variant", "component", "CPU s/GB, mean")
	var most float64
	var words []string
	for _, v := range vs {
		all, text := 0.0, ""
		for _, c := range scenario.Components {
			if r, ok := v.Figures["cpu-"+c]; ok {
				all += max(0, r.Mean)
				text += fmt.Sprintf(", %s %s", c, value(r.Mean))
			}
		}
		if all > 0 {
			most = max(most, all)
			words = append(words, fmt.Sprintf("%s: %s s%s", v.Variant, value(all), text))
		}
	}
	f.Text += strings.Join(words, "; ") + "."
	if most == 0 {
		f.H = y + 20
		f.Add(note(0, y+12, "Not recorded.", figure.Muted))
		return f
	}
	x := barsLeft
	for i, c := range scenario.Components {
		ink, _ := figure.SeriesInk(i)
		f.Add(figure.Box(x, y, 10, 10, ink), figure.Words(x+14, y+10, c, figure.Text, figure.Start))
		x += 30 + figure.TextWidth(c, figure.TextSize, false)
	}
	at := bars(&f, y+20, len(vs), most, "processor time for each GB of payload (s)")
	for i, v := range vs {
		row, name := barRow(at, i, v.Variant)
		f.Add(name)
		var all float64
		for k, c := range scenario.Components {
			r, ok := v.Figures["cpu-"+c]
			if !ok || r.Mean <= 0 {
				continue
			}
			ink, _ := figure.SeriesInk(k)
			f.Data.Plot(v.Variant, c, r.Mean)
			tip := fmt.Sprintf("%s, %s: %s ± %s s for each GB", v.Variant, c, value(r.Mean), value(r.SD))
			f.Add(figure.Box(at.X.At(all), row-6, at.X.At(all+r.Mean)-at.X.At(all), 12, ink).WithTip(tip))
			all += r.Mean
		}
		if all > 0 {
			f.Add(note(at.X.At(all)+6, row+4, value(all), figure.Muted))
		} else {
			f.Add(note(barsLeft+6, row+4, "not recorded", figure.Muted))
		}
	}
	f.H = at.Y.From + 26 + figure.TitleHeight
	return f
}

const barsLeft, barsRow = 168.0, 19.0

// bars draws the frame of a bar chart below y, with that many rows and an axis from 0 to most.
func bars(f *figure.Figure, y float64, rows int, most float64, title string) figure.Frame {
	const ticks = 5
	at := figure.Frame{
		X: figure.Scale{Max: figure.RoundUp(most, ticks), From: barsLeft, To: width - 190},
		Y: figure.Scale{Max: 1, From: y + 4 + barsRow*float64(rows), To: y},
	}
	f.Add(at.GridX(ticks)...)
	f.Add(at.AxisX(ticks, title)...)
	return at
}

// barRow returns the middle of a row, and the label with its name.
func barRow(at figure.Frame, i int, name string) (y float64, label figure.Mark) {
	y = at.Y.To + barsRow*(float64(i)+.5)
	fits := figure.Fit(name, figure.TextSize, barsLeft-8)
	return y, figure.Words(barsLeft-8, y+4, fits, figure.Text, figure.End).WithTip(name)
}
