package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/conformance"
	"github.com/feedbridge/feedbridge/internal/retry"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

// conformanceFlags has the flags of the command conformance.
type conformanceFlags struct {
	json, strict bool
	junit        string
	watch        time.Duration
	pages        int
	format       config.Format
}

// defaultPages is the default of --pages.
const defaultPages = 1000

// conformanceCommand returns the command "conformance", which checks a feed against its specification.
func conformanceCommand(a *app) *cobra.Command {
	o := conformanceFlags{pages: defaultPages}
	cmd := a.configurable(&cobra.Command{
		Use:   "conformance URL|FEED",
		Short: "Check a feed against rules of its specification",
		Long: `Conformance reads a feed twice, sends requests of its own about some of its pages
(HEAD, conditional GET), and reports for each MUST and SHOULD of the specification
that readers depend on whether the feed passed, failed, or was not tested, and why. It publishes nothing.
FEED is the name of a feed in the configuration, with its credentials.

It exits with 0 if no MUST is violated, and with 1 if one is or if the feed cannot
be read. With --strict a SHOULD counts like a MUST.`,
		Example: `  feedbridge conformance https://shop.example.com/feed/latest
  feedbridge conformance --watch 10m --junit report.xml -c feedbridge.yaml orders`,
		Args:              exactArgs("URL or FEED"),
		ValidArgsFunction: a.completeFeeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.json && o.junit == "-":
				return &usageError{errors.New("--json and --junit - exclude each other: name a file for one of them")}
			case o.pages < 1:
				return &usageError{errors.New("--pages: want a number of pages, 1 or more")}
			case o.watch < 0:
				return &usageError{errors.New("--watch: want a duration such as 10m")}
			}
			f, err := a.feedOrURL(args[0])
			if err != nil {
				return err
			}
			f.Format = cmp.Or(o.format, f.Format)
			return checkConformance(cmd.Context(), a, f, o, config.CheckName(args[0]) != nil)
		},
	})
	flags := cmd.Flags()
	flags.BoolVar(&o.json, "json", false, "print JSON")
	flags.StringVar(&o.junit, "junit", "", "write JUnit XML to a `FILE`, or to standard output (-)")
	flags.BoolVar(&o.strict, "strict", false, "exit with 1 if a SHOULD is violated")
	flags.DurationVar(&o.watch, "watch", 0, "for how long pages are read again and compared; 0 reads\nthem again once")
	flags.IntVar(&o.pages, "pages", o.pages, "the number of pages to read of a feed that has more")
	addFormatFlag(cmd, &o.format)
	return cmd
}

// needsCredentials matches the error of a feed that refuses requests without credentials.
var needsCredentials = regexp.MustCompile(`\b40[13] (Unauthorized|Forbidden)`)

