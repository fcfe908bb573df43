package nats

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/retry"
	"github.com/feedbridge/feedbridge/sink"
)

// Log reads a topic back, including messages of other programs. The position of a message is
// its sequence in the stream, so there are gaps where messages of other subjects or deleted
// messages are. It is safe for concurrent use.
//
// If a server has lost acknowledged messages in a power cut, the stream gives their
// sequences to new messages. A Log cannot detect that.
type Log struct {
	client  *client
	subject string
	stream  string // empty if it must be looked up
	found   atomic.Pointer[string]
	// newest is the sequence of the newest message that the subject is known to
	// have had.
	newest atomic.Uint64

	mu      sync.Mutex // guards the fields below
	created time.Time  // of the stream, as of the last span
	// incarnation counts the streams that were found under the name.
	incarnation uint64

	kept sink.Kept[*reader] // of the last Read
}

// Log returns a reader of a subject in a stream. If stream is empty, it is the stream that has
// the subject now.
func (c *Conn) Log(subject, stream string) *Log {
	return &Log{client: c.client, subject: subject, stream: stream}
}

// Span returns the range of sequences of the subject, from the stream's leader. It ends with
// the stream's newest message. It begins at 0 if nothing was deleted yet; otherwise
// with the subject's oldest message if feedbridge has written it, and else
// with that of the stream: messages between the two are assumed to belong to other subjects.
// The epoch is the time of the stream's creation. If the stream does not exist, or does not
// have the subject, the error matches [feed.ErrNoTopic].
func (l *Log) Span(ctx context.Context) (feed.Span, error) {
	var span feed.Span
	err := l.withStream(ctx, func(ctx context.Context, _ *session, stream string) error {
		info, err := l.client.streamInfo(ctx, stream)
		if err != nil {
			return err
		}
		c := info.Config
		if c.Retention == jetstream.WorkQueuePolicy {
			return feed.Permanent(fmt.Errorf("stream %s is a work queue, which deletes messages that were read; "+
				"give the messages to a stream with --retention limits, and serve that", stream))
		}
		if own := c.Mirror == nil && len(c.Sources) == 0 && c.SubjectTransform == nil; own && !coversSubject(c.Subjects, l.subject) {
			return fmt.Errorf("%w: stream %s does not have its subject", feed.ErrNoTopic, stream)
		}
		end := info.State.LastSeq + 1
		span = feed.Span{First: end, End: end, Epoch: strconv.FormatInt(info.Created.UnixNano(), 36)}
		l.recordStream(info)
		oldest, err := l.client.firstMessage(ctx, stream, l.subject)
		switch {
		case err != nil || oldest == nil:
			return err
		case oldest.precedesTopic(l.subject):
			// Only checkpoints and messages of other subjects are in front of it.
			span.First = 0
		case oldest.isOurs() && coversSubject(c.Subjects, checkpointPrefix+l.subject), c.MaxMsgsPerSubject > 0, c.MaxAge > 0 && c.AllowMsgTTL:
			// feedbridge has written an older message, and to this stream: a stream that
			// copies messages from another one may never have had the first. Or limits are
			// set that delete messages of this subject and may leave older ones of others.
			span.First = min(oldest.Sequence, end)
		default:
			// The gap belongs to other subjects; nothing of this topic was deleted.
			span.First = info.State.FirstSeq
		}
		if span.First <= firstSequence(c) {
			span.First = 0
		}
		return nil
	})
	if err != nil {
		return feed.Span{}, fmt.Errorf("find the oldest and the newest message: %w", err)
	}
	return span, nil
}

// recordStream records which stream has the name.
func (l *Log) recordStream(info *streamInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.created.Equal(info.Created) {
		l.created = info.Created
		l.incarnation++
	}
}

// Read returns the messages from the sequence from on and before to, which is at
// most the end of the topic's span. It prefetches a few megabytes at most. A Read that
// continues within two seconds where another one ended, or was left, uses its consumer.
//
// The fields of a header are sorted by name, and the values of one name keep their
// order: NATS clients keep headers in maps.
func (l *Log) Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		p := logRead{log: l, next: max(1, from), to: to}
		defer p.releaseReader()
		for p.next < to && !p.left {
			err := l.withStream(ctx, func(ctx context.Context, ses *session, stream string) error {
				return p.yieldPull(ctx, ses, stream, yield)
			})
			if err != nil {
				yield(feed.Record{}, fmt.Errorf("read from sequence %d: %w", p.next, err))
				return
			}
		}
	}
}

// A logRead is one Read of a log.
type logRead struct {
	log      *Log
	next, to uint64
	left     bool // the caller has stopped the iteration
	reader   *reader
	// reused reports that the reader was opened by an earlier Read.
	reused bool
	// starving holds the time when the server first had no message, zero if it had one
	// since.
	starving time.Time
}

