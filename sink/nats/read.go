package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/feedbridge/feedbridge/feed"
)

func (c *Conn) streamInfo(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	var s jetstream.Stream
	err := c.insist(ctx, func(ctx context.Context) (err error) {
		s, err = c.js.Stream(ctx, stream)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}

// stored is a message as the leader of its stream has it.
type stored struct {
	Sequence uint64 `json:"seq"`
	Data     []byte `json:"data"`
}

// last returns the newest message on a subject, or nil.
func (c *Conn) last(ctx context.Context, stream, subject string) (*stored, error) {
	return c.get(ctx, stream, map[string]any{"last_by_subj": subject})
}

// first returns the oldest message on a subject from a sequence on, or nil.
func (c *Conn) first(ctx context.Context, stream, subject string, from uint64) (*stored, error) {
	return c.get(ctx, stream, map[string]any{"next_by_subj": subject, "seq": from})
}

// get returns the message that a query names, or nil. It asks the leader: others
// may be behind, and Direct Get asks any of them.
func (c *Conn) get(ctx context.Context, stream string, query map[string]any) (*stored, error) {
	request, err := json.Marshal(query)
	if err != nil {
		return nil, err
	}
	var reply *nats.Msg
	err = c.insist(ctx, func(ctx context.Context) (err error) {
		reply, err = c.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, request)
		return err
	})
	if err != nil {
		return nil, err
	}
	var answer struct {
		Message *stored             `json:"message"`
		Error   *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(reply.Data, &answer); {
	case err != nil:
		return nil, fmt.Errorf("NATS answered what is not JSON: %w", err)
	case answer.Error != nil && answer.Error.ErrorCode == codeNoMessage:
		return nil, nil
	case answer.Error != nil:
		return nil, answer.Error
	case answer.Message == nil:
		return nil, errors.New("NATS answered without a message")
	}
	return answer.Message, nil
}

// A reading delivers messages of a stream in their order, by a consumer that is
// its own.
type reading struct {
	conn      *Conn
	stream    string
	from      uint64
	consumer  jetstream.Consumer
	delivered uint64
}

// idle is how long a reading outlives its reader.
func (c *Conn) idle() time.Duration { return max(time.Minute, 3*c.cfg.Timeout) }

// read begins to read messages on some subjects, from a sequence on.
func (c *Conn) read(ctx context.Context, stream string, subjects []string, from uint64, headersOnly bool) (*reading, error) {
	config := jetstream.ConsumerConfig{
		// With a name of its own it is created once, however often asked for.
		Name:              "feedbridge-" + nuid.Next(),
		FilterSubjects:    subjects,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       from,
		HeadersOnly:       headersOnly,
		AckPolicy:         jetstream.AckNonePolicy,
		Replicas:          1,
		MemoryStorage:     true,
		InactiveThreshold: c.idle(),
	}
	r := &reading{conn: c, stream: stream, from: from}
	err := c.insist(ctx, func(ctx context.Context) (err error) {
		r.consumer, err = c.js.CreateConsumer(ctx, stream, config)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// close deletes the consumer sooner than the server does by itself.
func (r *reading) close(ctx context.Context) {
	ctx, cancel := r.conn.bounded(context.WithoutCancel(ctx))
	defer cancel()
	_ = r.conn.js.DeleteConsumer(ctx, r.stream, r.consumer.CachedInfo().Name)
}

// pending is how many messages there were when the reading began.
func (r *reading) pending() uint64 { return r.consumer.CachedInfo().NumPending }

// message is a message as a stream has it.
type message struct {
	jetstream.Msg
	sequence uint64
	time     time.Time
}

// fields is the message's header as a list, sorted by name, with the values of a
// name in their order: NATS clients keep headers in maps.
func (m *message) fields() feed.Header {
	h := m.Headers()
	list := make(feed.Header, 0, len(h))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			list = append(list, feed.Field{Name: name, Value: value})
		}
	}
	return list
}

// How much is read at once, so that a topic of large entities is never held in
// memory, and one of small entities is not read in drops.
const (
	loadMessages = 1000
	loadBytes    = 4 << 20
)

// next returns some messages, the last of which is perhaps the first at the
// sequence to or behind it. It waits for one at least: the consumer may be on a
// server that has not stored them yet. This is why a reader has to know of a
// message, from the stream's leader, that is not to be missed.
func (r *reading) next(ctx context.Context, to uint64) ([]message, error) {
	ctx, cancel := r.conn.bounded(ctx)
	defer cancel()
	// A message may be larger than the stream takes now.
	limit := max(loadBytes, 2*int(r.conn.nc.MaxPayload()))
	for {
		batch, err := r.consumer.Fetch(loadMessages, jetstream.FetchContext(ctx), jetstream.FetchMaxBytes(limit))
		if err != nil {
			return nil, causeOf(ctx, err)
		}
		var messages []message
		for msg := range batch.Messages() {
			meta, err := msg.Metadata()
			if err != nil {
				return nil, err
			}
			if r.delivered++; meta.Sequence.Consumer != r.delivered {
				return nil, errors.New("a message was lost on the way from NATS")
			}
			messages = append(messages, message{msg, meta.Sequence.Stream, meta.Timestamp})
			if meta.Sequence.Stream >= to {
				return messages, nil
			}
		}
		// The servers of a cluster do not know of a new consumer all at once.
		if err := batch.Error(); err != nil && !errors.Is(err, nats.ErrNoResponders) {
			return nil, causeOf(ctx, err)
		}
		if len(messages) > 0 {
			return messages, nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