// checkConformance checks a feed and writes the report. byURL is whether the command line has no name of a feed.
func checkConformance(ctx context.Context, a *app, f config.Feed, o conformanceFlags, byURL bool) (err error) {
	out, junit := a.out, io.Writer(nil)
	switch o.junit {
	case "":
	case "-":
		out, junit = io.Discard, a.out
	default:
		file, err := os.Create(o.junit)
		if err != nil {
			return &usageError{fmt.Errorf("--junit: %w", err)}
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		junit = file
	}
	r, err := runChecks(ctx, a, f, o)
	if err != nil && !errors.Is(err, errStopped) {
		err = errors.New(conformance.ForProducers(err.Error()))
		if byURL && needsCredentials.MatchString(err.Error()) {
			err = fmt.Errorf("%w; for credentials, add the feed to a configuration with auth or headers, and name it: feedbridge conformance -c FILE FEED", err)
		}
		r.Error = err.Error()
	}
	err = cmp.Or(err, violated(r.Failures(o.strict)))
	if junit != nil {
		err = errors.Join(r.WriteJUnit(junit, a.redact, o.strict), err)
	}
	if o.json {
		return errors.Join(printReport(out, a.redact, r), err)
	}
	return errors.Join(printConformance(out, a.redact, lookOf(a, out), r), err)
}

// violated returns an error if requirements failed.
func violated(failures []conformance.Result) error {
	if len(failures) == 0 {
		return nil
	}
	return fmt.Errorf("the feed violates %s", withNoun(len(failures), "requirement", "requirements"))
}

// mostLooks is the number of times that a feed is read again while it is watched.
const mostLooks = 4

// runChecks reads the feed and evaluates its requirements. It returns a report even with an error.
func runChecks(ctx context.Context, a *app, f config.Feed, o conformanceFlags) (*conformance.Report, error) {
	c := newCrawl(a, f, o.pages)
	c.pages, c.documents = new(conformance.Pages), conformance.NewDocuments()
	err := c.read(ctx)
	r := c.report
	checks := c.documents.Results(r)
	defer func() {
		r.Evaluate(checks)
		c.mu.Lock()
		defer c.mu.Unlock()
		r.Requests = c.requests
	}()
	client, clientErr := source.NewClient(c.feed.Source, source.Options{UserAgent: "feedbridge/" + programVersion(), Observe: c.observe, Redact: a.redact})
	if clientErr != nil || r.Snapshot != nil || r.Entities == 0 {
		return r, err
	}
	defer client.CloseIdle()
	prober := conformance.Prober{Client: client, URL: c.feed.Source.URL, Documents: c.documents}
	prober.Check(ctx, r, c.pages, checks)
	if err != nil {
		checks.NotReadAgain(errors.New("reading it ended with an error"))
		return r, err
	}
	return r, c.watch(ctx, o, checks)
}

// watch reads the feed again, once or until the time of --watch is over, and compares its pages with the first read.
func (c *crawl) watch(ctx context.Context, o conformanceFlags, checks conformance.Checks) error {
	r, looks, newest, polled := c.report, 1, c.pages, map[feed.Violation]bool{}
	if o.watch > 0 {
		looks = mostLooks
		p := &printer{w: c.app.err, redact: c.app.redact}
		p.printLine("watching the feed for %s", o.watch)
	}
	var notAgain error
	for range looks {
		if o.watch > 0 && retry.Sleep(ctx, o.watch/mostLooks) != nil {
			return errStopped
		}
		for _, v := range c.poll(ctx) {
			if !polled[v] && (v.Kind != "page_changed" || !newest.IsNewest(v.Page)) { // Compare checks the newest page
				polled[v] = true // the next poll finds it too
				r.AddViolation(v)
			}
		}
		again := newCrawl(c.app, c.feed, o.pages)
		if r.Format == datareplication.Kind {
			again.most *= 2 // it may have grown
		}
		again.feed.Start, again.pages = c.feed.Start, new(conformance.Pages)
		err := again.read(ctx)
		for method, n := range again.report.Requests {
			c.count(method, n)
		}
		switch {
		case ctx.Err() != nil:
			return errStopped
		case err != nil:
			checks.NotReadAgain(err)
			notAgain = fmt.Errorf("the feed could not be read again: %w", err)
		default:
			again.pages.Compare(newest, r, c.feed.Source.URL, checks)
			newest = again.pages
		}
	}
	return notAgain
}

// poll polls the feed as a reader does that has read it before, and returns the violations that only such a
// reader sees.
func (c *crawl) poll(ctx context.Context) []feed.Violation {
	src, _, err := c.sources.Open(ctx, "")
	var b feed.Batch
	if err == nil {
		b, err = src.Next(ctx, c.at, feed.LargestBatch)
	}
	if v, ok := errors.AsType[*feed.Violation](err); ok {
		b.Violations = append(b.Violations, *v)
	}
	return b.Violations
}

// printConformance writes the results as text: those of failed requirements first, then those that were not tested.
func printConformance(w io.Writer, redact *safetext.Redactor, l look, r *conformance.Report) error {
	p := &printer{w: w, redact: redact}
	p.printSummary(r)
	for _, note := range r.Notes {
		p.printLine("note         %s", note)
	}
	if r.Error != "" {
		p.printLine("error        %s", r.Error)
	}
	for _, outcome := range []conformance.Outcome{conformance.Failed, conformance.NotTested, conformance.Passed} {
		p.printResults(l, r, outcome)
	}
	if besides := r.Besides(); len(besides) > 0 {
		p.printLine("\nseen besides, and no violation of a requirement for producers")
		for _, of := range besides {
			p.printLine("  %s, %d in all", of.Kind, of.Count)
			p.printEvidence(of.Examples, of.Count)
		}
	}
	p.printLine("")
	for _, level := range []string{"MUST", "SHOULD", "MAY"} {
		p.printLine("%-6s  %d passed, %d failed, %d not tested", level, r.Count(level, conformance.Passed), r.Count(level, conformance.Failed), r.Count(level, conformance.NotTested))
	}
	return p.err
}

// printResults writes the requirements with an outcome.
func (p *printer) printResults(l look, r *conformance.Report, outcome conformance.Outcome) {
	n := 0
	for _, res := range r.Requirements {
		if res.Outcome != outcome {
			continue
		}
		if n++; n == 1 {
			p.printLine("\n%s", ownText(l.paint(toneOf(string(outcome)), string(outcome))))
		}
		p.printLine("  %-10s  %-19s  %s (%s)", res.Level, res.ID, res.Rule, res.Section)
		switch outcome {
		case conformance.Failed:
			p.printLine("    %s\n    %s", res.Specification, res.Case)
			p.printEvidence(res.Evidence, res.Count)
		case conformance.NotTested:
			p.printLine("    %s", res.Reason)
		}
	}
}