// yieldPull yields the messages of one pull, or those that an earlier one has left.
func (p *logRead) yieldPull(ctx context.Context, ses *session, stream string, yield func(feed.Record, error) bool) error {
	l := p.log
	// mark is the sequence of a message that must be read before the Read may end. An older
	// known message is enough, as long as messages arrive.
	mark := min(l.newest.Load(), p.to-1)
	if mark < p.to-1 || !p.starving.IsZero() {
		last, err := l.client.lastMessage(ctx, stream, l.subject)
		if err != nil {
			return err
		}
		if last == nil || last.Sequence < p.next {
			p.next = p.to
			return nil
		}
		l.newest.Store(last.Sequence)
		mark = min(last.Sequence, p.to-1)
	}
	if err := p.ensureReader(ctx, ses, stream); err != nil {
		return err
	}
	for {
		m, err := p.reader.nextMessage(ctx, mark)
		switch {
		case err != nil:
			return err
		case m == nil:
			return p.handleStarvation(ctx)
		case m.sequence >= p.to:
			p.reader.putBack(m)
			p.next = p.to
			return nil
		}
		if !yield(feed.Record{Position: m.sequence, Time: m.time, Header: m.headerFields(), Body: m.Data}, nil) {
			p.reader.putBack(m)
			p.left = true
			return nil
		}
		p.starving = time.Time{}
		switch p.next = p.reader.at; {
		case p.next > mark:
			// All later messages are at to or behind.
			p.next = p.to
			return nil
		case p.reader.outstanding == 0:
			return nil
		}
	}
}

// ensureReader makes p.reader one whose consumer the server still has.
func (p *logRead) ensureReader(ctx context.Context, ses *session, stream string) (err error) {
	if p.reader != nil && !p.reader.isFresh(ses) {
		p.closeReader()
	}
	if p.reader != nil {
		return nil
	}
	p.log.mu.Lock()
	incarnation := p.log.incarnation
	p.log.mu.Unlock()
	// Of a stream that was created again, the kept reader would have the messages of the old one.
	p.reader, p.reused = p.log.kept.Take(func(r *reader) bool {
		return r.stream == stream && r.incarnation == incarnation && r.isFresh(ses) && r.continuesAt(p.next)
	})
	if p.reused {
		return nil
	}
	p.reader, err = openReader(ctx, p.log.client, stream, []string{p.log.subject}, p.next, false)
	if err != nil {
		return err
	}
	p.reader.session, p.reader.incarnation = ses, incarnation
	return nil
}

// handleStarvation decides how to continue if the server delivers no message although the
// leader has one. It returns an error after the timeout of the configuration.
func (p *logRead) handleStarvation(ctx context.Context) error {
	switch {
	case p.reused:
		// The server may have deleted the consumer.
		p.closeReader()
		return nil
	case p.starving.IsZero():
		// The message may be deleted: ask the leader again.
		p.starving = time.Now()
		return nil
	case time.Since(p.starving) > p.log.client.cfg.Timeout:
		return fmt.Errorf("NATS has not delivered within %v the messages that the stream's leader has", p.log.client.cfg.Timeout)
	}
	return retry.Sleep(ctx, replicationWait)
}

func (p *logRead) closeReader() {
	p.reader.close()
	p.reader, p.reused = nil, false
}

// releaseReader keeps the reader for the next Read, unless this one failed.
func (p *logRead) releaseReader() {
	switch {
	case p.reader == nil:
	case p.left || p.next >= p.to:
		p.log.keepReader(p.reader)
	default:
		p.reader.close()
	}
}

// maxKeptBytes is the limit of the messages that a reader may have received while it is kept for the
// next Read.
const maxKeptBytes = 256 << 10

// keepReader keeps a reader for the next Read, in place of the one that was kept before. An
// iterator that serve keeps open up to the end of the topic was slower: 54% instead of 72% of
// the rate of a bare consumer. docs/architecture.md has the details.
func (l *Log) keepReader(r *reader) {
	if r.incarnation == 0 || (r.outstanding+1)*r.largest > maxKeptBytes {
		r.close()
		return
	}
	l.kept.Put(r, min(l.client.keptLifetime, r.consumerTTL/2), (*reader).close)
}

// withStream calls f with the current session and the name of the stream.
func (l *Log) withStream(ctx context.Context, f func(ctx context.Context, ses *session, stream string) error) error {
	return l.client.withSession(ctx, l.subject, l.stream, func(ctx context.Context, ses *session) error {
		stream, err := l.findStream(ctx)
		if err != nil {
			return err
		}
		err = f(ctx, ses, stream)
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

// findStream returns the name of the stream.
func (l *Log) findStream(ctx context.Context) (string, error) {
	if l.stream != "" {
		return l.stream, nil
	}
	if name := l.found.Load(); name != nil {
		return *name, nil
	}
	name, err := firstAnswer(ctx, l.client, func(ctx context.Context) (string, error) {
		return l.client.js().StreamNameBySubject(ctx, l.subject)
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
