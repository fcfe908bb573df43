package nats

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/feedbridge/feedbridge/feed"
	codec "github.com/feedbridge/feedbridge/message"
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
	Header   []byte `json:"hdrs"`
	Data     []byte `json:"data"`
	// Time is when the server stored it.
	Time time.Time `json:"time"`
}

// same reports whether two messages are one: the same content at the same sequence.
// Either may be nil, which is no message.
func (m *stored) same(other *stored) bool {
	if m == nil || other == nil {
		return m == other
	}
	return m.Sequence == other.Sequence && bytes.Equal(m.Data, other.Data)
}

// first says whether the topic has never had a message in front of this one.
func (m *stored) first(topic string) bool { return m.header().Get(firstOf) == topic }

// ours says whether feedbridge has written the message.
func (m *stored) ours() bool { return m.header().Get(codec.FeedName) != "" }

func (m *stored) header() nats.Header {
	h, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		return nil
	}
	return h
}

// last returns the newest message on a subject, or nil.
func (c *Conn) last(ctx context.Context, stream, subject string) (*stored, error) {
	return c.get(ctx, stream, map[string]any{"last_by_subj": subject})
}

// first returns the oldest message on a subject, or nil.
func (c *Conn) first(ctx context.Context, stream, subject string) (*stored, error) {
	return c.get(ctx, stream, map[string]any{"next_by_subj": subject, "seq": 1})
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
		reply, err = c.nc.RequestWithContext(ctx, c.cfg.api()+"STREAM.MSG.GET."+stream, request)
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

	sub   *nats.Subscription
	idle  time.Duration  // how long the server keeps the consumer without a pull
	inbox chan *nats.Msg // what pulls bring, and the server's word
	pulls int
	// reply is where the pull under way is answered; coming is how many messages it may
	// bring yet, and brought says that it has brought some.
	reply   string
	coming  int
	brought bool
	limit   int64     // of the bytes of a pull
	left    int64     // of the limit
	pulled  time.Time // when the last pull was

	// back was taken and given back, and was is where the reading was before it.
	back *message
	was  uint64
	// largest is the size of the largest message so far.
	largest int

	// These belong to a Log: when the reading was begun.
	session     *session
	incarnation uint64
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
	r := &reading{conn: c, stream: stream, from: from, at: from, inbox: make(chan *nats.Msg, loadMessages+2), limit: loadBytes}
	err := c.insist(ctx, func(ctx context.Context) (err error) {
		r.consumer, err = c.js.CreateConsumer(ctx, stream, config)
		var api jetstream.JetStreamError
		if errors.As(err, &api) && api.APIError() != nil && api.APIError().ErrorCode == codeInactiveThreshold {
			// The stream keeps consumers for less, and says how long.
			config.InactiveThreshold = 0
			r.consumer, err = c.js.CreateConsumer(ctx, stream, config)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r.idle = r.consumer.CachedInfo().Config.InactiveThreshold
	if r.sub, err = c.nc.ChanSubscribe(c.nc.NewInbox()+".*", r.inbox); err != nil {
		r.delete()
		return nil, err
	}
	r.pulled = time.Now()
	return r, nil
}

// close deletes the consumer sooner than the server does by itself. It does not
// wait for the answer, of which nothing depends.
func (r *reading) close() {
	_ = r.sub.Unsubscribe()
	r.delete()
}

func (r *reading) delete() {
	_ = r.conn.nc.Publish(r.conn.cfg.api()+"CONSUMER.DELETE."+r.stream+"."+r.consumer.CachedInfo().Name, nil)
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
	slices.SortStableFunc(list, func(a, b feed.Field) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// How much is read at once, so that a topic of large entities is never held in
// memory, and one of small entities is not read in drops.
const (
	loadMessages = 1000
	loadBytes    = 4 << 20
)

// next returns the next message, or nil if the server says that it has none. The
// consumer may be on a server that has not stored it yet, or that has not heard of
// the consumer: a reader has to know from the stream's leader whether there is one.
// Messages come in one by one while those before them are worked on; they are asked
// for up to the sequence to.
//
// It does without the client's Fetch and NextMsg, which take a message that has no
// body and a header Status for word from the server, and anyone may publish such.
func (r *reading) next(ctx context.Context, to uint64) (*message, error) {
	if m := r.back; m != nil {
		r.back, r.at = nil, m.sequence+1
		return m, nil
	}
	for {
		if r.coming == 0 {
			// The server sends all that it is asked for, wanted or not.
			if err := r.pull(int(min(loadMessages, to-min(r.at, to)+1))); err != nil {
				return nil, err
			}
		}
		msg, err := r.receive(ctx)
		if err != nil {
			return nil, err
		}
		if msg.Reply != "" {
			return r.take(msg)
		}
		if msg.Subject != r.reply {
			continue // that the pull before has brought all that it was for
		}
		// The server's word: no more messages, enough bytes, no such consumer.
		if r.coming = 0; !r.brought {
			// The next message may be larger than the limit.
			r.limit = max(r.limit, 2*r.conn.nc.MaxPayload())
			return nil, nil
		}
	}
}

// take makes a message of what has come.
func (r *reading) take(msg *nats.Msg) (*message, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, err
	}
	if r.delivered++; meta.Sequence.Consumer != r.delivered {
		return nil, errors.New("a message was lost on the way from NATS")
	}
	r.coming, r.brought, r.limit = r.coming-1, true, loadBytes
	if r.left -= int64(msg.Size()); r.left == 0 {
		// The server says nothing when the last byte of a pull is that of a message.
		r.coming = 0
	}
	r.was, r.at = r.at, meta.Sequence.Stream+1
	r.largest = max(r.largest, msg.Size())
	return &message{msg, meta.Sequence.Stream, meta.Timestamp}, nil
}

// goesOn says whether the next message of the reading is the next one from a
// sequence on.
func (r *reading) goesOn(from uint64) bool {
	return r.at == from || r.back != nil && r.at < from && from <= r.back.sequence
}

// fresh says whether the server still knows of the reading, as far as can be told:
// it forgets readers that are too slow, and all of them when it ends.
func (r *reading) fresh(ses *session) bool {
	return r.session == ses && time.Since(r.pulled) < r.idle/2
}

// giveBack makes m, which next has just returned, the next message again.
func (r *reading) giveBack(m *message) { r.back, r.at = m, r.was }

// await is next for a message that is known to be there.
func (r *reading) await(ctx context.Context, to uint64) (*message, error) {
	m, err := r.next(ctx, to)
	if m != nil || err != nil {
		return m, err
	}
	ctx, cancel := r.conn.bounded(ctx)
	defer cancel()
	for m == nil && err == nil {
		if err = pause(ctx); err == nil {
			m, err = r.next(ctx, to)
		}
	}
	return m, err
}

// pause gives a server a moment to hear what others know.
func pause(ctx context.Context) error {
	select {
	case <-time.After(10 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pull asks for n messages. The server answers with as many as it has and the limit
// lets through, and with its word if that was not all.
func (r *reading) pull(n int) error {
	request, err := json.Marshal(map[string]any{"batch": n, "max_bytes": r.limit, "no_wait": true})
	if err != nil {
		return err
	}
	r.pulls++
	r.reply = strings.TrimSuffix(r.sub.Subject, "*") + strconv.Itoa(r.pulls)
	r.coming, r.brought, r.left, r.pulled = n, false, r.limit, time.Now()
	return r.conn.nc.PublishRequest(r.conn.cfg.api()+"CONSUMER.MSG.NEXT."+r.stream+"."+r.consumer.CachedInfo().Name, r.reply, request)
}

// receive returns what comes next. What has come is not lost with the connection.
func (r *reading) receive(ctx context.Context) (*nats.Msg, error) {
	select {
	case msg := <-r.inbox:
		return msg, nil
	default:
	}
	ctx, cancel := r.conn.bounded(ctx)
	defer cancel()
	select {
	case msg := <-r.inbox:
		return msg, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
