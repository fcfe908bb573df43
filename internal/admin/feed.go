package admin

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin/status"
)

// Feed watches the bridge of one feed. It is a [bridge.Observer].
type Feed struct {
	feedInfo
	shared *vectors

	mu      sync.Mutex // guards record and history
	record  feedRecord
	history history
}

func newFeed(info feedInfo, shared *vectors) *Feed {
	return &Feed{feedInfo: info, shared: shared, record: newRecord()}
}

// view returns a view of a copy of the record. The caller owns it.
func (f *Feed) view(now time.Time) *feedView {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.record.deepCopy()
	return f.feedInfo.view(&r, now)
}

// use calls do with a view of the record, which it must not keep. f.mu is held.
func (f *Feed) use(now time.Time, do func(v *feedView)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f.feedInfo.view(&f.record, now))
}

// handOver returns what a feed that takes the place of this one continues with. This one may still be
// used until it has ended.
func (f *Feed) handOver() (freshAt time.Time, title string, a *activity) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.history.activity != nil {
		a = new(activity)
		*a = *f.history.activity
	}
	return f.record.freshAt, f.record.title, a
}

// Polled records a call of the source. The entities of the batch are counted when it is
// processed, because a batch may be dropped and read again.
func (f *Feed) Polled(b feed.Batch, err error, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &f.record
	now, result := time.Now(), unchanged
	switch {
	case err == nil && (len(b.Entities) > 0 || !bytes.Equal(b.Cursor, r.readTo)):
		result = moved
	case errors.Is(err, feed.ErrPermanent):
		result = permanentError
	case err != nil:
		result = transientError
	}
	r.polls[result]++
	r.lastPoll = &status.Poll{At: formatTime(now), Outcome: string(result), Took: took.Round(time.Microsecond).String()}
	r.pollErr = err
	if err != nil {
		// A halted bridge runs into the same violation at every attempt. That
		// is one violation until a poll has worked.
		if v, ok := errors.AsType[*feed.Violation](err); ok && (haltCause{v.Kind, v.Page}) != r.lastHaltCause {
			r.lastHaltCause = haltCause{v.Kind, v.Page}
			r.violated(*v, now, f.redact)
		}
		return
	}
	r.lastHaltCause = haltCause{}
	if b.Title != "" {
		r.title = f.redact.Excerpt(b.Title, longestTitle)
	}
	r.goodPoll = now
	r.readTo = b.Cursor
	if !b.Newest.IsZero() {
		r.newest = b.Newest
	}
	if result == moved {
		r.caughtUp = false
	}
}

// Processed records a batch whose entities are published, or that has none.
func (f *Feed) Processed(b feed.Batch, took time.Duration) {
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
		r.violated(v, now, f.redact)
	}
	r.noteRemarks(b)
	cp := &r.status.Checkpoint
	if len(b.Entities) == 0 && bytes.Equal(b.Cursor, cp.Cursor) {
		return
	}
	// The bridge reports the checkpoint when it enters a state, and may be in one
	// for hours while it catches up. Until then, this record follows the batches.
	cp.Cursor, cp.At, cp.Writer = b.Cursor, now.Add(-took), f.writer
	published, size := uint64(len(b.Entities)), b.Bytes
	var dead []*feed.Entity
	for i := range b.Entities {
		if e := &b.Entities[i]; e.Dead != nil {
			r.dead[e.Dead.Kind]++
			published--
			size -= e.Size()
			dead = append(dead, e)
		}
	}
	f.history.addDead(dead, now, f.redact)
	cp.Count += published
	if n := len(b.Entities); n > 0 {
		r.reached = b.Entities[n-1].Modified
	}
	live := b.Entities
	if published != uint64(len(live)) {
		live = slices.DeleteFunc(slices.Clone(live), func(e feed.Entity) bool { return e.Dead != nil })
	}
	if n := len(live); n > 0 {
		f.history.publish(n, newestEntities(live, cp.Count-uint64(n)+1, now, f.redact), took, now)
	}
	r.commits++
	r.committedAt = now
	r.published += published
	r.publishedBytes += uint64(size)
	f.shared.commitSeconds.WithLabelValues(f.opts.Bus).Observe(took.Seconds())
	f.shared.commitEntities.WithLabelValues(f.opts.Bus).Observe(float64(len(b.Entities)))
}

// Entered records the state that the bridge has entered.
func (f *Feed) Entered(s bridge.Status) {
	// The sources that describe the checkpoint have locks of their own.
	var held string
	if s.State == bridge.Idle && f.opts.Describe != nil {
		held = f.opts.Describe(s.Checkpoint).Lacking.explainDeletes()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &f.record
	switch s.State {
	case bridge.Reading:
		r.readTo = s.Checkpoint.Cursor
	case bridge.Idle:
		r.heldDeletes = held
		if r.due = s.Until; s.Until.Sub(s.Since) <= f.opts.Every*3/2 {
			r.due = time.Time{}
		}
	case bridge.Standby:
		// Standby is entered again each time the checkpoint has moved, so another
		// process copies the feed.
		r.freshAt = s.Since
		if r.status.State != bridge.Standby {
			r.commitErrors[classOf(s.Err)]++
		}
	case bridge.Retrying, bridge.Halted:
		r.attempts++
		r.lastError = &status.Error{At: formatTime(s.Since), Text: f.redact.Clip(s.Err.Error(), longestError)}
		f.history.fail(r.lastError, s.Since)
		if _, ok := errors.AsType[*bridge.PanicError](s.Err); ok {
			r.panics++
		}
		// An error of the source has been counted as a poll.
		if r.pollErr == nil || !errors.Is(s.Err, r.pollErr) {
			r.commitErrors[classOf(s.Err)]++
		}
	}
	if r.status.State == bridge.Paused {
		r.freshAt = s.Since // the limit begins when the pause ends
	}
	if s.State == bridge.Standby || s.State == bridge.Paused || !bytes.Equal(s.Checkpoint.Cursor, r.status.Checkpoint.Cursor) {
		// Somebody else moves the checkpoint, or the feed is not read: what this copy
		// knew of the lag is out of date.
		r.caughtUp, r.newest, r.reached = false, time.Time{}, time.Time{}
	}
	r.status = s
}

// Exchanged records an HTTP request that the feed's source has made, or
// tried to: its method, the status of the response or zero if there was none,
// why there was none, and the time to the end of the response's header.
func (f *Feed) Exchanged(method string, status int, err error, took time.Duration) {
	f.shared.requestSeconds.Observe(took.Seconds())
	if method != http.MethodGet && method != http.MethodHead {
		method = "other"
	}
	code := "error"
	if class := status / 100; err == nil && class >= 2 && class <= 5 {
		code = fmt.Sprintf("%dxx", class)
	}
	f.shared.requests.WithLabelValues(method, code).Inc()
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
