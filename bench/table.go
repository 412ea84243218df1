package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// systems are the columns of a table.
var systems = []string{emq, asynq, bullmq, floor, redisRate, throttled}

// columnsOf are the systems that lines are of.
func columnsOf(lines []line) []string {
	return slices.DeleteFunc(slices.Clone(systems), func(system string) bool {
		return !slices.ContainsFunc(lines, func(l line) bool { return l.System == system })
	})
}

// row is the values of one name.
type row struct {
	name, unit string
	values     map[string]float64
}

// rows puts lines together by name, in their order.
func rows(lines []line) (rows []row) {
	for _, l := range lines {
		i := slices.IndexFunc(rows, func(r row) bool { return r.name == l.Name })
		if i < 0 {
			i = len(rows)
			rows = append(rows, row{l.Name, l.Unit, map[string]float64{}})
		}
		rows[i].values[l.System] = l.Value
	}
	return rows
}

// cell is what a table shows of a system: its value, and how many times emq's that is.
func (r row) cell(system string) string {
	value, measured := r.values[system]
	if !measured {
		return ""
	}
	text := show(value)
	if own := r.values[emq]; system != emq && own != 0 {
		text += " (×" + ratio(value/own) + ")"
	}
	return text
}

func ratio(v float64) string {
	if v < 10 {
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
	return show(math.Round(v))
}

// show writes a number as people read it: 81,234 or 0.0123.
func show(v float64) string {
	if v < 100 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return out.String()
}

// writeTable writes name by system, for a terminal.
func writeTable(w io.Writer, lines []line) {
	columns := columnsOf(lines)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nname\tunit\t%s\n", strings.Join(columns, "\t"))
	for _, r := range rows(lines) {
		fmt.Fprintf(t, "%s\t%s", r.name, r.unit)
		for _, system := range columns {
			fmt.Fprintf(t, "\t%s", r.cell(system))
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	fmt.Fprintln(w, "(×) is the value divided by emq's.")
}
