package main

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// chart is a bar chart: for each group, such as a size of entities, one bar for each series.
type chart struct {
	title, subtitle string
	series          []string
	groups          []chartGroup
}

// chartGroup has one value for each series.
type chartGroup struct {
	name   string
	values []float64 // 0 or more
}

// The layout, in pixels.
const (
	chartWidth  = 720
	chartLeft   = 80  // of the bars
	chartRoom   = 520 // of the longest bar
	chartTop    = 84
	barHeight   = 18
	groupMargin = 16
)

// chartColors are distinguishable in print and by the colour-blind, on light and dark pages.
var chartColors = []string{"#2f6fab", "#d9822b", "#5b9c5b", "#8a6bb1"}

// svg returns the chart as SVG. The same chart has the same bytes.
func (c chart) svg() []byte {
	longest := 0.0
	for _, g := range c.groups {
		for _, v := range g.values {
			longest = max(longest, v)
		}
	}
	height := chartTop + len(c.groups)*(len(c.series)*barHeight+groupMargin)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="sans-serif" font-size="13">`+"\n", chartWidth, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(c.title))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", chartWidth, height)
	text := func(x, y int, attributes, text string) {
		fmt.Fprintf(&b, `<text x="%d" y="%d"%s>%s</text>`+"\n", x, y, attributes, html.EscapeString(text))
	}
	text(16, 24, ` font-size="16" font-weight="bold"`, c.title)
	text(16, 44, ` fill="#555555"`, c.subtitle)
	x := 16
	for i, name := range c.series {
		fmt.Fprintf(&b, `<rect x="%d" y="56" width="12" height="12" fill="%s"/>`+"\n", x, chartColors[i%len(chartColors)])
		text(x+18, 67, "", name)
		x += 40 + 8*len(name)
	}
	y := chartTop
	for _, g := range c.groups {
		text(chartLeft-8, y+len(c.series)*barHeight/2+5, ` text-anchor="end"`, g.name)
		for i, v := range g.values {
			width := 0
			if longest > 0 {
				width = int(v / longest * chartRoom)
			}
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", chartLeft, y+1, width, barHeight-2, chartColors[i%len(chartColors)])
			text(chartLeft+width+6, y+barHeight-5, "", groupDigits(int(v+0.5)))
			y += barHeight
		}
		y += groupMargin
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// groupDigits returns a number of 0 or more with commas between groups of three digits.
func groupDigits(n int) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// copyResults are the results of a benchmark that copies feeds to a bus.
type copyResults struct {
	bus, versions string
	sizes         []string // of the entities
	medians       []copyMedians
}

func (r *copyResults) add(size string, m copyMedians) {
	r.sizes, r.medians = append(r.sizes, size), append(r.medians, m)
}

// table returns the results as a table of the documents.
func (r *copyResults) table(date string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s, %s; medians of %d pairs.\n\n", date, r.versions, runtime.Version(), r.medians[0].pairs)
	b.WriteString("| Entities (snappy compresses their bodies to) | Rate, of the floor program's (entities a second) | Processor time, of the floor program's (for 100,000 entities) | Resident memory, at most (the floor program's) | Entities in a commit (the floor program's) |\n|---|---|---|---|---|\n")
	for i, m := range r.medians {
		commits := "not counted"
		if m.bridged.commits > 0 {
			commits = fmt.Sprintf("%s (%s)", groupDigits(int(m.bridged.commits)), groupDigits(int(m.floor.commits)))
		}
		fmt.Fprintf(&b, "| %s (%.0f%%) | %.0f%% (%s and %s) | %.2f times (%.2f and %.2f s) | %.0f MiB (%.0f MiB) | %s |\n", r.sizes[i], m.compressed, 100*m.rate, groupDigits(int(m.bridged.rate)),
			groupDigits(int(m.floor.rate)), m.cpu, m.bridged.cpu, m.floor.cpu, m.bridged.peak, m.floor.peak, commits)
	}
	return b.String()
}

// write writes the results to the documents in the directory BENCH_DOCS, if it is set: the rates as a
// chart, and the table into benchmarks.md.
func (r *copyResults) write(b *testing.B) {
	dir := os.Getenv("BENCH_DOCS")
	if dir == "" || os.Getenv("BENCH_AGAINST") != "" || len(r.medians) < len(copySizes) {
		return
	}
	date := time.Now().UTC().Format("2 January 2006")
	rates := chart{title: "Feed to " + r.bus, subtitle: "entities per second, medians, " + date, series: []string{"floor", "feedbridge"}}
	for i, m := range r.medians {
		rates.groups = append(rates.groups, chartGroup{r.sizes[i], []float64{m.floor.rate, m.bridged.rate}})
	}
	err := os.WriteFile(filepath.Join(dir, "copy-to-"+strings.ToLower(r.bus)+".svg"), rates.svg(), 0o644)
	must.Succeed(b, err)
	file := filepath.Join(dir, "benchmarks.md")
	text, err := os.ReadFile(file)
	must.Succeed(b, err)
	before, rest, found := strings.Cut(string(text), "#### Copies to "+r.bus+"\n")
	_, after, foundEnd := strings.Cut(rest, "\n![")
	if !found || !foundEnd {
		b.Fatalf("%s has no table of copies to %s", file, r.bus)
	}
	whole := before + "#### Copies to " + r.bus + "\n\n" + r.table(date) + "\n![" + after
	must.Succeed(b, os.WriteFile(file, []byte(whole), 0o644))
}
