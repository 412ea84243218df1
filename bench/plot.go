package main

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// draw draws a curve's points into an SVG file, x by its logarithm.
func (c curve) draw(points []line, path string) error {
	var names []string
	of := map[string]plotter.XYs{}
	top, bottom := 0.0, math.Inf(1)
	var at plot.ConstantTicks
	for _, l := range points {
		if l.Name != c.name || l.X == nil {
			continue
		}
		if !slices.Contains(names, l.System) {
			names = append(names, l.System)
		}
		of[l.System] = append(of[l.System], plotter.XY{X: *l.X, Y: l.Value})
		if !slices.ContainsFunc(at, func(t plot.Tick) bool { return t.Value == *l.X }) {
			at = append(at, plot.Tick{Value: *l.X, Label: show(*l.X)})
		}
		top, bottom = max(top, l.Value), min(bottom, l.Value)
	}
	if len(names) == 0 {
		return fmt.Errorf("no points of it are saved")
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.Legend.Top, p.Legend.Left = true, true
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, at
	p.Title.Padding, p.X.Padding, p.X.Label.Padding = vg.Points(6), vg.Points(6), vg.Points(4)
	p.Y.Tick.Marker = ticks{plot.DefaultTicks{}}
	p.Add(plotter.NewGrid())
	for i, name := range names {
		slices.SortFunc(of[name], func(a, b plotter.XY) int { return int(math.Copysign(1, a.X-b.X)) })
		drawn, dots, err := plotter.NewLinePoints(of[name])
		if err != nil {
			return err
		}
		drawn.Color, dots.Color, dots.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		drawn.Width = vg.Points(1.5)
		p.Add(drawn, dots)
		p.Legend.Add(name, drawn, dots)
	}
	p.Y.Min, p.Y.Max = 0, top*1.25 // room for the legend
	if c.logY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, ticks{plot.LogTicks{}}
		p.Y.Min, p.Y.Max = math.Pow(10, math.Floor(math.Log10(bottom))), top*8
	}
	return p.Save(7*vg.Inch, 4*vg.Inch, path)
}

// ticks are another's with labels that people read: 10,000.
type ticks struct{ plot.Ticker }

// Ticks are the ticks from least to most.
func (t ticks) Ticks(least, most float64) []plot.Tick {
	all := t.Ticker.Ticks(least, most)
	for i := range all {
		if all[i].Label != "" {
			all[i].Label = show(all[i].Value)
		}
	}
	return all
}
