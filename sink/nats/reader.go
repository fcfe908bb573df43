package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/feedbridge/feedbridge/internal/retry"
)

// A reader delivers messages of a stream in their order, through an ephemeral consumer of its
// own. It is used by one goroutine at a time.
//
// It does not use the client's Fetch and NextMsg. They take a message that has no body and a
// header Status for a status message of the server, and anyone may publish such a message.
type reader struct {
	client *client
	stream string
	// from is the sequence at which it began, and at the one at which it continues.
	from, at  uint64
	consumer  jetstream.Consumer
	delivered uint64

	sub         *nats.Subscription
	consumerTTL time.Duration  // how long the server keeps the consumer without a pull
	inbox       chan *nats.Msg // the messages of pulls, and status messages
	pulls       int
	// reply is the subject of the pull in flight. outstanding is the number of messages that
	// it may still bring, and brought reports that it has brought some.
	reply       string
	outstanding int
	brought     bool
	limit       int64     // of a pull, in bytes
	left        int64     // of the limit of the pull in flight
	pulled      time.Time // when the last pull was sent

	// unread is a message that was returned and put back. before is the value of at before
	// the last message.
	unread *deliveredMessage
	before uint64
	// largest is the size of the largest message so far.
	largest int

	// These are set by a Log when the reader is opened.
	session     *session
	incarnation uint64
}

// openReader opens a reader of the messages on some subjects, from a sequence on.
func openReader(ctx context.Context, c *client, stream string, subjects []string, from uint64, headersOnly bool) (*reader, error) {
	config := jetstream.ConsumerConfig{
		// With a name the request is idempotent: a retry creates no second consumer.
		Name:              "feedbridge-" + nuid.Next(),
		FilterSubjects:    subjects,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       from,
		HeadersOnly:       headersOnly,
		AckPolicy:         jetstream.AckNonePolicy,
		Replicas:          1,
		MemoryStorage:     true,
		InactiveThreshold: c.consumerTTL,
	}
	r := &reader{client: c, stream: stream, from: from, at: from, inbox: make(chan *nats.Msg, pullMessages+2), limit: pullBytes}
	create := func(ctx context.Context) (jetstream.Consumer, error) {
		return c.js().CreateConsumer(ctx, stream, config)
	}
	var err error
	if r.consumer, err = firstAnswer(ctx, c, create); codeOf(err) == codeInactiveThreshold {
		// The stream has a lower limit. Without a value the server takes that limit.
		config.InactiveThreshold = 0
		r.consumer, err = firstAnswer(ctx, c, create)
	}
	if err != nil {
		return nil, err
	}
	r.consumerTTL = r.consumer.CachedInfo().Config.InactiveThreshold
	if r.sub, err = c.nc().ChanSubscribe(c.nc().NewInbox()+".*", r.inbox); err != nil {
		r.deleteConsumer()
		return nil, err
	}
	r.pulled = time.Now()
	return r, nil
}

// close deletes the consumer. It does not wait for the answer: the server deletes an unused
// consumer by itself later.
func (r *reader) close() {
	_ = r.sub.Unsubscribe()
	r.deleteConsumer()
}

func (r *reader) deleteConsumer() {
	_ = r.client.nc().Publish(r.client.cfg.apiPrefix()+"CONSUMER.DELETE."+r.stream+"."+r.consumer.CachedInfo().Name, nil)
}

// pending returns how many messages there were when the reader was opened.
func (r *reader) pending() uint64 { return r.consumer.CachedInfo().NumPending }

// The limits of one pull. They bound the memory for a topic of large entities, and make
// a topic of small ones fast.
const (
	pullMessages = 1000
	pullBytes    = 4 << 20
)

// statusConflict is the status with which the server ends a pull whose next message exceeds the
// limit in bytes, among others. If it has no message, the status is 404.
const statusConflict = "409"

