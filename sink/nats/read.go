package nats

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink"
)

// Message is an entity as the topic holds it.
type Message struct {
	Seq    uint64 // its sequence in the stream
	Time   time.Time
	Entity feed.Entity
}

// Messages returns what the topic holds from the stream sequence from on, in
// order, up to the checkpoint that is the newest at the time of the call. It is
// safe for concurrent use.
//
// The fields of a header come sorted by name, values of the same name in their
// order: NATS clients keep headers in maps.
func (s *Sink) Messages(ctx context.Context, from uint64) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		stopped := false
		err := s.ask(ctx, func(ctx context.Context, _ *session) error {
			last, err := s.lastCheckpoint(ctx)
			if err != nil || last == nil || from > last.Sequence {
				return err
			}
			consumer, err := s.consumer(ctx, max(1, from), false)
			if err != nil {
				return err
			}
			return s.scan(ctx, consumer, last.Sequence, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) (bool, error) {
				e, err := sink.Entity(header(msg.Headers()), msg.Data())
				if err != nil {
					return false, fmt.Errorf("sequence %d: %w", meta.Sequence.Stream, err)
				}
				stopped = !yield(Message{meta.Sequence.Stream, meta.Timestamp, e}, nil)
				return !stopped, nil
			})
		})
		if err != nil && !stopped {
			yield(Message{}, fmt.Errorf("read: %w", err))
		}
	}
}

// catchUp makes ids hold the newest IDs of the topic up to the sequence to, and
// all of its marks, for the checkpoint cp. It reads nothing if it has got that far
// before, and of a topic without marks never much more than the window.
func (s *Sink) catchUp(ctx context.Context, info *jetstream.StreamInfo, to uint64, cp checkpoint.Checkpoint) error {
	seen := &s.seen
	if !info.Created.Equal(seen.created) || to < seen.sequence || !cp.Moved.Equal(seen.moved) || info.State.FirstSeq > seen.sequence {
		// The stream is another one, or was purged, or a person has moved the
		// place, perhaps after deleting messages: what ids has may be gone.
		s.forget(info.Created)
	}
	if to == seen.sequence {
		return nil
	}
	first := max(1, info.State.FirstSeq)
	from := max(first, seen.sequence+1)
	consumer, err := s.tail(ctx, from, to)
	if err != nil {
		return err
	}
	if err := s.load(ctx, consumer, to); err != nil {
		return err
	}
	if consumer.CachedInfo().Config.OptStartSeq > from && s.ids.Marked() {
		// Its source wants every mark, however old.
		s.forget(info.Created)
		if consumer, err = s.consumer(ctx, first, true); err != nil {
			return err
		}
		if err := s.load(ctx, consumer, to); err != nil {
			return err
		}
	}
	seen.sequence, seen.moved = to, cp.Moved
	return nil
}

