package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/internal/conformance"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/source/httpfeed"
	"github.com/feedbridge/feedbridge/source/syndication"
)

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

// printFeed writes the report of inspect as text.
func printFeed(w io.Writer, redact *safetext.Redactor, l look, r *conformance.Report) error {
	p := &printer{w: w, redact: redact}
	p.printSummary(r)
	switch {
	case len(r.Violations) == 0 && len(r.Requirements) > 0: // those follow
	case len(r.Violations) == 0 && r.Complete:
		p.printLine("violations   %s", ownText(l.paint(good, "none seen")))
	case len(r.Violations) == 0:
		p.printLine("violations   none before the crawl ended with an error:\n  %s", r.Error)
	default:
		p.printLine("%s", ownText(l.paint(bad, "violations")))
		for _, of := range r.Violations {
			p.printLine("  %s, %d in all", of.Kind, of.Count)
			p.printEvidence(of.Examples, of.Count)
		}
	}
	p.printResults(l, r, conformance.Failed)
	return p.err
}

func (p *printer) printEvidence(examples []conformance.Evidence, count int) {
	for _, example := range examples {
		p.printLine("    %s\n      %s", example.Page, example.Detail)
	}
	if more := count - len(examples); more > 0 {
		p.printLine("    and %d more", more)
	}
}

// printSummary writes what the feed is.
func (p *printer) printSummary(r *conformance.Report) {
	if sn := r.Snapshot; sn != nil {
		p.printLine("snapshot     %s", r.URL)
		if sn.ID != "" {
			p.printLine("id           %s", sn.ID)
			p.printLine("created      %s", sn.Created.Format(time.RFC3339Nano))
			p.printLine("index        %s", withNoun(sn.Pages, "page", "pages"))
		}
	} else {
		p.printLine("feed         %s (%s)", r.URL, r.Format)
	}
	p.printLine("checked      %s, by feedbridge %s", r.Checked.Format(time.RFC3339), r.Version)
	switch {
	case r.Sampled != "":
		p.printLine("read         a sample, in %s: %s", r.Took, r.Sampled)
	case r.Complete:
		p.printLine("read         to the end, in %s", r.Took)
	default:
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
	if r.Format == httpfeed.Kind { // all have one URL
		p.printLine("entities     %d", r.Entities)
	} else {
		p.printLine("entities     %d on %s", r.Entities, withNoun(r.Pages, "page", "pages"))
	}
	if r.Entities > 0 {
		p.printLine("operations   %s", formatCounts(r.Operations))
		p.printLine("bodies       %d bytes, the largest %d", r.Bytes, r.Largest)
		p.printLine("first        %s  %s", modified(r.First), r.First.ID)
		p.printLine("last         %s  %s", modified(r.Last), r.Last.ID)
	}
}

// modified returns when an entity was modified, if the feed says so.
func modified(e *conformance.Entity) string {
	if e.Modified.IsZero() {
		return "at no known time"
	}
	return e.Modified.Format(time.RFC3339)
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