// nextMessage returns the next message, or nil if the server answers that it has none. The
// consumer may be on a server that has not stored the message yet, or that does not know the
// consumer: the caller has to learn from the stream's leader whether there is one. The reader
// pulls no messages behind the sequence to. It returns each message as soon as it arrives.
func (r *reader) nextMessage(ctx context.Context, to uint64) (*deliveredMessage, error) {
	if m := r.unread; m != nil {
		r.unread, r.at = nil, m.sequence+1
		return m, nil
	}
	for {
		if r.outstanding == 0 {
			// The server delivers everything that a pull asks for, so do not ask for more
			// than the caller wants.
			if err := r.requestMessages(int(min(pullMessages, to-min(r.at, to)+1))); err != nil {
				return nil, err
			}
		}
		msg, err := r.receive(ctx)
		if err != nil {
			return nil, err
		}
		if msg.Reply != "" {
			return r.acceptMessage(msg)
		}
		if msg.Subject != r.reply {
			continue // the status message of an earlier pull
		}
		// A status message: no more messages, limit of bytes reached, no such consumer.
		if r.outstanding = 0; !r.brought {
			if msg.Header.Get("Status") == statusConflict {
				// The next message is larger than the limit.
				r.limit = max(r.limit, 2*r.client.nc().MaxPayload())
			}
			return nil, nil
		}
	}
}

// acceptMessage checks that no message was lost before msg, and returns it.
func (r *reader) acceptMessage(msg *nats.Msg) (*deliveredMessage, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, err
	}
	if r.delivered++; meta.Sequence.Consumer != r.delivered {
		return nil, errors.New("a message was lost on the way from NATS")
	}
	r.outstanding, r.brought, r.limit = r.outstanding-1, true, pullBytes
	if r.left -= int64(msg.Size()); r.left == 0 {
		// The server sends no status message if the last byte of a pull is that of a
		// message.
		r.outstanding = 0
	}
	r.before, r.at = r.at, meta.Sequence.Stream+1
	r.largest = max(r.largest, msg.Size())
	return &deliveredMessage{msg, meta.Sequence.Stream, meta.Timestamp}, nil
}

// continuesAt reports whether the next message of the reader is the first one at or behind
// the sequence from.
func (r *reader) continuesAt(from uint64) bool {
	return r.at == from || r.unread != nil && r.at < from && from <= r.unread.sequence
}

// isFresh reports whether the server should still have the consumer: it deletes consumers
// that are not used, and all of them when it stops.
func (r *reader) isFresh(ses *session) bool {
	return r.session == ses && time.Since(r.pulled) < r.consumerTTL/2
}

// putBack makes m, the last message that was returned, the next message again.
func (r *reader) putBack(m *deliveredMessage) { r.unread, r.at = m, r.before }

// nextKnown is nextMessage for a message that is known to be in the stream.
func (r *reader) nextKnown(ctx context.Context, to uint64) (*deliveredMessage, error) {
	m, err := r.nextMessage(ctx, to)
	if m != nil || err != nil {
		return m, err
	}
	ctx, cancel := r.client.withTimeout(ctx)
	defer cancel()
	for m == nil && err == nil {
		if err = retry.Sleep(ctx, replicationWait); err == nil {
			m, err = r.nextMessage(ctx, to)
		}
	}
	return m, err
}

// requestMessages asks for n messages. The server answers with those that it has, within the limit of
// bytes, and with a status message if they are fewer than n.
func (r *reader) requestMessages(n int) error {
	request := fmt.Appendf(nil, `{"batch":%d,"max_bytes":%d,"no_wait":true}`, n, r.limit)
	r.pulls++
	r.reply = strings.TrimSuffix(r.sub.Subject, "*") + strconv.Itoa(r.pulls)
	r.outstanding, r.brought, r.left, r.pulled = n, false, r.limit, time.Now()
	return r.client.nc().PublishRequest(r.client.cfg.apiPrefix()+"CONSUMER.MSG.NEXT."+r.stream+"."+r.consumer.CachedInfo().Name, r.reply, request)
}

// receive returns the next message of the inbox. Messages that have arrived are returned even
// if the connection was lost since.
func (r *reader) receive(ctx context.Context) (*nats.Msg, error) {
	select {
	case msg := <-r.inbox:
		return msg, nil
	default:
	}
	ctx, cancel := r.client.withTimeout(ctx)
	defer cancel()
	select {
	case msg := <-r.inbox:
		return msg, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
