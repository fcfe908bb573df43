// Package conformance checks a feed against the requirements of its specification. A [Report]
// has what a crawl has seen, a [Prober] makes the requests that a crawl does not make, and
// [Pages] compares two crawls. The rules are those of docs/cases/rules.md.
package conformance

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// Report describes a feed that was read.
type Report struct {
	URL     string    `json:"url"`
	Checked time.Time `json:"checked"`
	Version string    `json:"feedbridge"` // of this program
	Format  string    `json:"format"`
	// For Atom and RSS: how the feed keeps entries that its document has no room
	// for, how many older documents there are, and which are missing.
	Dialect  syndication.Dialect `json:"dialect,omitempty"`
	Archives int                 `json:"archives,omitempty"`
	Gaps     []string            `json:"gaps,omitempty"`
	// Snapshot is the index, if the URL is that of a snapshot.
	Snapshot *datareplication.Snapshot `json:"snapshot,omitempty"`
	// Complete reports whether the feed was read to its end, or the sample to its end.
	Complete   bool                   `json:"complete"`
	Error      string                 `json:"error,omitempty"`
	Pages      int                    `json:"pages"`
	Entities   int                    `json:"entities"`
	Bytes      int64                  `json:"body_bytes"`
	Largest    int                    `json:"largest_body_bytes"`
	Operations map[feed.Operation]int `json:"operations"`
	First      *Entity                `json:"first,omitempty"`
	Last       *Entity                `json:"last,omitempty"`
	Requests   map[string]int         `json:"requests"`
	Took       string                 `json:"took"`
	Violations []*Violations          `json:"violations"` // sorted by kind
	// Sampled describes the part of the feed that was read, if that is not the whole feed. Notes are about
	// the check itself, such as that the feed has changed meanwhile.
	Sampled string   `json:"sampled,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	// Requirements are the results of a check; nil if only the feed was read.
	Requirements []Result `json:"requirements,omitempty"`
}

// Entity names an entity of the feed.
type Entity struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified,omitzero"` // zero if the feed has none
	Page     string    `json:"page"`
}

// Violations are those of one kind: how many, and the first of them.
type Violations struct {
	Kind     string     `json:"kind"`
	Count    int        `json:"count"`
	Examples []Evidence `json:"examples"`
}

// Evidence is one violation.
type Evidence struct {
	Page   string `json:"page"`
	Detail string `json:"detail"`
}

// mostEvidence limits the number of violations of a kind that are shown with their evidence.
const mostEvidence = 5

// NewReport returns the report of a feed of which nothing was read.
func NewReport(url, format string) *Report {
	return &Report{
		URL: url, Checked: time.Now().UTC().Truncate(time.Second), Format: format, Took: "0s",
		Operations: map[feed.Operation]int{}, Requests: map[string]int{}, Violations: []*Violations{},
	}
}

// AddEntity counts an entity.
func (r *Report) AddEntity(e *feed.Entity) {
	if r.Last == nil || r.Last.Page != e.Page {
		r.Pages++
	}
	r.Last = &Entity{e.ID, e.Modified, e.Page}
	if slices.Contains(strings.Fields(e.Made), message.LastModified) {
		r.Last.Modified = time.Time{}
	}
	if r.First == nil {
		r.First = r.Last
	}
	r.Entities++
	r.Bytes += int64(len(e.Body))
	r.Largest = max(r.Largest, len(e.Body))
	r.Operations[e.Op]++
}

// AddViolation counts a violation, and keeps the first of each kind as examples.
func (r *Report) AddViolation(v feed.Violation) {
	i, known := slices.BinarySearchFunc(r.Violations, v.Kind, func(of *Violations, kind string) int { return strings.Compare(of.Kind, kind) })
	if !known {
		r.Violations = slices.Insert(r.Violations, i, &Violations{Kind: v.Kind})
	}
	r.Violations[i].add(Evidence{v.Page, ForProducers(v.Detail)})
}

// forReaders matches what errors tell the operator of a reader, and not the producer.
var forReaders = regexp.MustCompile(`an older document is awaited until .*?, and then left out: | \(check auth and headers of the feed\)|` +
	`[;:] (?:nothing after it is (?:published|read) until|it is (?:requested|read) again|set lenient to true|if this persists|` +
	`check the url|check that the ur[lL]|check auth and headers|ask the provider|feedbridge cannot use|it asks to wait)[^;:]*(?:; if it is[^;:]*)?`)

// ForProducers returns an error of a reader without its advice to the operator of the reader.
func ForProducers(text string) string { return forReaders.ReplaceAllString(text, "") }

