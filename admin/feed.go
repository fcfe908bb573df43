package admin

import (
	"bytes"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/safetext"
)

// FeedOptions describe a feed, for people.
type FeedOptions struct {
	// Name is the configured name. It is a label of every metric of the feed.
	Name string
	// URL is the feed's entry point, without secrets.
	URL string
	// Format is the configured format of the feed. It is shown until Describe
	// tells it.
	Format string
	// Bus and Topic are where the feed is copied to.
	Bus, Topic string
	// Every is the wait between polls that find nothing new.
	Every time.Duration
	// Freshness is how long ago the feed may have been copied to its end, or
	// some way towards it, for the process to be ready.
	Freshness time.Duration
	// Describe puts a checkpoint into words: the format of the feed, as far as it
	// is known by then, and the place of the cursor, in what JSON can hold. It
	// may be called at any time. A place may be [Lacking].
	Describe func(checkpoint.Checkpoint) (format string, place any)
}

// Lacking is a place that knows what the topic does not have of the feed.
type Lacking interface {
	// Lacks returns how many documents of the feed are missing, and how many
	// deletes are held back.
	Lacks() (gaps, deletes int)
}

// Feed watches the bridge of one feed. It is a [bridge.Observer].
type Feed struct {
	opts   FeedOptions
	writer string
	redact *safetext.Redactor

	requestSeconds, commitSeconds, commitEntities prometheus.Observer

	mu     sync.Mutex // guards record
	record record
}

func newFeed(opts FeedOptions, writer string, redact *safetext.Redactor, h histograms) *Feed {
	return &Feed{
		opts:           opts,
		writer:         writer,
		redact:         redact,
		requestSeconds: h.requestSeconds.WithLabelValues(opts.Name),
		commitSeconds:  h.commitSeconds.WithLabelValues(opts.Name),
		commitEntities: h.commitEntities.WithLabelValues(opts.Name),
		record:         newRecord(),
	}
}

// snapshot returns what is known now. The caller owns it.
func (f *Feed) snapshot() record {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.record.clone()
}

// Polled is told of a call of the source. What the batch holds is counted when
// it is settled: what is read may be dropped, and read again.
func (f *Feed) Polled(b feed.Batch, err error, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &f.record
	p := poll{at: time.Now(), took: took, outcome: unchanged}
	switch {
	case err == nil && (len(b.Entities) > 0 || !bytes.Equal(b.Cursor, r.readTo)):
		p.outcome = moved
	case errors.Is(err, feed.ErrPermanent):
		p.outcome = permanentError
	case err != nil:
		p.outcome = transientError
	}
	r.polls[p.outcome]++
	r.lastPoll = p
	r.pollErr = err
	if err != nil {
		// A halted bridge runs into the same violation at every attempt. That
		// is one violation until a poll has worked.
		if v, ok := errors.AsType[*feed.Violation](err); ok && (breachAt{v.Kind, v.Page}) != r.stuckOn {
			r.stuckOn = breachAt{v.Kind, v.Page}
			f.violated(*v, p.at)
		}
		return
	}
	r.stuckOn = breachAt{}
	r.goodPoll = p.at
	r.readTo = b.Cursor
	if !b.Newest.IsZero() {
		r.newest = b.Newest
	}
	if p.outcome == moved {
		r.caughtUp = false
	}
}

// Settled is told of a batch that is published or needs not be.
func (f *Feed) Settled(b feed.Batch, took time.Duration) {
	size := b.Size()
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &f.record
	now := time.Now()
	r.freshAt = now
	r.caughtUp = !b.More
	r.attempts = 0
	r.duplicates += uint64(b.Duplicates)
	r.oversized += uint64(b.Oversized)
	for _, v := range b.Violations {
		f.violated(v, now)
	}
	r.noteRepairs(b)
	cp := &r.status.Checkpoint
	if len(b.Entities) == 0 && bytes.Equal(b.Cursor, cp.Cursor) {
		return
	}
	// The bridge says where the checkpoint is when it enters a state, and may
	// be hours in one while it catches up. Until then it is followed here.
	cp.Cursor, cp.At, cp.Writer = b.Cursor, now.Add(-took), f.writer
	cp.Count += uint64(len(b.Entities))
	if n := len(b.Entities); n > 0 {
		r.reached = b.Entities[n-1].Modified
	}
	r.commits++
	r.committedAt = now
	r.published += uint64(len(b.Entities))
	r.publishedBytes += uint64(size)
	f.commitSeconds.Observe(took.Seconds())
	f.commitEntities.Observe(float64(len(b.Entities)))
}

// Entered is told what the bridge does now.
func (f *Feed) Entered(s bridge.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &f.record
	switch s.State {
	case bridge.Reading:
		r.readTo = s.Checkpoint.Cursor
	case bridge.Idle:
		if r.due = s.Until; s.Until.Sub(s.Since) <= f.opts.Every*3/2 {
			r.due = time.Time{}
		}
	case bridge.Standby:
		// Standby is entered anew each time the checkpoint has moved, so the
		// feed is copied, if not by this copy.
		r.freshAt = s.Since
		if r.status.State != bridge.Standby {
			r.commitErrors[classOf(s.Err)]++
		}
	case bridge.Retrying, bridge.Halted:
		r.attempts++
		r.lastError = fault{s.Since, f.redact.Clip(s.Err.Error(), longestError)}
		if _, ok := errors.AsType[*bridge.PanicError](s.Err); ok {
			r.panics++
		}
		// What the source returned has been counted as a poll.
		if r.pollErr == nil || !errors.Is(s.Err, r.pollErr) {
			r.commitErrors[classOf(s.Err)]++
		}
	}
	if s.State == bridge.Standby || !bytes.Equal(s.Checkpoint.Cursor, r.status.Checkpoint.Cursor) {
		// Somebody else moves the checkpoint: what this copy knew of the lag
		// is out of date.
		r.caughtUp, r.newest, r.reached = false, time.Time{}, time.Time{}
	}
	r.status = s
}

// Exchanged is told of each HTTP request that the feed's source has made, or
// tried to: its method, the status of the response or zero if there was none,
// why there was none, and the time to the end of the response's header.
func (f *Feed) Exchanged(method string, status int, err error, took time.Duration) {
	f.requestSeconds.Observe(took.Seconds())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.record.requests[requestOf(method, status, err)]++
}

// violated records a violation. f.mu is held.
func (f *Feed) violated(v feed.Violation, at time.Time) {
	v.Page, v.Detail = f.redact.Clip(v.Page, longestError), f.redact.Clip(v.Detail, longestError)
	f.record.violated(v, at)
}

func classOf(err error) class {
	switch {
	case errors.Is(err, checkpoint.ErrConflict):
		return conflict
	case errors.Is(err, feed.ErrPermanent):
		return permanent
	}
	return transient
}
