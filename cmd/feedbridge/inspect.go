package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

// inspectCommand returns the command "inspect", which reads a feed and reports its violations.
func inspectCommand(a *app) *cobra.Command {
	var asJSON bool
	var format config.Format
	cmd := a.configurable(&cobra.Command{
		Use:   "inspect URL|FEED",
		Short: "Read a whole feed and report its type, its size and its violations",
		Long: `Inspect reads a feed from its oldest page to its newest and reports its type, its
size, and every violation of its specification with the evidence. It publishes
nothing. FEED is the name of a feed in the configuration. URL may be the index of
a snapshot; then only the snapshot is read.

It exits with 0 if it reached the end of the feed, also if it found violations,
and with 1 if it did not.`,
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
			r, err := inspectFeed(cmd.Context(), a, f)
			if asJSON {
				return errors.Join(printReport(a.out, a.redact, r), err)
			}
			return errors.Join(r.printText(a.out, a.redact), err)
		},
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	addFormatFlag(cmd, &format)
	return cmd
}

// inspectFeed crawls the feed. It returns a report even if it did not reach the end.
func inspectFeed(ctx context.Context, a *app, f config.Feed) (*feedReport, error) {
	f.Start, f.Gap = datareplication.Start{}, datareplication.GapHalt
	status, progress := newStatusLine(a.err), &progress{feeds: 1}
	log := a.newLog(status, config.Log{Level: "warn"})
	r := newReport(a.redact.URL(f.Source.URL), f.Format)
	var counting sync.Mutex
	requests := map[string]int{} // by method
	count := func(e source.Exchange) {
		counting.Lock()
		defer counting.Unlock()
		requests[e.Method]++
	}
	ids := sink.NewIDs(0)
	sources, err := daemon.NewSources(f, daemon.SourceOptions{Version: programVersion(), IDs: ids, Observe: count, Once: true, Redact: a.redact}, log)
	if err != nil {
		r.Error = err.Error()
		return r, err
	}
	stop := status.showUntilStopped(progress.statusText)
	defer stop()

	started := time.Now()
	take := func(b feed.Batch) error {
		for _, v := range b.Violations {
			r.addViolation(v)
		}
		for i := range b.Entities {
			e := &b.Entities[i]
			r.addEntity(e)
			if e.Mark == "" && !ids.Add(e.ID) {
				r.addViolation(feed.NewViolation(sink.RepeatedID, e.Page,
					"the feed had an entity with the Content-ID %q before; this one was modified %s", e.ID, e.Modified.Format(time.RFC3339)))
			}
		}
		described := sources.Describe(checkpoint.Checkpoint{Cursor: b.Cursor})
		r.setFormat(described.Format, described.Cursor)
		progress.Processed(b, 0)
		return nil
	}
	err = readFeed(ctx, sources, false, 0, nil, log, take)
	if no, ok := errors.AsType[*daemon.NotFeedError](err); ok && no.Index {
		err = r.readSnapshot(ctx, sources, take, err)
	}
	if u, ok := errors.AsType[*datareplication.UnconfirmedError](err); ok {
		err = u.Cause // it is not polled again
	}
	r.Took = time.Since(started).Round(time.Millisecond).String()
	counting.Lock()
	r.Requests = maps.Clone(requests)
	counting.Unlock()
	r.Complete = err == nil
	if err != nil {
		r.Error = err.Error()
		if v, ok := errors.AsType[*feed.Violation](err); ok {
			r.addViolation(*v)
		}
	}
	return r, err
}

// readSnapshot reads the snapshot whose index the URL may be. noFeed says why the URL does
// not serve a feed.
func (r *feedReport) readSnapshot(ctx context.Context, sources *daemon.Sources, take func(feed.Batch) error, noFeed error) error {
	read, err := sources.ReadSnapshot(ctx, take)
	if read.ID == "" {
		return fmt.Errorf("%w; as an index it is wrong: %w", noFeed, err)
	}
	r.Format, r.Snapshot = datareplication.Kind, &read
	return err
}
