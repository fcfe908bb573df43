package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// errStopped says that a person has ended what was not done.
var errStopped = errors.New("stopped before the end of the feed")

// longestWait is for how long a feed that asks not to be asked is left alone.
const longestWait = time.Hour

// readFeed reads a feed from its configured start and hands every batch to
// take, as if that published it. It ends with the end of the feed, or with the
// first error that t does not bear. With follow it goes on until ctx ends, unless
// an error does not pass by itself.
func readFeed(ctx context.Context, all *sources, follow bool, every time.Duration, t *tries, log *slog.Logger, take func(feed.Batch) error) error {
	var at feed.Cursor
	kind, told := "", false
	for {
		var b feed.Batch
		wait := every
		src, opened, err := all.open(ctx, kind)
		if err == nil {
			kind = opened
			b, err = src.Next(ctx, at)
		}
		switch {
		case ctx.Err() != nil && follow:
			return nil
		case ctx.Err() != nil:
			return errStopped
		case err != nil && follow && !errors.Is(err, feed.ErrPermanent):
			log.Warn("cannot read the feed; trying again", "error", err, "in", every)
		case err != nil && !t.again(ctx, err):
			return err
		case err != nil:
			continue
		default:
			t.worked()
			moved := len(b.Entities) > 0 || !bytes.Equal(at, b.Cursor)
			at = b.Cursor
			if err := take(b); err != nil {
				return err
			}
			all.held.Commit(b.Entities)
			if b.More && moved {
				continue
			}
			if !follow {
				return nil
			}
			if asked := min(b.Fresh, longestWait); asked > every {
				if !told {
					log.Warn("the feed asks not to be asked again for a while", "next_poll_in", asked)
				}
				wait, told = asked, true
			}
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}
