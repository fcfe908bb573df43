package daemon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/limit"
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

	connecting *limit.Limit // of one attempt at a time
	// resumeSlots and commitSlots limit how many sinks of the bus do that at a time.
	resumeSlots, commitSlots *limit.Limit

	mu     sync.Mutex  // guards the fields below
	conn   *connection // nil until there is one
	closed bool
	// endWatch ends the watch of the checkpoints; nil if there is none.
	endWatch context.CancelFunc

	hints hints
}

func newBus(name string, conf config.Bus, log *slog.Logger) *bus {
	return &bus{
		name: name, conf: conf, files: fingerprintFiles(conf), log: slog.New(newRepeatFilter(log.Handler())).With("bus", name),
		connecting: limit.New(1, 0), resumeSlots: limit.New(limit.OnBus, limit.SlowOnBus), commitSlots: limit.New(limit.OnBus, limit.SlowOnBus),
	}
}

// errClosed is the error of a bus that the configuration does not have any more.
var errClosed = errors.New("the bus was removed from the configuration")

// open returns the connection. If there is none, it tries to make one. The error is permanent
// if only a person can mend its cause. open waits for the attempt of another caller, until ctx ends.
func (b *bus) open(ctx context.Context) (*connection, error) {
	conn, err := b.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("bus %s: %w", b.name, err)
	}
	return conn, nil
}

// connect is open, and its errors do not name the bus.
func (b *bus) connect(ctx context.Context) (*connection, error) {
	attempt, err := b.connecting.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer attempt.Release()
	if conn, err := b.state(); conn != nil || err != nil {
		return conn, err
	}
	conn, err := connect(ctx, b.conf, b.log)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		conn.close()
		return nil, errClosed
	}
	b.conn = conn
	return conn, nil
}

// watchOnce starts to watch the checkpoints of the bus, once. Only a bus with feeds needs it.
func (b *bus) watchOnce(ctx context.Context, conn *connection) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.endWatch != nil || b.closed {
		return
	}
	ctx, b.endWatch = context.WithCancel(context.WithoutCancel(ctx))
	conn.watch(ctx, b.hints.send)
}

// state returns the connection, nil if there is none, or an error if there will be none. It does not wait.
func (b *bus) state() (*connection, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed
	}
	return b.conn, nil
}

// check returns an error unless the bus answers.
func (b *bus) check(ctx context.Context) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	return conn.check(ctx)
}

// reconnected returns the context that ends when the connection is made again, or nil while there is none.
func (b *bus) reconnected() context.Context {
	if conn, _ := b.state(); conn != nil {
		return conn.reconnected()
	}
	return nil
}

// close closes the connection, and keeps others from being made.
func (b *bus) close() {
	b.mu.Lock()
	conn := b.conn
	b.conn, b.closed = nil, true
	if b.endWatch != nil {
		b.endWatch()
	}
	b.mu.Unlock()
	if conn != nil {
		conn.close()
	}
}

// commitLimits returns the limits of commits to a bus.
func commitLimits(conf config.Bus) feed.Limits {
	if conf.Kafka != nil {
		return feed.Limits{Entities: kafka.MaxEntities, Bytes: kafka.MaxBytes}
	}
	return feed.Limits{Entities: nats.MaxEntities, Bytes: nats.MaxBytes}
}

// lazySink is the sink of a feed. It is opened by the first Resume for which there is a
// connection to the bus; the other methods are called after that.
type lazySink struct {
	bus  *bus
	name string // of the feed
	feed *config.Feed
	// running is the context of the feed, which ends when the feed is to stop. A commit that has not
	// begun then is given up.
	running context.Context
	topicSink
	// opened is the open sink, for other goroutines than that of the feed.
	opened atomic.Pointer[topicSink]
}

// errStopping is the error of a commit that has not begun when its feed is to stop.
var errStopping = errors.New("the feed is being stopped; nothing was sent")

// Commit commits to the topic when there is a slot. ctx does not end, because the commit in flight has
// to finish when the feed is to stop; one that waits for its slot does not. Otherwise a stop or a reload
// would take minutes while the bus does not answer.
func (s *lazySink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	slot, err := s.bus.commitSlots.Acquire(s.running)
	if err != nil {
		return errStopping
	}
	defer slot.Release()
	return s.topicSink.Commit(ctx, entities, cp)
}

// Resume waits for a slot, and opens the sink if it is not open yet.
func (s *lazySink) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	slot, err := s.bus.resumeSlots.Acquire(ctx)
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	defer slot.Release()
	if s.topicSink == nil {
		conn, err := s.bus.open(ctx)
		if err != nil {
			return checkpoint.Checkpoint{}, err
		}
		s.bus.watchOnce(ctx, conn)
		s.topicSink = conn.sink(s.name, *s.feed)
		s.opened.Store(&s.topicSink)
	}
	return s.topicSink.Resume(ctx)
}

// Unchanged is that of [bridge.Bridge]. It is the zero time before the sink is open.
func (s *lazySink) Unchanged() time.Time {
	if opened := s.opened.Load(); opened != nil {
		return (*opened).Unchanged()
	}
	return time.Time{}
}

// CommitsBy returns how the open sink stores commits, "" before it is open.
func (s *lazySink) CommitsBy() string {
	if opened := s.opened.Load(); opened != nil {
		return (*opened).CommitsBy()
	}
	return ""
}

// Close closes the sink if it is open.
func (s *lazySink) Close() {
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
func (b *bus) openLog(from config.From) serve.Log { return &lazyLog{bus: b, from: from} }

// lazyLog is a topic that is opened when it is first read.
type lazyLog struct {
	bus  *bus
	from config.From

	mu  sync.Mutex // guards log
	log serve.Log  // nil until there is a connection
}

func (l *lazyLog) open(ctx context.Context) (serve.Log, error) {
	conn, err := l.bus.open(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.log == nil {
		l.log = conn.log(l.from)
	}
	return l.log, nil
}

// Span implements [serve.Log].
func (l *lazyLog) Span(ctx context.Context) (feed.Span, error) {
	log, err := l.open(ctx)
	if err != nil {
		return feed.Span{}, err
	}
	return log.Span(ctx)
}

// Read implements [serve.Log].
func (l *lazyLog) Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	log, err := l.open(ctx)
	if err != nil {
		return func(yield func(feed.Record, error) bool) { yield(feed.Record{}, err) }
	}
	return log.Read(ctx, from, to)
}
