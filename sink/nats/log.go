package nats

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/feed"
)

// Log is a topic to be read back, whoever wrote it. The position of a message is
// its sequence in the stream, so there are gaps where other subjects' messages
// are, and what was deleted. It is safe for concurrent use.
//
// A stream whose server lost acknowledged messages in a power cut gives their
// sequences to others, and nobody can tell.
type Log struct {
	conn    *Conn
	subject string
	stream  string // empty if it has to be found
	found   atomic.Pointer[string]
}

// Log returns a subject as it lies in a stream; in the one that has the subject
// now, if stream is empty.
func (c *Conn) Log(subject, stream string) *Log {
	return &Log{conn: c, subject: subject, stream: stream}
}

// Span returns which sequences the subject has, as the stream's leader has them: up
// to the stream's newest message, and from the stream's oldest on, or from 0 if its
// limits have taken nothing yet. The epoch is that of the stream's creation. A stream
// that is not there, or has no such subject, is [feed.ErrNoTopic].
func (l *Log) Span(ctx context.Context) (feed.Span, error) {
	var span feed.Span
	err := l.ask(ctx, func(ctx context.Context, stream string) error {
		info, err := l.conn.streamInfo(ctx, stream)
		if err != nil {
			return err
		}
		c := info.Config
		if own := c.Mirror == nil && len(c.Sources) == 0 && c.SubjectTransform == nil; own && !covers(c.Subjects, l.subject) {
			return fmt.Errorf("%w: stream %s does not have its subject", feed.ErrNoTopic, stream)
		}
		end := info.State.LastSeq + 1
		span = feed.Span{First: end, End: end, Epoch: strconv.FormatInt(info.Created.UnixNano(), 36)}
		oldest, err := l.conn.first(ctx, stream, l.subject, max(1, info.State.FirstSeq))
		switch {
		case oldest == nil:
			return err
		case c.MaxMsgsPerSubject > 0:
			span.First = min(oldest.Sequence, end)
		case !l.limited(info):
			span.First = 0
		case c.MaxAge > 0 && c.AllowMsgTTL:
			// Age spares what never expires, such as another feed's checkpoint. So
			// the stream's oldest may be older than what it has taken of ours.
			span.First = min(oldest.Sequence, end)
		default:
			// What is missing between it and ours is others', and never was ours.
			span.First = info.State.FirstSeq
		}
		if span.First == 1 {
			span.First = 0 // sequences count from 1
		}
		return err
	})
	if err != nil {
		return feed.Span{}, fmt.Errorf("look at the positions: %w", err)
	}
	return span, nil
}

// limited says whether a stream's limits may have taken something.
func (l *Log) limited(info *jetstream.StreamInfo) bool {
	c, state := info.Config, info.State
	if !covers(c.Subjects, checkpointPrefix+l.subject) {
		return c.MaxAge > 0 || c.MaxMsgs > 0 || c.MaxBytes > 0
	}
	// What is missing in the beginning may have been checkpoints alone, before the
	// feed's first entity. Readers must not lose what follows them.
	return c.MaxAge > 0 && info.TimeStamp.Sub(info.Created) >= c.MaxAge ||
		c.MaxMsgs > 0 && state.LastSeq > uint64(c.MaxMsgs) ||
		c.MaxBytes > 0 && state.Bytes > uint64(c.MaxBytes)/2
}

// Read returns the messages from one sequence on and before another, which is at
// most the end of the topic's span. It holds no more than a few megabytes of them
// at once.
//
// The fields of a header come sorted by name, values of the same name in their
// order: NATS clients keep headers in maps.
func (l *Log) Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		p := page{log: l, next: max(1, from), to: to}
		defer p.close()
		for p.next < to {
			messages, err := p.load(ctx)
			if err != nil {
				yield(feed.Record{}, fmt.Errorf("read from sequence %d: %w", p.next, err))
				return
			}
			for _, m := range messages {
				if m.sequence >= to {
					return
				}
				if !yield(feed.Record{Position: m.sequence, Time: m.time, Header: m.fields(), Body: m.Data}, nil) {
					return
				}
			}
		}
	}
}

// A page is a stretch of a log that is being read.
type page struct {
	log      *Log
	next, to uint64
	reading  *reading
	used     time.Time
}

// load returns the next messages and moves behind them; to the page's end, if there
// are no more.
func (p *page) load(ctx context.Context) (messages []message, err error) {
	err = p.log.ask(ctx, func(ctx context.Context, stream string) error {
		// One that is not to be missed, so that it is known when all is read.
		last, err := p.log.conn.last(ctx, stream, p.log.subject)
		if err != nil {
			return err
		}
		if last == nil || last.Sequence < p.next {
			p.next = p.to
			return nil
		}
		if p.reading != nil && time.Since(p.used) > p.log.conn.idle/2 {
			// Whoever reads is so slow that the server may have forgotten it.
			p.close()
		}
		if p.reading == nil {
			if p.reading, err = p.log.conn.read(ctx, stream, []string{p.log.subject}, p.next, false); err != nil {
				return err
			}
		}
		mark := min(last.Sequence, p.to-1)
		messages, err = p.reading.next(ctx, mark)
		p.used = time.Now()
		if p.next = p.reading.at; p.next > mark {
			// What comes later lies behind the page.
			p.next = p.to
		}
		return err
	})
	return messages, err
}

func (p *page) close() {
	if p.reading != nil {
		p.reading.close()
		p.reading = nil
	}
}

// ask runs f with the name of the stream.
func (l *Log) ask(ctx context.Context, f func(ctx context.Context, stream string) error) error {
	return l.conn.ask(ctx, l.subject, func(ctx context.Context, _ *session) error {
		stream, err := l.find(ctx)
		if err != nil {
			return err
		}
		err = f(ctx, stream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			err = fmt.Errorf("%w: there is no stream %s", feed.ErrNoTopic, stream)
		}
		if errors.Is(err, feed.ErrNoTopic) {
			// The subject may have moved to another stream.
			l.found.Store(nil)
		}
		return err
	})
}

// find returns the name of the stream.
func (l *Log) find(ctx context.Context) (string, error) {
	if l.stream != "" {
		return l.stream, nil
	}
	if name := l.found.Load(); name != nil {
		return *name, nil
	}
	var name string
	err := l.conn.insist(ctx, func(ctx context.Context) (err error) {
		name, err = l.conn.js.StreamNameBySubject(ctx, l.subject)
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "", fmt.Errorf("%w: no stream has its subject", feed.ErrNoTopic)
	}
	if err != nil {
		return "", err
	}
	l.found.Store(&name)
	return name, nil
}
