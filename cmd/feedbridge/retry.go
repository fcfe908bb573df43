package main

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/serve"
)

const (
	// Waits between tries double from the first to the second.
	minRetry = 500 * time.Millisecond
	maxRetry = 15 * time.Second
	// soon is for how long it is tried again before anything has worked: nothing
	// would be lost, and who has misspelt an address waits for an answer.
	soon = 5 * time.Second
)

// tries is how errors in a row are borne that may pass by themselves. Without
// any, none is.
type tries struct {
	limit time.Duration // for how long
	log   *slog.Logger
	begun bool // something has worked

	since time.Time // when the first of them was met; zero if there is none
	wait  time.Duration
}

// again says whether to try again after an error, when it is time to.
func (t *tries) again(ctx context.Context, err error) bool {
	if t == nil || errors.Is(err, feed.ErrPermanent) || errors.Is(err, feed.ErrNoTopic) {
		return false
	}
	if t.since.IsZero() {
		t.since, t.wait = time.Now(), minRetry
	}
	wait, limit := t.wait, t.limit
	if later, ok := errors.AsType[bridge.RetryLater](err); ok {
		wait = max(wait, later.RetryAfter())
	}
	if !t.begun {
		limit = min(limit, soon)
	}
	if time.Since(t.since)+wait > limit || ctx.Err() != nil {
		return false
	}
	t.wait = min(2*t.wait, maxRetry)
	t.log.Warn("cannot read on; trying again", "error", err, "in", wait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// worked ends the row of errors.
func (t *tries) worked() {
	if t != nil {
		t.begun, t.since = true, time.Time{}
	}
}

// patientLog is a topic that is asked again when it cannot be read.
type patientLog struct {
	serve.Log
	limit time.Duration
	log   *slog.Logger

	mu    sync.Mutex
	epoch string // of the newest span
}

func (l *patientLog) Span(ctx context.Context) (feed.Span, error) {
	t := tries{limit: l.limit, log: l.log}
	span, err := l.Log.Span(ctx)
	for err != nil && t.again(ctx, err) {
		span, err = l.Log.Span(ctx)
	}
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.epoch = span.Epoch
	}
	return span, err
}

// Read goes on behind the message that it had last.
func (l *patientLog) Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		l.mu.Lock()
		epoch := l.epoch
		l.mu.Unlock()
		t := tries{limit: l.limit, log: l.log, begun: true}
		var err error
		for again := true; again; again = err != nil && t.again(ctx, err) {
			if err != nil {
				if err = l.same(ctx, epoch); err != nil {
					continue
				}
			}
			var r feed.Record
			for r, err = range l.Log.Read(ctx, from, to) {
				if err != nil {
					break
				}
				t.worked()
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

// same returns an error unless positions in the topic still mean the same messages.
func (l *patientLog) same(ctx context.Context, epoch string) error {
	span, err := l.Log.Span(ctx)
	if err == nil && span.Epoch != epoch {
		err = feed.Permanent(errors.New("the topic was deleted and created anew while it was read"))
	}
	return err
}
