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
)

// Log is a topic to be read back, whoever wrote it. The position of a message is
// its sequence in the stream, so there are gaps where other subjects' messages
// are, and what was deleted. It is safe for concurrent use.
//
// A stream whose server lost acknowledged messages in a power cut gives their
// sequences to others, and nobody can tell.
type Log struct {
	client  *client
	subject string
	stream  string // empty if it has to be found
	found   atomic.Pointer[string]
	// newest is the sequence of the newest message that the subject is known to
	// have had.
	newest atomic.Uint64

	mu    sync.Mutex // guards what follows
	state state      // of the stream, when it was asked last
	// front is what the subject begins with in that state, zero if it is not known.
	front front
	// gone is the sequence below which messages were taken, as far as is known, and had
	// says that the subject has had messages in this stream.
	gone uint64
	had  bool
	// incarnation counts how often another stream was found under the name.
	incarnation uint64
	// kept is what the last Read has left, for as long as expiry runs.
	kept   *reader
	expiry *time.Timer
}

// state is what changes whenever a stream loses a message.
type state struct {
	created int64
	first   uint64
	deleted int // in the middle
}

// front is a subject's oldest message.
type front struct {
	sequence uint64 // 0 if there is none
	first    bool   // the subject has never had one in front of it
	ours     bool   // feedbridge has written it
}

// Log returns a subject as it lies in a stream; in the one that has the subject
// now, if stream is empty.
func (c *Conn) Log(subject, stream string) *Log {
	return &Log{client: c.client, subject: subject, stream: stream}
}

// Span returns which sequences the subject has, as the stream's leader has them: up
// to the stream's newest message, and from 0 if nothing was taken yet. If something
// was, they begin with the subject's oldest message where feedbridge has written it,
// else with the stream's: what is between these is taken for others'. The epoch is
// that of the stream's creation. A stream that is not there, or has no such subject,
// is [feed.ErrNoTopic].
func (l *Log) Span(ctx context.Context) (feed.Span, error) {
	var span feed.Span
	err := l.ask(ctx, func(ctx context.Context, _ *session, stream string) error {
		info, err := l.client.streamInfo(ctx, stream)
		if err != nil {
			return err
		}
		c := info.Config
		if c.Retention == jetstream.WorkQueuePolicy {
			return feed.Permanent(fmt.Errorf("stream %s is a work queue, which deletes what was read; "+
				"give the messages to a stream with --retention limits, and serve that", stream))
		}
		if own := c.Mirror == nil && len(c.Sources) == 0 && c.SubjectTransform == nil; own && !coversSubject(c.Subjects, l.subject) {
			return fmt.Errorf("%w: stream %s does not have its subject", feed.ErrNoTopic, stream)
		}
		end := info.State.LastSeq + 1
		span = feed.Span{First: end, End: end, Epoch: strconv.FormatInt(info.Created.UnixNano(), 36)}
		front, err := l.oldest(ctx, stream, info)
		switch {
		case err != nil:
			return err
		case front.sequence == 0:
			l.emptied(info)
			return nil
		case front.first:
			// What is missing in front of it are checkpoints and others' messages.
			span.First = 0
		case front.ours && coversSubject(c.Subjects, checkpointPrefix+l.subject), c.MaxMsgsPerSubject > 0, c.MaxAge > 0 && c.AllowMsgTTL:
			// feedbridge has written one in front of it, and to this stream: those that
			// have ours from another need not have had its first. Or these limits are set,
			// which take ours and may leave others' that are older.
			span.First = min(front.sequence, end)
		default:
			// What is missing between it and ours is others', and never was ours.
			span.First = info.State.FirstSeq
		}
		if span.First <= firstSequence(c) {
			span.First = 0
		}
		span.First = l.remember(info, span.First)
		return nil
	})
	if err != nil {
		return feed.Span{}, fmt.Errorf("look at the positions: %w", err)
	}
	return span, nil
}

// oldest returns the subject's oldest message. To ask for it makes a server read that
// message's block from its disk, so it is asked for again when the stream's state
// shows that something was taken.
func (l *Log) oldest(ctx context.Context, stream string, info *jetstream.StreamInfo) (front, error) {
	now := state{info.Created.UnixNano(), info.State.FirstSeq, info.State.NumDeleted}
	l.mu.Lock()
	if l.state.created != now.created {
		l.incarnation++
		l.gone, l.had = 0, false
	}
	if l.state != now {
		l.front = front{}
	}
	l.state = now
	known := l.front
	l.mu.Unlock()
	if known.sequence > 0 {
		return known, nil
	}
	m, err := l.client.firstMessage(ctx, stream, l.subject)
	if m == nil || err != nil {
		return front{}, err
	}
	found := front{m.Sequence, m.precedesTopic(l.subject), m.isOurs()}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == now {
		l.front = found
	}
	if l.state.created == now.created {
		l.had = true
	}
	return found, nil
}

// emptied remembers that all that the subject had is gone, if it had something.
func (l *Log) emptied(info *jetstream.StreamInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.had && l.state.created == info.Created.UnixNano() {
		l.gone = max(l.gone, info.State.LastSeq+1)
	}
}

// remember returns the sequence below which messages were taken: the one that was found
// now, or one that was found before and is higher. In a stream that others write, a
// limit that somebody has lifted does not show any more.
func (l *Log) remember(info *jetstream.StreamInfo, gone uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.created == info.Created.UnixNano() {
		l.gone = max(l.gone, gone)
		gone = min(l.gone, info.State.LastSeq+1)
	}
	return gone
}

