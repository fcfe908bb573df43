package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"strconv"
	"time"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/logonce"
	"github.com/feedbridge/feedbridge/internal/retry"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/source"
)

// topicTail has the arguments of tail --topic.
type topicTail struct {
	topic, bus string
	partition  int
	from       *source.Start // nil for the beginning
	follow     bool
	every      time.Duration
	limit      int
}

// printTopic prints the messages of a topic up to its end, or until ctx ends.
func (t topicTail) printTopic(ctx context.Context, a *app) error {
	if t.from != nil && (t.from.ID != "" || t.from.Snapshot != "") {
		return &usageError{errors.New("--from of a topic is beginning, now or a time")}
	}
	log := a.newLog(a.err, config.Log{Level: "warn"})
	cfg, err := a.loadBuses()
	if err != nil {
		return err
	}
	name, err := chooseBus(cfg, t.bus)
	if err != nil {
		return err
	}
	isKafka := cfg.Buses[name].Kafka != nil
	if t.partition >= 0 && !isKafka {
		return &usageError{fmt.Errorf("--partition is for Kafka topics, and %s is a NATS bus", name)}
	}
	b, err := daemon.OpenBus(ctx, cfg, name, log)
	if err != nil {
		return err
	}
	defer b.Close()
	out := &messageWriter{lines: newEntityWriter(a.out), left: t.limit}
	err = t.printPartitions(ctx, b, isKafka && t.partition < 0, out, log)
	if err != nil && !errors.Is(err, errStopped) {
		return fmt.Errorf("topic %s on bus %s: %w", t.topic, name, err)
	}
	return err
}

// printPartitions prints the messages of one partition, or of all, up to the end of the topic,
// or with --follow until ctx ends. It retries transient errors only with --follow.
func (t topicTail) printPartitions(ctx context.Context, b *daemon.Bus, all bool, out *messageWriter, log *slog.Logger) error {
	open := func(partition int) *topicReader {
		topic := b.Log(config.From{Topic: t.topic, Partition: partition})
		return &topicReader{topic: topic, partition: partition, from: t.from, out: out, log: log}
	}
	readers := []*topicReader{open(max(0, t.partition))}
	var causes logonce.Causes
	for {
		if all {
			readers = updatePartitions(ctx, readers, open)
		}
		err := printNew(ctx, readers)
		switch {
		case errors.Is(err, errEnough), ctx.Err() != nil && t.follow:
			return nil
		case ctx.Err() != nil:
			return errStopped
		case err != nil && (!t.follow || errors.Is(err, feed.ErrPermanent)):
			return err
		case err == nil && !t.follow:
			return nil
		case err == nil:
			causes.End()
			t.from = nil // a partition that is added now is read from its beginning
		default:
			if isNew, _ := causes.Add(err.Error()); isNew {
				log.Warn("cannot read the topic; trying again", "topic", t.topic, "error", err, "in", t.every)
			}
		}
		if retry.Sleep(ctx, t.every) != nil {
			return nil
		}
	}
}

// updatePartitions adds a reader for each partition behind the last of readers. Partitions may
// be added to a topic while it is read, and a topic that was created again may have fewer.
func updatePartitions(ctx context.Context, readers []*topicReader, open func(partition int) *topicReader) []*topicReader {
	for i := len(readers) - 1; i > 0 && readers[i].epoch != "" && readers[i].epoch != readers[0].epoch; i-- {
		readers = readers[:i]
	}
	for {
		next := open(len(readers))
		if _, err := next.topic.Span(ctx); err != nil {
			return readers // it does not exist, or reading the others will fail too
		}
		readers = append(readers, next)
	}
}

