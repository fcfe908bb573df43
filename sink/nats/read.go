package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	from, at  uint64 // where it began, and where it goes on
	consumer  jetstream.Consumer
	delivered uint64
}

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
		InactiveThreshold: c.idle,
	}
	r := &reading{conn: c, stream: stream, from: from, at: from}
	err := c.insist(ctx, func(ctx context.Context) (err error) {
		r.consumer, err = c.js.CreateConsumer(ctx, stream, config)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// close deletes the consumer sooner than the server does by itself. It does not
// wait for the answer, of which nothing depends.
func (r *reading) close() {
	_ = r.conn.nc.Publish("$JS.API.CONSUMER.DELETE."+r.stream+"."+r.consumer.CachedInfo().Name, nil)
}

// pending is how many messages there were when the reading began.
func (r *reading) pending() uint64 { return r.consumer.CachedInfo().NumPending }

// message is a message as a stream has it.
type message struct {
	*nats.Msg
	sequence uint64
	time     time.Time
}

// fields is the message's header as a list, sorted by name, with the values of a
// name in their order: NATS clients keep headers in maps.
func (m *message) fields() feed.Header {
	list := make(feed.Header, 0, len(m.Header))
	for name, values := range m.Header {
		for _, value := range values {
			list = append(list, feed.Field{Name: name, Value: value})
		}
	}
	slices.SortStableFunc(list, func(a, b feed.Field) int { return cmp.Compare(a.Name, b.Name) })
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
//
// It does without the client's Fetch and NextMsg, which take a message that has no
// body and a header Status for word from the server, and anyone may publish such.
func (r *reading) next(ctx context.Context, to uint64) ([]message, error) {
	ctx, cancel := r.conn.bounded(ctx)
	defer cancel()
	// The messages of a pull, and the server's word.
	inbox := make(chan *nats.Msg, loadMessages+1)
	sub, err := r.conn.nc.ChanSubscribe(r.conn.nc.NewInbox(), inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	for limit := int64(loadBytes); ; limit = max(limit, 2*r.conn.nc.MaxPayload()) {
		// The server sends all that it is asked for, wanted or not.
		n := int(min(loadMessages, to-min(r.at, to)+1))
		if err := r.pull(ctx, sub.Subject, n, limit); err != nil {
			return nil, err
		}
		messages, err := r.receive(ctx, inbox, n, to)
		if err != nil || len(messages) > 0 {
			return messages, err
		}
		// The servers of a cluster do not know of a new consumer all at once. Or the
		// next message is larger than the limit.
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// pull asks for n messages, of so many bytes at most.
func (r *reading) pull(ctx context.Context, inbox string, n int, limit int64) error {
	deadline, _ := ctx.Deadline()
	request, err := json.Marshal(map[string]any{
		"batch":     n,
		"max_bytes": limit,
		"expires":   time.Until(deadline),
	})
	if err != nil {
		return err
	}
	return r.conn.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+r.stream+"."+r.consumer.CachedInfo().Name, inbox, request)
}

// receive returns what a pull has brought, until it has n messages, or the one at
// the sequence to or behind it, or the server says that there is no more for now.
func (r *reading) receive(ctx context.Context, inbox <-chan *nats.Msg, n int, to uint64) ([]message, error) {
	var messages []message
	for len(messages) < n && r.at <= to {
		var msg *nats.Msg
		select {
		case msg = <-inbox:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if msg.Reply == "" {
			// The server's word: enough messages, enough bytes, too late, no such
			// consumer.
			break
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, err
		}
		if r.delivered++; meta.Sequence.Consumer != r.delivered {
			return nil, errors.New("a message was lost on the way from NATS")
		}
		r.at = meta.Sequence.Stream + 1
		messages = append(messages, message{msg, meta.Sequence.Stream, meta.Timestamp})
	}
	return messages, nil
}