// Read returns the messages from one sequence on and before another, which is at
// most the end of the topic's span. It holds no more than a few megabytes of them
// at once, which come in while those before them are worked on. Who goes on within
// seconds where a Read ended, or was left, finds its consumer there.
//
// The fields of a header come sorted by name, values of the same name in their
// order: NATS clients keep headers in maps.
func (l *Log) Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		p := page{log: l, next: max(1, from), to: to}
		defer p.close()
		for p.next < to && !p.left {
			err := l.ask(ctx, func(ctx context.Context, ses *session, stream string) error {
				return p.pull(ctx, ses, stream, yield)
			})
			if err != nil {
				yield(feed.Record{}, fmt.Errorf("read from sequence %d: %w", p.next, err))
				return
			}
		}
	}
}

// A page is a stretch of a log that is being read.
type page struct {
	log      *Log
	next, to uint64
	left     bool // by who ranges over it
	reader   *reader
	// reused says that the reading was begun for another page.
	reused bool
	// starving is since when the server has no message, zero if it had one.
	starving time.Time
}

// pull yields what one pull brings, or what is left of one.
func (p *page) pull(ctx context.Context, ses *session, stream string, yield func(feed.Record, error) bool) error {
	l := p.log
	// A message that is not to be missed, so that it is known when all is read. One
	// that was there some time is enough, as long as messages come.
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
	if err := p.begin(ctx, ses, stream); err != nil {
		return err
	}
	for {
		m, err := p.reader.nextMessage(ctx, mark)
		switch {
		case err != nil:
			return err
		case m == nil:
			return p.starve(ctx)
		case m.sequence >= p.to:
			p.reader.putBack(m)
			p.next = p.to
			return nil
		}
		if !yield(feed.Record{Position: m.sequence, Time: m.time, Header: m.fields(), Body: m.Data}, nil) {
			p.reader.putBack(m)
			p.left = true
			return nil
		}
		p.starving = time.Time{}
		switch p.next = p.reader.at; {
		case p.next > mark:
			// What comes later lies behind the page.
			p.next = p.to
			return nil
		case p.reader.outstanding == 0:
			return nil
		}
	}
}

// begin sees to it that there is a reading that can be asked for more.
func (p *page) begin(ctx context.Context, ses *session, stream string) (err error) {
	if p.reader != nil && !p.reader.isFresh(ses) {
		p.drop()
	}
	if p.reader != nil {
		return nil
	}
	if p.reader = p.log.take(p.next, ses, stream); p.reader != nil {
		p.reused = true
		return nil
	}
	p.log.mu.Lock()
	incarnation := p.log.incarnation
	p.log.mu.Unlock()
	p.reader, err = openReader(ctx, p.log.client, stream, []string{p.log.subject}, p.next, false)
	if err != nil {
		return err
	}
	p.reader.session, p.reader.incarnation = ses, incarnation
	return nil
}

// starve is for when the server has no message though there is one.
func (p *page) starve(ctx context.Context) error {
	switch {
	case p.reused:
		// It may have lost the consumer.
		p.drop()
		return nil
	case p.starving.IsZero():
		// What was there may be gone.
		p.starving = time.Now()
		return nil
	case time.Since(p.starving) > p.log.client.cfg.Timeout:
		return fmt.Errorf("NATS has not sent within %v what the stream's leader has", p.log.client.cfg.Timeout)
	}
	return pauseBriefly(ctx)
}

func (p *page) drop() {
	p.reader.close()
	p.reader, p.reused = nil, false
}

// close keeps the reading for who goes on here, unless it failed.
func (p *page) close() {
	switch {
	case p.reader == nil:
	case p.left || p.next >= p.to:
		p.log.keep(p.reader)
	default:
		p.reader.close()
	}
}

const (
	// keptFor is how long a reading waits for somebody who goes on with it, and
	// keptBytes how much it may have been sent by then.
	keptFor   = 2 * time.Second
	keptBytes = 256 << 10
)

// keep keeps a reading, in place of the one that was kept before.
func (l *Log) keep(r *reader) {
	if r.incarnation == 0 || (r.outstanding+1)*r.largest > keptBytes {
		r.close()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept != nil && l.expiry.Stop() {
		l.kept.close()
	}
	l.kept = r
	l.expiry = time.AfterFunc(min(keptFor, r.consumerTTL/2), func() {
		l.mu.Lock()
		if l.kept == r {
			l.kept = nil
		}
		l.mu.Unlock()
		r.close()
	})
}

// take returns the reading that was kept, if it goes on at a sequence, and the
// stream was not made anew since: what it has been sent would be another's.
func (l *Log) take(from uint64, ses *session, stream string) *reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.kept
	if r == nil || r.stream != stream || r.incarnation != l.incarnation || !r.isFresh(ses) || !r.continuesAt(from) || !l.expiry.Stop() {
		return nil
	}
	l.kept = nil
	return r
}

// ask runs f with the name of the stream.
func (l *Log) ask(ctx context.Context, f func(ctx context.Context, ses *session, stream string) error) error {
	return l.client.withSession(ctx, l.subject, func(ctx context.Context, ses *session) error {
		stream, err := l.find(ctx)
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

// find returns the name of the stream.
func (l *Log) find(ctx context.Context) (string, error) {
	if l.stream != "" {
		return l.stream, nil
	}
	if name := l.found.Load(); name != nil {
		return *name, nil
	}
	var name string
	err := l.client.retryRequest(ctx, func(ctx context.Context) (err error) {
		name, err = l.client.js.StreamNameBySubject(ctx, l.subject)
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
