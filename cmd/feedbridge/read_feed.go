package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/feed"
)

// errStopped is returned if a signal ends a command before it is done.
var errStopped = errors.New("stopped before the end of the feed")

// longestWait is the longest Cache-Control or Retry-After of a feed that is honoured.
const longestWait = time.Hour

// readFeed reads a feed from its configured start and calls take with every batch, which
// counts as published then. It returns at the end of the feed, or with the first error
// that r does not retry. With follow it continues at the end, until ctx ends or an error is
// permanent.
func readFeed(ctx context.Context, sources *daemon.Sources, follow bool, every time.Duration, r *retrier, log *slog.Logger, take func(feed.Batch) error) error {
	var at feed.Cursor
	kind, warned := "", false
	for {
		var b feed.Batch
		wait := every
		src, opened, err := sources.Open(ctx, kind)
		if err == nil {
			kind = opened
			b, err = src.Next(ctx, at, feed.LargestBatch)
		}
		switch {
		case ctx.Err() != nil && follow:
			return nil
		case ctx.Err() != nil:
			return errStopped
		case err != nil && follow && !errors.Is(err, feed.ErrPermanent):
			log.Warn("cannot read the feed; trying again", "error", err, "in", every)
		case err != nil && !r.waitForRetry(ctx, err):
			return err
		case err != nil:
			continue
		default:
			r.succeeded()
			b.Entities = slices.DeleteFunc(b.Entities, func(e feed.Entity) bool {
				if e.Length > 0 {
					log.Warn("left out an entity that is larger than limits.entity", "id", e.ID, "page", e.Page, "size", e.Length)
				}
				return e.Length > 0
			})
			moved := len(b.Entities) > 0 || !bytes.Equal(at, b.Cursor)
			at = b.Cursor
			if err := take(b); err != nil {
				return err
			}
			sources.Commit(b.Entities)
			if b.More && moved {
				continue
			}
			if !follow {
				return nil
			}
			if asked := min(b.Fresh, longestWait); asked > every {
				if !warned {
					log.Warn("the feed requests a pause before the next poll", "next_poll_in", asked)
				}
				wait, warned = asked, true
			}
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}
