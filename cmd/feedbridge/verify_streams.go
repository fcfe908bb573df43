package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/retry"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/sink"
)

// entityStream is a sequence of entities with its name for the report.
type entityStream struct {
	name     string
	entities iter.Seq2[feed.Entity, error]
	// remark returns a remark once the entities have been read; it may be nil.
	remark func() string
	// dead has the IDs of the topic's dead letters, which it lacks on purpose.
	dead map[string]bool
}

// feedStream returns a feed from its start to the end that it has now.
func feedStream(ctx context.Context, a *app, name string, v *verification, log *slog.Logger) (entityStream, error) {
	reader := a
	if config.CheckName(name) != nil {
		reader = &app{} // the configuration is for the topic only
	}
	f, err := reader.feedOrURL(name)
	if err != nil {
		return entityStream{}, err
	}
	if v.from != nil {
		f.Start = *v.from
	}
	sources, err := daemon.NewSources(f, daemon.SourceOptions{Version: programVersion(), IDs: sink.NewIDs(0), Once: true, Redact: a.redact}, log)
	if err != nil {
		return entityStream{}, err
	}
	return entityStream{name: "feed " + a.redact.URL(f.Source.URL), entities: func(yield func(feed.Entity, error) bool) {
		err := readFeed(ctx, sources, false, 0, &retrier{limit: v.retryFor, log: log}, log, func(b feed.Batch) error {
			logViolations(log, b.Violations)
			for _, e := range b.Entities {
				if !yield(e, nil) {
					return errEnough
				}
			}
			return nil
		})
		v.feedEnded = true
		if err != nil && !errors.Is(err, errEnough) {
			yield(feed.Entity{}, err)
		}
	}}, nil
}

// servedStream returns the entities that a topic has now, as the feed that is served of it,
// and a function that closes the connection to the topic's bus.
func servedStream(ctx context.Context, a *app, v *verification, log *slog.Logger) (_ entityStream, closeBus func(), err error) {
	cfg, err := a.loadBuses()
	if err != nil {
		return entityStream{}, nil, err
	}
	if cfg.Serve == nil {
		return entityStream{}, nil, &usageError{errors.New("--served names one of serve.feeds, and the configuration has none: name the file with -c")}
	}
	served, ok := cfg.Serve.Feeds[v.served]
	if !ok {
		return entityStream{}, nil, &usageError{fmt.Errorf("want --served with one of these: %s", strings.Join(slices.Sorted(maps.Keys(cfg.Serve.Feeds)), ", "))}
	}
	s := entityStream{name: fmt.Sprintf("served feed %s, of topic %s on bus %s", v.served, served.From.Topic, served.From.Bus)}
	b, err := daemon.OpenBus(ctx, cfg, served.From.Bus, log)
	if err != nil {
		return entityStream{}, nil, err
	}
	f, err := daemon.ServedFeed(v.served, served, v.retryLog(b.Log(served.From), log), cfg.Memory, log)
	leftOut := 0
	if err == nil {
		s.entities, err = f.Entities(ctx, func() { leftOut++ })
	}
	if err != nil {
		b.Close()
		return entityStream{}, nil, fmt.Errorf("%s: %w", s.name, err)
	}
	s.remark = func() string {
		if leftOut == 0 {
			return ""
		}
		return fmt.Sprintf("%s left out of the feed, because the same page or the page before has the same entity.", withNoun(leftOut, "message is", "messages are"))
	}
	return s, b.Close, nil
}

// retryLog returns the topic, whose reading is retried for as long as the flag says.
func (v *verification) retryLog(topic serve.Log, log *slog.Logger) serve.Log {
	return &retryLog{Log: topic, limit: v.retryFor, log: log}
}

