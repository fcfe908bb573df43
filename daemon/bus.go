package daemon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// bus is a configured bus. Its connection is made when it is first needed, and again after an
// error, such as a file that cannot be read. So a wrong file halts the feeds of this bus, and
// nothing else. It is safe for concurrent use.
type bus struct {
	name string
	conf config.Bus // has the URL of the embedded server in place of an embedded bus
	// files is the fingerprint of the files of conf when the bus was made.
	files string
	log   *slog.Logger

	attempt sync.Mutex // held while connecting

	mu     sync.Mutex // guards the fields below
	conn   conn       // nil until there is one
	err    error      // of the last attempt
	closed bool
}

func newBus(name string, conf config.Bus, log *slog.Logger) *bus {
	return &bus{name: name, conf: conf, files: fingerprintFiles(conf), log: slog.New(newRepeatFilter(log.Handler())).With("bus", name), err: fmt.Errorf("bus %s: not connected yet", name)}
}

// errClosed is the error of a bus that the configuration does not have any more.
var errClosed = errors.New("the bus was removed from the configuration")

// open returns the connection. If there is none, it tries to make one. The error is permanent
// if only a person can mend its cause.
func (b *bus) open(ctx context.Context) (conn, error) {
	b.attempt.Lock()
	defer b.attempt.Unlock()
	if conn, err := b.state(); conn != nil || errors.Is(err, errClosed) {
		return conn, err
	}
	conn, err := connect(ctx, b.conf, b.log)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.err = fmt.Errorf("bus %s: %w", b.name, err)
		return nil, b.err
	}
	if b.closed {
		conn.Close()
		return nil, errClosed
	}
	b.conn, b.err = conn, nil
	return conn, nil
}

// state returns the connection, or why there is none. It does not wait.
func (b *bus) state() (conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed
	}
	return b.conn, b.err
}

// check returns an error unless the bus answers.
func (b *bus) check(ctx context.Context) error {
	conn, err := b.state()
	if err != nil {
		return err
	}
	return conn.Check(ctx)
}

// reconnected is [conn.Reconnected]; nil while there is no connection.
func (b *bus) reconnected() <-chan struct{} {
	if conn, err := b.state(); err == nil {
		return conn.Reconnected()
	}
	return nil
}

// close closes the connection, and keeps others from being made.
func (b *bus) close() {
	b.mu.Lock()
	conn := b.conn
	b.conn, b.closed = nil, true
	b.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

// commitLimits returns the limits of commits to a bus.
func commitLimits(conf config.Bus) bridge.Limits {
	if conf.Kafka != nil {
		return bridge.Limits{Entities: kafka.MaxEntities, Bytes: kafka.MaxBytes}
	}
	return bridge.Limits{Entities: nats.MaxEntities, Bytes: nats.MaxBytes}
}

// newSink returns the sink of a feed's topic.
func newSink(c conn, name string, f config.Feed) topicSink {
	if c, ok := c.(*kafka.Conn); ok {
		return c.Sink(kafka.Topic{Feed: name, Name: f.To.Topic, Key: f.Key, Window: f.DedupeWindow, DeadLetters: f.DeadLetters(), Options: *f.To.Kafka})
	}
	return c.(*nats.Conn).Sink(nats.Topic{Feed: name, Subject: f.To.Topic, Window: f.DedupeWindow, DeadLetters: f.DeadLetters(), Stream: *f.To.Stream})
}

// newLog returns a topic to read.
func newLog(c conn, from config.From) serve.Log {
	if c, ok := c.(*kafka.Conn); ok {
		return c.Log(from.Topic, int32(from.Partition))
	}
	return c.(*nats.Conn).Log(from.Topic, from.Stream)
}

// busSink is the sink of a feed. It is opened by the first Resume for which there is a
// connection to the bus; the other methods are called after that.
type busSink struct {
	bus  *bus
	name string // of the feed
	feed config.Feed
	topicSink
}

// Resume opens the sink if it is not open yet.
func (s *busSink) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	if s.topicSink == nil {
		conn, err := s.bus.open(ctx)
		if err != nil {
			return checkpoint.Checkpoint{}, err
		}
		s.topicSink = newSink(conn, s.name, s.feed)
	}
	return s.topicSink.Resume(ctx)
}

// Close closes the sink if it is open.
func (s *busSink) Close() {
	if s.topicSink != nil {
		s.topicSink.Close()
	}
}

// system returns the name of the messaging system, as traces have it.
func (b *bus) system() string {
	if b.conf.Kafka != nil {
		return "kafka"
	}
	return "nats"
}

// openLog returns a topic to read. While the bus has no connection, each use of the topic
// tries to make one.
func (b *bus) openLog(from config.From) serve.Log {
	if conn, err := b.state(); err == nil {
		return newLog(conn, from)
	}
	return &busLog{bus: b, from: from}
}

// busLog is a topic of a bus that could not be connected at the start.
type busLog struct {
	bus  *bus
	from config.From

	mu  sync.Mutex // guards log
	log serve.Log  // nil until there is a connection
}

func (l *busLog) open(ctx context.Context) (serve.Log, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.log == nil {
		conn, err := l.bus.open(ctx)
		if err != nil {
			return nil, err
		}
		l.log = newLog(conn, l.from)
	}
	return l.log, nil
}

// Span implements [serve.Log].
func (l *busLog) Span(ctx context.Context) (feed.Span, error) {
	log, err := l.open(ctx)
	if err != nil {
		return feed.Span{}, err
	}
	return log.Span(ctx)
}

// Read implements [serve.Log].
func (l *busLog) Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	log, err := l.open(ctx)
	if err != nil {
		return func(yield func(feed.Record, error) bool) { yield(feed.Record{}, err) }
	}
	return log.Read(ctx, from, to)
}

// Count implements [serve.Log].
func (l *busLog) Count(ctx context.Context) (n uint64, ok bool, err error) {
	log, err := l.open(ctx)
	if err != nil {
		return 0, false, err
	}
	return log.Count(ctx)
}
