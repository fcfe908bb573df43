package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/conformance"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/httpfeed"
)

// inspectCommand returns the command "inspect", which reads a feed and reports its violations.
func inspectCommand(a *app) *cobra.Command {
	var asJSON, strict bool
	var format config.Format
	cmd := a.configurable(&cobra.Command{
		Use:   "inspect URL|FEED",
		Short: "Read a whole feed and report its type, its size and its violations",
		Long: `Inspect reads a feed from its oldest page to its newest and reports its type, its
size, and every violation of its specification with the evidence. It publishes
nothing. FEED is the name of a feed in the configuration. URL may be the index of
a snapshot; then only the snapshot is read.

It exits with 0 if it reached the end of the feed, also if it found violations,
and with 1 if it did not, or could not read older documents. With --strict it exits
with 1, and names the rule, if what it read violates a MUST or SHOULD for producers.
Rules that need requests of their own are left to 'feedbridge conformance'.`,
		Example: `  feedbridge inspect https://shop.example.com/feed/latest
  feedbridge inspect --json -c feedbridge.yaml orders | jq '.violations[].kind'`,
		Args:              exactArgs("URL or FEED"),
		ValidArgsFunction: a.completeFeeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := a.feedOrURL(args[0])
			if err != nil {
				return err
			}
			f.Format = cmp.Or(format, f.Format)
			c := newCrawl(a, f, 0)
			if strict {
				c.documents = conformance.NewDocuments()
			}
			err = c.read(cmd.Context())
			r := c.report
			if strict {
				r.Evaluate(c.documents.Results(r))
				r.Requirements = r.Failures(true) // those that need requests were not tested
				err = cmp.Or(err, violated(r.Requirements))
			}
			if asJSON {
				return errors.Join(printReport(a.out, a.redact, r), err)
			}
			return errors.Join(printFeed(a.out, a.redact, lookOf(a, a.out), r), err)
		},
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 1 if the feed violates a MUST or SHOULD")
	addFormatFlag(cmd, &format)
	return cmd
}

// crawl reads a feed once and describes it in a report.
type crawl struct {
	app    *app
	feed   config.Feed
	report *conformance.Report
	// most is the number of pages after which the rest is left out; 0 reads all.
	most  int
	pages *conformance.Pages // that were read; nil if nobody compares them
	// documents checks what is read; it may be nil.
	documents *conformance.Documents

	sources  *daemon.Sources
	at       feed.Cursor // after the last batch
	mu       sync.Mutex  // guards requests
	requests map[string]int
}

func newCrawl(a *app, f config.Feed, most int) *crawl {
	f.Gap = datareplication.GapHalt
	f.Start = source.Start{}
	return &crawl{app: a, feed: f, most: most, report: newReport(a, f), requests: map[string]int{}}
}

func newReport(a *app, f config.Feed) *conformance.Report {
	r := conformance.NewReport(a.redact.URL(f.Source.URL), string(f.Format))
	r.Version = programVersion()
	return r
}

// lacking are the kinds of violation after which older documents were not read.
var lacking = []string{"archive_refused", "archive_gone", "archive_foreign", "archive_unreadable", "incomplete"}

// errSampled ends the reading when enough pages were read.
var errSampled = errors.New("enough pages")

// read reads the feed, or a sample of it. The report is complete even if it returns an error.
func (c *crawl) read(ctx context.Context) error {
	started := time.Now()
	err := c.readLimited(ctx)
	r := c.report
	switch {
	case errors.Is(err, errSampled):
		what := "pages"
		if r.Format == httpfeed.Kind {
			what = "lists"
		}
		r.Sampled, err = fmt.Sprintf("the oldest %d %s; --pages reads more", c.most, what), nil
	case !c.feed.Start.At.IsZero():
		r.Sampled = fmt.Sprintf("about the newest %d pages, from %s on; --pages reads more", c.most, c.feed.Start.At.Format(time.RFC3339))
	case c.most > 0:
		i := slices.IndexFunc(r.Violations, func(v *conformance.Violations) bool { return v.Kind == "walk_limit" })
		if i >= 0 { // that of the sample
			r.Violations, r.Gaps = slices.Delete(r.Violations, i, i+1), nil
			r.Sampled = fmt.Sprintf("the newest document and %d older ones; --pages reads more", c.most)
		}
	}
	if u, ok := errors.AsType[*datareplication.UnconfirmedError](err); ok {
		err = u.Cause // it is not polled again
	}
	r.Took = time.Since(started).Round(time.Millisecond).String()
	c.mu.Lock()
	r.Requests = maps.Clone(c.requests)
	c.mu.Unlock()
	for _, kind := range lacking {
		i := slices.IndexFunc(r.Violations, func(v *conformance.Violations) bool { return v.Kind == kind })
		if err == nil && i >= 0 {
			found := r.Violations[i].Examples[0]
			err = fmt.Errorf("the feed was not read to its end: %s: %s (%s)", found.Page, found.Detail, kind)
		}
	}
	r.Complete = err == nil
	if err != nil {
		r.Error = err.Error()
		if v, ok := errors.AsType[*feed.Violation](err); ok {
			r.AddViolation(*v)
		}
	}
	return err
}

// readLimited reads the feed. If it is a datareplication feed with too many pages, it reads the newest.
func (c *crawl) readLimited(ctx context.Context) error {
	if c.most == 0 {
		return c.readFrom(ctx, 0)
	}
	for most := c.most; ; most *= 2 {
		err := c.readFrom(ctx, most)
		far, ok := errors.AsType[*tooFarError](err)
		switch {
		case !ok:
			return err
		case c.feed.Start.At.IsZero():
			c.feed.Start.At = far.at
			c.report = newReport(c.app, c.feed)
		default:
			return fmt.Errorf("more than %d pages lead back to %s, so no part of the feed can be read alone; raise --pages, or check that the prev links end", most, c.feed.Start.At.Format(time.RFC3339))
		}
	}
}

// tooFarError reports that the search for the start of a datareplication feed has passed enough pages, back to
// a time.
type tooFarError struct{ at time.Time }

func (*tooFarError) Error() string { return "the way back is too long" }

// readFrom crawls the feed from its start. It ends if more than most pages lead there, unless most is 0.
func (c *crawl) readFrom(ctx context.Context, most int) error {
	status, progress := newStatusLine(c.app.err), &progress{feeds: 1}
	log := c.app.newLog(status, config.Log{Level: "warn"})
	if c.pages != nil {
		log = slog.New(slog.DiscardHandler) // the report has it all
	}
	ids := sink.NewIDs(0)
	o := daemon.SourceOptions{Version: programVersion(), IDs: ids, Observe: c.observe, Once: true, Redact: c.app.redact, Documents: c.most}
	if c.documents != nil {
		o.Wrap = c.documents.Wrap
	}
	sources, err := daemon.NewSources(c.feed, o, log)
	if err != nil {
		return err
	}
	c.sources = sources
	stop := status.showUntilStopped(progress.statusText)
	defer stop()

	r := c.report
	take := func(b feed.Batch) error {
		for _, v := range b.Violations {
			r.AddViolation(v)
		}
		described := sources.Describe(checkpoint.Checkpoint{Cursor: b.Cursor})
		r.SetFormat(described.Format, described.Cursor)
		for i := range b.Entities {
			e := &b.Entities[i]
			r.AddEntity(e)
			if e.Mark == "" && !ids.Add(e.ID) {
				r.AddViolation(feed.NewViolation(sink.RepeatedID, e.Page, "the feed had an entity with the Content-ID %q before; this one was modified %s", e.ID, modified(r.Last)))
			}
			if c.pages != nil {
				c.pages.Add(e, r.Format)
			}
		}
		progress.Processed(b, 0)
		c.at = b.Cursor
		p, _ := described.Cursor.(datareplication.CursorInfo)
		if most > 0 && p.Page == "" && p.SearchedPages >= most {
			return &tooFarError{p.SearchedBackTo}
		}
		if most > 0 && len(b.Entities) > 0 {
			read := r.Pages
			if r.Format == httpfeed.Kind { // all of its events have one URL
				c.mu.Lock()
				read = c.requests[http.MethodGet]
				c.mu.Unlock()
			}
			if c.feed.Start.At.IsZero() && read > c.most && b.More && r.Dialect == "" {
				return errSampled
			}
		}
		return nil
	}
	err = readFeed(ctx, sources, false, 0, nil, log, take)
	if r.Entities == 0 { // also a feed whose first page is wrong has a format
		r.Format = cmp.Or(sources.Describe(checkpoint.Checkpoint{}).Format, r.Format)
	}
	if no, ok := errors.AsType[*daemon.NotFeedError](err); ok && no.Index {
		err = readSnapshot(ctx, r, sources, take, err)
	}
	return err
}

// observe counts a request.
func (c *crawl) observe(e source.Exchange) { c.count(e.Method, 1) }

func (c *crawl) count(method string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[method] += n
}

// readSnapshot reads the snapshot whose index the URL may be. noFeed says why the URL does
// not serve a feed.
func readSnapshot(ctx context.Context, r *conformance.Report, sources *daemon.Sources, take func(feed.Batch) error, noFeed error) error {
	read, err := sources.ReadSnapshot(ctx, take)
	r.Format, r.Snapshot = datareplication.Kind, &read
	if read.ID == "" {
		return fmt.Errorf("%w; as an index it is wrong: %w", noFeed, err)
	}
	return err
}
