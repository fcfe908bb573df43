package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// feedReport is the result of inspect.
type feedReport struct {
	URL    string `json:"url"`
	Format string `json:"format"`
	// For Atom and RSS: how the feed keeps entries that its document has no room
	// for, how many older documents there are, and which are missing.
	Dialect  syndication.Dialect `json:"dialect,omitempty"`
	Archives int                 `json:"archives,omitempty"`
	Gaps     []string            `json:"gaps,omitempty"`
	// Snapshot is the index, if the URL is that of a snapshot.
	Snapshot *datareplication.Snapshot `json:"snapshot,omitempty"`
	// Complete reports whether the feed was read to its end.
	Complete   bool                   `json:"complete"`
	Error      string                 `json:"error,omitempty"`
	Pages      int                    `json:"pages"`
	Entities   int                    `json:"entities"`
	Bytes      int64                  `json:"body_bytes"`
	Largest    int                    `json:"largest_body_bytes"`
	Operations map[feed.Operation]int `json:"operations"`
	First      *entitySummary         `json:"first,omitempty"`
	Last       *entitySummary         `json:"last,omitempty"`
	Requests   map[string]int         `json:"requests"`
	Took       string                 `json:"took"`
	Violations []*violations          `json:"violations"` // sorted by kind
}

type entitySummary struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	Page     string    `json:"page"`
}

// violations are those of one kind: how many, and the first of them.
type violations struct {
	Kind     string     `json:"kind"`
	Count    int        `json:"count"`
	Examples []evidence `json:"examples"`
}

type evidence struct {
	Page   string `json:"page"`
	Detail string `json:"detail"`
}

// maxExamples limits the number of violations of a kind that are shown with their evidence.
const maxExamples = 5

func newReport(url string, format config.Format) *feedReport {
	return &feedReport{
		URL: url, Format: string(format), Took: "0s",
		Operations: map[feed.Operation]int{}, Requests: map[string]int{}, Violations: []*violations{},
	}
}

func (r *feedReport) addEntity(e *feed.Entity) {
	if r.Last == nil || r.Last.Page != e.Page {
		r.Pages++
	}
	r.Last = &entitySummary{e.ID, e.Modified, e.Page}
	if r.First == nil {
		r.First = r.Last
	}
	r.Entities++
	r.Bytes += int64(len(e.Body))
	r.Largest = max(r.Largest, len(e.Body))
	r.Operations[e.Op]++
}

// setFormat records the format and the dialect that were detected.
func (r *feedReport) setFormat(format string, info any) {
	r.Format = format
	if p, ok := info.(syndication.CursorInfo); ok {
		r.Dialect, r.Archives, r.Gaps = p.Dialect, p.Archives, p.Gaps
	}
}

// shapes describe the dialects.
var shapes = map[syndication.Dialect]string{
	syndication.Complete:        "complete: the document is the whole feed",
	syndication.Archived:        "archived: links lead to older documents, which do not change",
	syndication.ArchivedElement: "archived, by fh:prev: links lead to older documents",
	syndication.Snapshots:       "a chain of the feed's past documents, by links this and prev",
	syndication.Incremental:     "a part of the feed; the rest cannot be reached",
	syndication.Paged:           "paged: links lead to other pages, which change; entries may be missed",
	syndication.Window:          "a window: only the newest entries",
}

// addViolation counts a violation, and keeps the first of each kind as examples.
func (r *feedReport) addViolation(v feed.Violation) {
	i, known := slices.BinarySearchFunc(r.Violations, v.Kind, func(of *violations, kind string) int { return strings.Compare(of.Kind, kind) })
	if !known {
		r.Violations = slices.Insert(r.Violations, i, &violations{Kind: v.Kind})
	}
	of := r.Violations[i]
	of.Count++
	if len(of.Examples) < maxExamples {
		of.Examples = append(of.Examples, evidence{v.Page, v.Detail})
	}
}

// printText writes the report as text.
func (r *feedReport) printText(w io.Writer, redact *safetext.Redactor) error {
	p := &printer{w: w, redact: redact}
	if sn := r.Snapshot; sn != nil {
		p.printLine("snapshot     %s", r.URL)
		p.printLine("id           %s", sn.ID)
		p.printLine("created      %s", sn.Created.Format(time.RFC3339Nano))
		p.printLine("index        %s", withNoun(sn.Pages, "page", "pages"))
	} else {
		p.printLine("feed         %s (%s)", r.URL, r.Format)
	}
	if r.Complete {
		p.printLine("read         to the end, in %s", r.Took)
	} else {
		p.printLine("read         not to the end, for %s", r.Took)
	}
	if r.Dialect != "" {
		p.printLine("shape        %s", shapes[r.Dialect])
	}
	if r.Archives > 0 {
		p.printLine("older        %s", withNoun(r.Archives, "document", "documents"))
	}
	for _, gap := range r.Gaps {
		p.printLine("missing      %s", gap)
	}
	p.printLine("requests     %s", formatCounts(r.Requests))
	p.printLine("entities     %d on %s", r.Entities, withNoun(r.Pages, "page", "pages"))
	if r.Entities > 0 {
		p.printLine("operations   %s", formatCounts(r.Operations))
		p.printLine("bodies       %d bytes, the largest %d", r.Bytes, r.Largest)
		p.printLine("first        %s  %s", r.First.Modified.Format(time.RFC3339), r.First.ID)
		p.printLine("last         %s  %s", r.Last.Modified.Format(time.RFC3339), r.Last.ID)
	}
	switch {
	case len(r.Violations) == 0 && r.Complete:
		p.printLine("violations   none seen")
		return p.err
	case len(r.Violations) == 0:
		p.printLine("violations   none before the crawl ended with an error:\n  %s", r.Error)
		return p.err
	}
	p.printLine("violations")
	for _, of := range r.Violations {
		p.printLine("  %s, %d in all", of.Kind, of.Count)
		for _, example := range of.Examples {
			p.printLine("    %s\n      %s", example.Page, example.Detail)
		}
		if more := of.Count - len(of.Examples); more > 0 {
			p.printLine("    and %d more", more)
		}
	}
	return p.err
}

func formatCounts[K ~string](n map[K]int) string {
	if len(n) == 0 {
		return "none"
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		words = append(words, fmt.Sprintf("%d %s", n[name], name))
	}
	return strings.Join(words, ", ")
}
