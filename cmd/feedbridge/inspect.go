package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

// report is what inspect finds out about a feed.
type report struct {
	URL        string                 `json:"url"`
	Format     string                 `json:"format"`
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
	Violations []violations           `json:"violations"`
}

type entitySummary struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	Page     string    `json:"page"`
}

// violations are those of one kind: how many, and the first of them.
type violations struct {
	Kind     string           `json:"kind"`
	Count    int              `json:"count"`
	Examples []feed.Violation `json:"examples"`
}

// maxExamples is how many violations of a kind are shown with their evidence.
const maxExamples = 5

func (a *app) inspectCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect URL|FEED",
		Short: "Crawl a feed and report its shape and every violation of its specification",
		Long: `Inspect reads a feed from its oldest page to its newest one and reports how
large it is, and every breach of its specification with the evidence. It
publishes nothing. It exits with 1 if the feed could not be read to its end.`,
		Args: exactly("URL or FEED"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := a.oneFeed(args[0])
			if err != nil {
				return err
			}
			f.Start, f.Gap = datareplication.Start{}, datareplication.GapHalt
			screen := newScreen(a.err)
			r, err := inspect(cmd.Context(), f, screen)
			screen.close()
			if r == nil {
				return err
			}
			if asJSON {
				encoder := json.NewEncoder(a.out)
				encoder.SetEscapeHTML(false)
				encoder.SetIndent("", "  ")
				return errors.Join(encoder.Encode(r), err)
			}
			return errors.Join(r.print(a.out), err)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// inspect crawls the feed. It returns a report of what it saw even if it could
// not get to the end.
func inspect(ctx context.Context, f config.Feed, screen *screen) (*report, error) {
	started := time.Now()
	r := &report{
		URL: withoutSecrets(f.Source.URL), Format: datareplication.Kind,
		Operations: map[feed.Operation]int{}, Requests: map[string]int{}, Violations: []violations{},
	}
	log := newLog(screen, config.Log{Level: "warn"})
	src, err := newSource(f, &source.Hosts{}, func(e source.Exchange) { r.Requests[e.Method]++ }, log)
	if err != nil {
		return nil, err
	}
	ids := sink.NewIDs(sink.DefaultWindow)
	found := map[string]*violations{}
	note := func(v feed.Violation) {
		if found[v.Kind] == nil {
			found[v.Kind] = &violations{Kind: v.Kind}
		}
		found[v.Kind].Count++
		if len(found[v.Kind].Examples) < maxExamples {
			found[v.Kind].Examples = append(found[v.Kind].Examples, v)
		}
	}
	page := ""
	err = readFeed(ctx, src, false, 0, log, func(b feed.Batch) error {
		for _, v := range b.Violations {
			note(v)
		}
		for i := range b.Entities {
			e := &b.Entities[i]
			if e.Page != page {
				r.Pages++
				page = e.Page
			}
			r.add(e)
			if !ids.Add(e.ID) {
				note(feed.Violation{Kind: sink.RepeatedID, Page: e.Page, Detail: fmt.Sprintf("entity %s of %s was on the feed before", e.ID, e.Modified.Format(time.RFC3339))})
			}
		}
		ids.Commit(b.Entities)
		screen.Settled(b, 0)
		return nil
	})
	r.Complete = err == nil && ctx.Err() == nil
	r.Took = time.Since(started).Round(time.Millisecond).String()
	if err != nil {
		r.Error = err.Error()
		var v *feed.Violation
		if errors.As(err, &v) {
			note(*v)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(found)) {
		r.Violations = append(r.Violations, *found[kind])
	}
	if err == nil && ctx.Err() != nil {
		err = errors.New("stopped before the end of the feed")
	}
	return r, err
}

func (r *report) add(e *feed.Entity) {
	summary := &entitySummary{e.ID, e.Modified, e.Page}
	if r.First == nil {
		r.First = summary
	}
	r.Last = summary
	r.Entities++
	r.Bytes += int64(len(e.Body))
	r.Largest = max(r.Largest, len(e.Body))
	r.Operations[e.Op]++
}

// print writes the report for a person.
func (r *report) print(w io.Writer) error {
	p := &printer{w: w}
	p.line("feed         %s", r.URL)
	p.line("format       %s", r.Format)
	p.line("entities     %d on %d pages", r.Entities, r.Pages)
	p.line("bodies       %d bytes, the largest %d", r.Bytes, r.Largest)
	for _, op := range slices.Sorted(maps.Keys(r.Operations)) {
		p.line("  %-10s %d", op, r.Operations[op])
	}
	if r.First != nil {
		p.line("first        %s  %s", r.First.Modified.Format(time.RFC3339), r.First.ID)
		p.line("last         %s  %s", r.Last.Modified.Format(time.RFC3339), r.Last.ID)
	}
	for _, method := range slices.Sorted(maps.Keys(r.Requests)) {
		p.line("requests     %d %s", r.Requests[method], method)
	}
	p.line("took         %s", r.Took)
	switch {
	case !r.Complete:
		p.line("complete     no: the feed was not read to its end")
	default:
		p.line("complete     yes")
	}
	if len(r.Violations) == 0 {
		p.line("violations   none seen")
	}
	for _, v := range r.Violations {
		p.line("violation    %s, %d times", v.Kind, v.Count)
		for _, example := range v.Examples {
			p.line("    %s\n      %s", example.Page, example.Detail)
		}
	}
	return p.err
}

// printer writes lines and remembers the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}
