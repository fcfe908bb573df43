package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
)

// errStopped says that a person has ended what was not done.
var errStopped = errors.New("stopped before the end of the feed")

// readFeed reads a feed from its configured start and hands every batch to
// take. It ends with the end of the feed, or with the first error. With follow
// it goes on until ctx ends, unless an error does not pass by itself.
func readFeed(ctx context.Context, src bridge.Source, follow bool, every time.Duration, log *slog.Logger, take func(feed.Batch) error) error {
	var at feed.Cursor
	for {
		b, err := src.Next(ctx, at)
		switch {
		case ctx.Err() != nil && follow:
			return nil
		case ctx.Err() != nil:
			return errStopped
		case err != nil && (!follow || errors.Is(err, feed.ErrPermanent)):
			return err
		case err != nil:
			log.Warn("cannot read the feed; trying again", "error", err, "in", every)
		default:
			moved := len(b.Entities) > 0 || !bytes.Equal(at, b.Cursor)
			at = b.Cursor
			if err := take(b); err != nil {
				return err
			}
			if b.More && moved {
				continue
			}
			if !follow {
				return nil
			}
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return nil
		}
	}
}
