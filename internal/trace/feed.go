package trace

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

const (
	feedKey       = attribute.Key("feedbridge.feed")
	entitiesKey   = attribute.Key("feedbridge.entities")
	bytesKey      = attribute.Key("feedbridge.bytes")
	countKey      = attribute.Key("feedbridge.count")
	moreKey       = attribute.Key("feedbridge.more")
	violationsKey = attribute.Key("feedbridge.violations")
)

// maxPolls limits the polls that wait for their commit, and so the links of a commit.
const maxPolls = 128

// FeedOptions describe a feed that is copied.
type FeedOptions struct {
	// Name is the configured name.
	Name string
	// System is nats or kafka.
	System string
	// Topic is the topic that the feed is copied to.
	Topic string
}

// Feed makes the spans of one feed. A nil Feed is off.
type Feed struct {
	tracer *Tracer
	opts   FeedOptions

	mu    sync.Mutex
	polls []poll // not committed yet, in order
}

// poll is the span of a poll, and the cursor that the poll ended at.
type poll struct {
	cursor feed.Cursor
	span   oteltrace.SpanContext
}

// Feed returns the maker of the spans of a feed. It is nil if t is nil.
func (t *Tracer) Feed(o FeedOptions) *Feed {
	if t == nil {
		return nil
	}
	return &Feed{tracer: t, opts: o}
}

// Source returns a Source that makes a span of each call of src. The spans of the requests
// of a call are its children. It is called at the start of each session of the bridge.
func (f *Feed) Source(src feed.Source) feed.Source {
	if f == nil {
		return src
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.polls = nil // of the last session, whose uncommitted entities were dropped
	return &tracedSource{f, src}
}

type tracedSource struct {
	feed *Feed
	src  feed.Source
}

// Next implements [feed.Source].
func (s *tracedSource) Next(ctx context.Context, after feed.Cursor, limits feed.Limits) (feed.Batch, error) {
	return s.feed.tracePoll(ctx, func(ctx context.Context) (feed.Batch, error) { return s.src.Next(ctx, after, limits) })
}

// Release implements [feed.Source].
func (s *tracedSource) Release() { s.src.Release() }

func (f *Feed) tracePoll(ctx context.Context, next func(context.Context) (feed.Batch, error)) (feed.Batch, error) {
	polling, span := f.tracer.tracer.Start(ctx, "poll "+f.opts.Name, oteltrace.WithAttributes(feedKey.String(f.opts.Name)))
	defer span.End()
	b, err := next(polling)
	if err != nil {
		f.tracer.fail(ctx, span, err, errorClass(err))
		return b, err
	}
	if span.IsRecording() {
		span.SetAttributes(entitiesKey.Int(len(b.Entities)), bytesKey.Int(b.Size()), moreKey.Bool(b.More), violationsKey.Int(len(b.Violations)))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.polls) == maxPolls {
		f.polls = f.polls[:copy(f.polls, f.polls[1:])]
	}
	f.polls = append(f.polls, poll{b.Cursor, span.SpanContext()})
	return b, nil
}

// errorClass returns the error.type of an error of a source or a sink.
func errorClass(err error) string {
	switch {
	case errors.Is(err, checkpoint.ErrConflict):
		return "conflict"
	case errors.Is(err, feed.ErrPermanent):
		return "permanent"
	}
	return "transient"
}

// Sink returns a Sink that makes a span of each commit of snk. Its parent is the poll that
// the commit ends with, and it has links to the others whose entities it publishes.
func (f *Feed) Sink(snk bridge.Sink) bridge.Sink {
	if f == nil {
		return snk
	}
	return &tracedSink{snk, f}
}

type tracedSink struct {
	bridge.Sink
	feed *Feed
}

// Commit implements [bridge.Sink].
func (s *tracedSink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	f := s.feed
	parent, links := f.takePolls(cp.Cursor)
	ctx = oteltrace.ContextWithSpanContext(ctx, parent)
	ctx, span := f.tracer.tracer.Start(ctx, "commit "+f.opts.Topic, oteltrace.WithSpanKind(oteltrace.SpanKindProducer), oteltrace.WithLinks(links...))
	defer span.End()
	if span.IsRecording() {
		span.SetAttributes(
			feedKey.String(f.opts.Name), semconv.MessagingSystemKey.String(f.opts.System), semconv.MessagingDestinationName(f.opts.Topic),
			semconv.MessagingOperationName("commit"), semconv.MessagingOperationTypeSend, semconv.MessagingBatchMessageCount(len(entities)),
			bytesKey.Int(feed.Batch{Entities: entities}.Size()), countKey.Int64(int64(cp.Count)),
		)
	}
	err := s.Sink.Commit(ctx, entities, cp)
	if err != nil {
		f.tracer.fail(ctx, span, err, errorClass(err))
	}
	return err
}

// takePolls removes the polls up to the one that ended at the cursor. It returns the span of
// that one, and links to the others.
func (f *Feed) takePolls(cursor feed.Cursor) (last oteltrace.SpanContext, others []oteltrace.Link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.polls) - 1; i >= 0; i-- {
		if !bytes.Equal(f.polls[i].cursor, cursor) {
			continue
		}
		for _, p := range f.polls[:i] {
			others = append(others, oteltrace.Link{SpanContext: p.span})
		}
		last = f.polls[i].span
		f.polls = append([]poll(nil), f.polls[i+1:]...)
		return last, others
	}
	return last, nil
}
