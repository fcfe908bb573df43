package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/verify"
)

// comparison is the result of verify.
type comparison struct {
	Streams [2]string `json:"streams"`
	Error   string    `json:"error,omitempty"`
	// Lookahead holds the number of entities ahead that were searched for a moved entity.
	Lookahead int    `json:"window"`
	Took      string `json:"took"`
	verify.Summary
	// DeadLetters is the number of entities that only the feed has because they are dead
	// letters. They are not missing.
	DeadLetters int `json:"dead_letters"`
	// Remarks are sentences that explain the numbers.
	Remarks []string `json:"remarks,omitempty"`
	// Differences are the first ones, up to the limit.
	Differences []verify.Difference `json:"differences"`
}

// addRemarks adds the remarks of the streams, and one if the only difference is that one
// stream ends earlier: it may have grown in the meantime. The topic was given the time wait.
func (r *comparison) addRemarks(streams []entityStream, wait time.Duration) {
	for _, s := range streams {
		if s.remark != nil && s.remark() != "" {
			r.Remarks = append(r.Remarks, s.remark())
		}
	}
	if r.DeadLetters > 0 {
		r.Remarks = append(r.Remarks, fmt.Sprintf("%s in the dead-letter topic instead.", withNoun(r.DeadLetters, "entity of the feed is", "entities of the feed are")))
	}
	only := func(n int) bool { return n > 0 && n == r.Missing+r.Extra+r.Reordered+r.Different }
	short := "%s is shorter by %d, and otherwise the same. If something was published meanwhile, or is still being copied, compare again, a topic with --wait 10s."
	if wait > 0 {
		short = fmt.Sprintf("%%s is shorter by %%d, and otherwise the same; the topic has got nothing for %v. If the feed is still being read, which 'feedbridge status' shows, compare again with a longer --wait.", wait)
	}
	if !r.Complete {
		short = strings.Replace(short, "%d", "at least %d", 1)
	}
	switch {
	case only(r.Missing) && *r.Differences[0].First == r.Second:
		r.Remarks = append(r.Remarks, fmt.Sprintf(short, "The second", r.Missing))
	case only(r.Extra) && *r.Differences[0].Second == r.First:
		r.Remarks = append(r.Remarks, fmt.Sprintf(short, "The first", r.Extra))
	}
}

// printText writes the result as text.
func (r *comparison) printText(w io.Writer, redact *safetext.Redactor, l look) error {
	p := &printer{w: w, redact: redact}
	p.printLine("first        %s, %s read", r.Streams[0], withNoun(r.First, "entity", "entities"))
	p.printLine("second       %s, %s read", r.Streams[1], withNoun(r.Second, "entity", "entities"))
	if r.Complete {
		p.printLine("compared     to their ends, in %s, looking ahead %s", r.Took, withNoun(r.Lookahead, "entity", "entities"))
	} else {
		part := "only their beginnings"
		if r.Error == errDiffer.Error() {
			part += fmt.Sprintf(", to the limit of %s", withNoun(len(r.Differences), "difference", "differences"))
		}
		p.printLine("compared     %s, in %s, looking ahead %s", part, r.Took, withNoun(r.Lookahead, "entity", "entities"))
	}
	for _, s := range r.Remarks {
		p.printLine("remark       %s", s)
	}
	p.printLine("%s", ownText(l.paintFirst(fmt.Sprintf("equal        %d", r.Equal))))
	for _, found := range []struct {
		kind verify.Kind
		n    int
	}{{verify.Missing, r.Missing}, {verify.Extra, r.Extra}, {verify.Reordered, r.Reordered}, {verify.Different, r.Different}} {
		if found.n > 0 {
			p.printLine("%s", ownText(l.paintFirst(fmt.Sprintf("%-12s %d", found.kind, found.n))))
			r.printExamples(p, found.kind)
		}
	}
	return p.err
}

// shownExamples is how many differences of each kind are printed as text.
const shownExamples = 5

// printExamples prints the first differences of a kind.
func (r *comparison) printExamples(p *printer, kind verify.Kind) {
	n := 0
	for _, d := range r.Differences {
		if d.Kind != kind {
			continue
		}
		if n++; n <= shownExamples {
			p.printLine("  %s", d)
		}
	}
	if n > shownExamples {
		p.printLine("  and %d more, which --json lists", n-shownExamples)
	}
}