// printNew prints the new messages of one partition after the other, and returns the first
// error. A partition that cannot be read does not keep the others from being read.
func printNew(ctx context.Context, readers []*topicReader) error {
	var first error
	for _, r := range readers {
		err := r.printNew(ctx)
		if errors.Is(err, errEnough) || ctx.Err() != nil {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// messageWriter prints messages up to a limit.
type messageWriter struct {
	lines *entityWriter
	left  int // may still be printed; 0 and below is no limit
}

// write prints a message. The error is errEnough after the last one.
func (w *messageWriter) write(l messageLine) error {
	if err := w.lines.writeLine(l); err != nil {
		return err
	}
	if w.left--; w.left == 0 {
		return errEnough
	}
	return nil
}

// topicReader prints the messages of one partition of a topic, from the position that it has
// reached.
type topicReader struct {
	topic     serve.Log
	partition int
	from      *source.Start // nil for the beginning
	out       *messageWriter
	log       *slog.Logger

	epoch string // of the topic that next refers to; empty before the first span
	next  uint64
}

// printNew prints the messages that the partition has from next on.
func (r *topicReader) printNew(ctx context.Context) error {
	span, err := r.topic.Span(ctx)
	if err != nil {
		return err
	}
	if err := r.locate(ctx, span); err != nil {
		return err
	}
	for rec, err := range r.topic.Read(ctx, r.next, span.End) {
		if err != nil {
			return err
		}
		r.next = rec.Position + 1
		if err := r.out.write(newMessageLine(&rec, r.partition)); err != nil {
			return err
		}
	}
	r.next = max(r.next, span.End)
	return nil
}

// locate sets next for the topic of span.
func (r *topicReader) locate(ctx context.Context, span feed.Span) (err error) {
	switch {
	case r.epoch == "":
		r.next, err = r.start(ctx, span)
	case r.epoch != span.Epoch:
		r.log.Warn("the topic was deleted and created again; reading it from its beginning")
		r.next = span.First
	case r.next < span.First:
		r.log.Warn("retention has removed messages that were not read", "first_position", r.next, "next_position", span.First)
		r.next = span.First
	}
	if err == nil {
		r.epoch = span.Epoch
	}
	return err
}

// start returns the position of the first message to print. Buses store times in about the
// order of positions, so that a time is found by a binary search.
func (r *topicReader) start(ctx context.Context, span feed.Span) (uint64, error) {
	switch {
	case r.from == nil || !r.from.Now && r.from.At.IsZero():
		return span.First, nil
	case r.from.Now:
		return span.End, nil
	}
	var failed error
	n := sort.Search(int(span.End-span.First), func(i int) bool {
		for rec, err := range r.topic.Read(ctx, span.First+uint64(i), span.End) {
			failed = errors.Join(failed, err)
			return err != nil || !rec.Time.Before(r.from.At)
		}
		return true // there is no message at the position or behind it
	})
	return span.First + uint64(n), failed
}

// messageLine is a message of a topic as tail prints it.
type messageLine struct {
	Partition int       `json:"partition,omitempty"`
	Position  uint64    `json:"position"`
	Time      time.Time `json:"time"`
	Key       *string   `json:"key,omitempty"`
	// These are of a dead letter: the reason, the length of the entity's body in bytes, and whether the message
	// has only the beginning of it. They are missing as far as the message had no room for their headers.
	Reason  string `json:"reason,omitempty"`
	Length  *int64 `json:"length,omitempty"`
	BodyCut *bool  `json:"body_cut,omitempty"`
	entityLine
	Tombstone bool   `json:"tombstone,omitempty"`
	Error     string `json:"error,omitempty"`
}

// newMessageLine returns the line of a message. One that feedbridge did not write lacks
// fields; one with headers that cannot be read has these as they are, and an error.
func newMessageLine(r *feed.Record, partition int) messageLine {
	l := messageLine{Partition: partition, Position: r.Position, Time: r.Time, Tombstone: r.Tombstone}
	if r.Key != nil {
		key := string(r.Key)
		l.Key = &key
	}
	e, err := message.Entity(r.Header, r.Body)
	if err != nil {
		l.Error = err.Error()
		e = feed.Entity{Header: r.Header, Body: r.Body}
	}
	l.Reason, _ = r.Header.Get(message.DeadReason)
	text, _ := r.Header.Get(message.DeadLength)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		isCut := n > int64(len(r.Body))
		l.Length, l.BodyCut = &n, &isCut
		if isCut {
			e.Length = n
		}
	}
	l.entityLine = newEntityLine(&e)
	if r.Tombstone {
		l.Body = nil
	}
	return l
}
