package main

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/retry"
	"github.com/feedbridge/feedbridge/serve"
)

const (
	// Waits between tries double from the first to the second.
	minRetry = 500 * time.Millisecond
	maxRetry = 15 * time.Second
	// firstLimit limits the retries before the first success. It is short because nothing
	// would be lost, and the address may be misspelt.
	firstLimit = 5 * time.Second
)

// retrier retries consecutive transient errors. A nil retrier retries none.
type retrier struct {
	limit time.Duration // for how long
	log   *slog.Logger
	begun bool // something has succeeded

	since   time.Time // of the first of the errors; zero if there is none
	backoff retry.Backoff
}

// waitForRetry waits before the next attempt after an error, and returns true. It returns false if
// the error is permanent, or the limit would be exceeded, or ctx ends.
func (t *retrier) waitForRetry(ctx context.Context, err error) bool {
	if t == nil || errors.Is(err, feed.ErrPermanent) || errors.Is(err, feed.ErrNoTopic) {
		return false
	}
	if t.since.IsZero() {
		t.since, t.backoff = time.Now(), retry.Backoff{Min: minRetry, Max: maxRetry}
	}
	wait, limit := max(t.backoff.Next(), feed.RetryDelay(err)), t.limit
	if !t.begun {
		limit = min(limit, firstLimit)
	}
	if time.Since(t.since)+wait > limit || ctx.Err() != nil {
		return false
	}
	t.log.Warn("cannot continue reading; trying again", "error", err, "in", wait)
	return retry.Sleep(ctx, wait) == nil
}

// succeeded ends a sequence of errors.
func (t *retrier) succeeded() {
	if t != nil {
		t.begun, t.since = true, time.Time{}
	}
}

// retryLog is a topic whose reading is retried after transient errors.
type retryLog struct {
	serve.Log
	limit time.Duration
	log   *slog.Logger
}

func (l *retryLog) Span(ctx context.Context) (feed.Span, error) {
	t := retrier{limit: l.limit, log: l.log}
	span, err := l.Log.Span(ctx)
	for err != nil && t.waitForRetry(ctx, err) {
		span, err = l.Log.Span(ctx)
	}
	return span, err
}

// Read continues after an error behind the last record that it yielded.
func (l *retryLog) Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		t := retrier{limit: l.limit, log: l.log, begun: true}
		var err error
		for again := true; again; again = err != nil && t.waitForRetry(ctx, err) {
			var r feed.Record
			for r, err = range l.Log.Read(ctx, from, to) {
				if err != nil {
					break
				}
				t.succeeded()
				if !yield(r, nil) {
					return
				}
				from = r.Position + 1
			}
		}
		if err != nil {
			yield(feed.Record{}, err)
		}
	}
}