func (v *Violations) add(e Evidence) {
	v.Count++
	if len(v.Examples) < mostEvidence && !slices.Contains(v.Examples, e) {
		v.Examples = append(v.Examples, e)
	}
}

// SetFormat records the format and the dialect that were detected.
func (r *Report) SetFormat(format string, info any) {
	r.Format = format
	if p, ok := info.(syndication.CursorInfo); ok {
		r.Dialect, r.Archives, r.Gaps = p.Dialect, p.Archives, p.Gaps
	}
}

// AddNote adds a sentence about the check.
func (r *Report) AddNote(format string, args ...any) {
	if note := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, note) {
		r.Notes = append(r.Notes, note)
	}
}

// Outcome is whether a feed meets a requirement.
type Outcome string

// The outcomes.
const (
	Passed    Outcome = "passed"
	Failed    Outcome = "failed"
	NotTested Outcome = "not tested"
)

// Result is the outcome of a requirement.
type Result struct {
	*Requirement
	// Specification and Case are URLs.
	Specification string  `json:"specification"`
	Case          string  `json:"case"`
	Outcome       Outcome `json:"outcome"`
	// Count and Evidence describe the violations. Reason says why a rule was not tested.
	Count    int        `json:"count,omitempty"`
	Evidence []Evidence `json:"evidence,omitempty"`
	Reason   string     `json:"reason,omitempty"`
}

// Evaluate fills Requirements with the results for all rules of the format, in the order of their list.
func (r *Report) Evaluate(checks Checks) {
	format := r.Format
	if r.Snapshot != nil {
		format = "snapshot"
	}
	r.Requirements = []Result{}
	for i := range Requirements {
		if q := &Requirements[i]; slices.Contains(strings.Fields(q.formats), format) {
			r.Requirements = append(r.Requirements, r.evaluate(q, checks))
		}
	}
}

func (r *Report) evaluate(q *Requirement, checks Checks) Result {
	var found Violations
	for _, v := range r.Violations {
		if slices.Contains(strings.Fields(q.Kinds), v.Kind) {
			found.Count += v.Count
			found.Examples = append(found.Examples, v.Examples...)
		}
	}
	check := checks.of(q.Check)
	found.Count += check.failed.Count
	found.Examples = append(found.Examples, check.failed.Examples...)
	res := Result{Requirement: q, Outcome: NotTested}
	res.Specification, res.Case = q.links()
	_, subject := subjects[q.needs]
	subject = subject || q.needs == needsHeaderLink
	shape := q.needs != "" && q.needs != paged && !subject && q.needs != string(r.Dialect)
	switch {
	case found.Count > 0 && (!shape || r.Dialect == ""):
		res.Outcome, res.Count, res.Evidence = Failed, found.Count, found.Examples[:min(len(found.Examples), mostEvidence)]
	case q.Kinds == "" && q.Check == "":
		res.Reason = q.Note
	case q.needs == paged && r.Pages < 2:
		res.Reason = "the feed has one page at most"
	case shape:
		res.Reason = fmt.Sprintf("it is about feeds of the shape %s, and this one is of the shape %s", q.needs, r.Dialect)
		if r.Dialect == "" {
			res.Reason = "it is about " + q.needs + ", and this URL is of one of them"
		}
	case !r.Complete:
		res.Reason = "the feed was not read to its end"
	case q.Kinds != "" && r.Entities == 0:
		res.Reason = "the feed has no entities"
	case subject && checks.of(q.needs).tested == 0:
		res.Reason = "nothing that the rule is about: no " + q.needs
	case q.Check != "" && check.tested == 0:
		res.Reason = cmp.Or(check.reason, "nothing that the rule is about")
	default:
		res.Outcome = Passed
	}
	return res
}

// Failures returns the failed requirements that count.
func (r *Report) Failures(strict bool) []Result {
	return slices.DeleteFunc(slices.Clone(r.Requirements), func(res Result) bool { return res.Outcome != Failed || !res.binds(strict) })
}

// Besides returns the violations that break no requirement for producers.
func (r *Report) Besides() []*Violations {
	return slices.DeleteFunc(slices.Clone(r.Violations), func(v *Violations) bool {
		return slices.ContainsFunc(r.Requirements, func(res Result) bool {
			return res.Outcome == Failed && slices.Contains(strings.Fields(res.Kinds), v.Kind)
		})
	})
}

// Count returns the number of results of a level. MUST includes MUST NOT, and SHOULD includes SHOULD NOT.
func (r *Report) Count(level string, o Outcome) int {
	n := 0
	for _, res := range r.Requirements {
		if strings.HasPrefix(res.Level, level) && res.Outcome == o {
			n++
		}
	}
	return n
}