// topicStream returns the entities that a topic has now, and a function that closes the
// connection to the topic's bus.
func topicStream(ctx context.Context, a *app, v *verification, log *slog.Logger) (_ entityStream, closeBus func(), err error) {
	cfg, err := a.loadBuses()
	if err != nil {
		return entityStream{}, nil, err
	}
	name, err := chooseBus(cfg, v.bus)
	if err != nil {
		return entityStream{}, nil, err
	}
	b, err := daemon.OpenBus(ctx, cfg, name, log)
	if err != nil {
		return entityStream{}, nil, err
	}
	s := entityStream{name: fmt.Sprintf("topic %s on bus %s", v.topic, name)}
	topic, err := v.orderedLog(ctx, b, cfg.Buses[name].Kafka != nil, log)
	foreign := 0
	if err == nil {
		s.entities, err = v.topicEntities(ctx, topic, &foreign)
	}
	if err == nil {
		s.dead, err = deadLetterIDs(ctx, v.retryLog(b.Log(config.From{Topic: v.topic + sink.DeadSuffix}), log))
	}
	s.remark = func() string {
		if foreign == 0 {
			return ""
		}
		return fmt.Sprintf("%s no Content-ID, so feedbridge did not write the whole topic. To compare the topic with a feed that serves it, use --served.", withNoun(foreign, "message has", "messages have"))
	}
	if err != nil {
		b.Close()
		return entityStream{}, nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return s, b.Close, nil
}

// chooseBus returns the name of a bus, or without a name that of the only one.
func chooseBus(cfg *config.Config, name string) (string, error) {
	names := slices.Sorted(maps.Keys(cfg.Buses))
	if name == "" && len(names) == 1 {
		return names[0], nil
	}
	if _, ok := cfg.Buses[name]; !ok {
		return "", &usageError{fmt.Errorf("want --bus with one of these: %s", strings.Join(names, ", "))}
	}
	return name, nil
}

// orderedLog returns the topic. It returns an error if the topic has several partitions:
// between them there is no order.
func (v *verification) orderedLog(ctx context.Context, b *daemon.Bus, partitioned bool, log *slog.Logger) (serve.Log, error) {
	topic := v.retryLog(b.Log(config.From{Topic: v.topic}), log)
	if !partitioned {
		return topic, nil
	}
	switch _, err := v.retryLog(b.Log(config.From{Topic: v.topic, Partition: 1}), log).Span(ctx); {
	case err == nil:
		return nil, errors.New("it has several partitions, so its order is not the feed's, and cannot be compared with it")
	case !errors.Is(err, feed.ErrNoTopic):
		return nil, err
	}
	return topic, nil
}

// deadLetterIDs returns the IDs of the dead letters in a dead-letter topic, which need not exist.
func deadLetterIDs(ctx context.Context, topic serve.Log) (map[string]bool, error) {
	span, err := topic.Span(ctx)
	if errors.Is(err, feed.ErrNoTopic) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for r, err := range topic.Read(ctx, span.First, span.End) {
		if err != nil {
			return nil, fmt.Errorf("the dead-letter topic: %w", err)
		}
		// A topic of that name may belong to another feed.
		if _, isDead := r.Header.Get(message.DeadReason); isDead {
			ids[message.ID(r.Header)] = true
		}
	}
	return ids, nil
}

// topicEntities returns the entities that a topic has now, and with --wait those that it gets until it has what the
// feed had. A message that has no Content-ID gets its position as ID, and is counted as foreign.
func (v *verification) topicEntities(ctx context.Context, topic serve.Log, foreign *int) (iter.Seq2[feed.Entity, error], error) {
	span, err := topic.Span(ctx)
	if err != nil {
		return nil, err
	}
	v.total.Store(span.End - span.First)
	return func(yield func(feed.Entity, error) bool) {
		for r, err := range v.messages(ctx, topic, span) {
			if err != nil {
				yield(feed.Entity{}, fmt.Errorf("the topic: %w", err))
				return
			}
			v.read.Store(r.Position + 1 - span.First)
			e, err := message.Entity(r.Header, r.Body)
			if err != nil {
				yield(feed.Entity{}, fmt.Errorf("the topic, at position %d: %w", r.Position, err))
				return
			}
			if e.ID == "" {
				*foreign++
				e.ID = fmt.Sprintf("position %d", r.Position)
			}
			if !yield(e, nil) {
				return
			}
		}
	}, nil
}

// messages returns the messages in span. With --wait it returns those behind it, too, until the feed has been read to
// its end, or the topic has got nothing for that time.
func (v *verification) messages(ctx context.Context, topic serve.Log, span feed.Span) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		var deadline time.Time
		first := span.First
		for from := first; ; {
			for r, err := range topic.Read(ctx, from, span.End) {
				if !deadline.IsZero() && v.feedEnded || !yield(r, err) || err != nil {
					return
				}
			}
			if deadline.IsZero() || from < span.End {
				deadline = time.Now().Add(v.wait)
			}
			if v.feedEnded || !time.Now().Before(deadline) || retry.Sleep(ctx, 100*time.Millisecond) != nil {
				return
			}
			from = span.End
			var err error
			if span, err = topic.Span(ctx); err != nil {
				yield(feed.Record{}, err)
				return
			}
			v.total.Store(span.End - first)
		}
	}
}