// load makes ids hold what a consumer delivers up to the sequence to.
func (s *Sink) load(ctx context.Context, consumer jetstream.Consumer, to uint64) error {
	defer sink.Announce(s.conn.log, s.topic.Subject, consumer.CachedInfo().NumPending)()
	err := s.scan(ctx, consumer, to, func(msg jetstream.Msg, _ *jetstream.MsgMetadata) (bool, error) {
		s.ids.LoadMessage(header(msg.Headers()))
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("read what the topic holds: %w", err)
	}
	return nil
}

// tail returns a consumer of about the newest messages up to the sequence to: of
// a window of them at least, or of all from first on if there are less, or if the
// topic is known to have marks. Sequences have gaps where
// checkpoints were, and a shared stream has other subjects' messages between.
func (s *Sink) tail(ctx context.Context, first, to uint64) (jetstream.Consumer, error) {
	window := uint64(s.topic.Window)
	if window == 0 {
		window = sink.DefaultWindow
	}
	for span := 2 * window; ; span *= 4 {
		from := first
		if to > span && !s.ids.Marked() {
			from = max(first, to-span)
		}
		consumer, err := s.consumer(ctx, from, true)
		if err != nil || from == first || consumer.CachedInfo().NumPending > window {
			return consumer, err
		}
		s.remove(ctx, consumer)
	}
}

// consumer returns a new consumer of the topic and its checkpoint.
func (s *Sink) consumer(ctx context.Context, from uint64, headersOnly bool) (jetstream.Consumer, error) {
	config := jetstream.ConsumerConfig{
		// With a name of its own it is created once, however often asked for.
		Name:              "feedbridge-" + nuid.Next(),
		FilterSubjects:    s.subjects(),
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       from,
		HeadersOnly:       headersOnly,
		AckPolicy:         jetstream.AckNonePolicy,
		Replicas:          1,
		MemoryStorage:     true,
		InactiveThreshold: max(time.Minute, 3*s.conn.cfg.Timeout),
	}
	var consumer jetstream.Consumer
	err := s.insist(ctx, func(ctx context.Context) (err error) {
		consumer, err = s.conn.js.CreateConsumer(ctx, s.topic.Stream.Name, config)
		return err
	})
	return consumer, err
}

// remove deletes a consumer sooner than the server does by itself.
func (s *Sink) remove(ctx context.Context, consumer jetstream.Consumer) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	_ = s.conn.js.DeleteConsumer(ctx, s.topic.Stream.Name, consumer.CachedInfo().Name)
}

// A visitor is called for a message of the topic, and says whether to go on.
type visitor func(jetstream.Msg, *jetstream.MsgMetadata) (bool, error)

// scan calls visit for the messages of the topic that consumer delivers, until
// it has seen the one with the sequence to, which is a checkpoint or of the
// topic, or a message behind that. This is how it knows that it has seen all:
// the consumer may be on a server that has not stored them yet.
func (s *Sink) scan(ctx context.Context, consumer jetstream.Consumer, to uint64, visit visitor) error {
	defer s.remove(ctx, consumer)
	delivered, more := uint64(0), true
	for more {
		var err error
		if delivered, more, err = s.fetch(ctx, consumer, delivered, to, visit); err != nil {
			return err
		}
	}
	return nil
}

// How much one fetch gets, so that a topic of large entities is never held in
// memory, and one of small entities is not read in drops.
const (
	fetchMessages = 1000
	fetchBytes    = 4 << 20
)

// fetch gets one load of messages, of which there were delivered before.
func (s *Sink) fetch(ctx context.Context, consumer jetstream.Consumer, delivered, to uint64, visit visitor) (uint64, bool, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	// A message may be larger than the stream takes now.
	limit := max(fetchBytes, 2*int(s.conn.nc.MaxPayload()))
	before := delivered
	for delivered == before {
		batch, err := consumer.Fetch(fetchMessages, jetstream.FetchContext(ctx), jetstream.FetchMaxBytes(limit))
		if err != nil {
			return delivered, false, causeOf(ctx, err)
		}
		for msg := range batch.Messages() {
			meta, err := msg.Metadata()
			if err != nil {
				return delivered, false, err
			}
			if delivered++; meta.Sequence.Consumer != delivered {
				return delivered, false, errors.New("a message was lost on the way from NATS")
			}
			if meta.Sequence.Stream <= to && msg.Subject() == s.topic.Subject {
				if more, err := visit(msg, meta); err != nil || !more {
					return delivered, false, err
				}
			}
			if meta.Sequence.Stream >= to {
				return delivered, false, nil
			}
		}
		// The servers of a cluster do not know of a new consumer all at once.
		if err := batch.Error(); err != nil && !errors.Is(err, nats.ErrNoResponders) {
			return delivered, false, causeOf(ctx, err)
		}
		if delivered == before {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return delivered, false, context.Cause(ctx)
			}
		}
	}
	return delivered, true, nil
}

// header is h as a list; see [Sink.Messages].
func header(h nats.Header) feed.Header {
	list := make(feed.Header, 0, len(h))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			list = append(list, feed.Field{Name: name, Value: value})
		}
	}
	return list
}
