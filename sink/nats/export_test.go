package nats

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/feedbridge/feedbridge/internal/limit"
)

// Log returns the sink's topic to be read back.
func (s *Sink) Log() *Log { return (&Conn{client: s.client}).Log(s.topic.Subject, s.topic.Stream.Name) }

// SetConsumerTTL sets how long the server keeps the consumer of a reader that is gone.
func (c *Conn) SetConsumerTTL(d time.Duration) { c.client.consumerTTL = d }

// RequestOnce makes c send each request once, however slow the machine is, for tests that count
// requests.
func (c *Conn) RequestOnce() { c.client.repeatAfter = time.Hour }

// KeepReaders makes the logs of c keep a reader for the next Read, however long the machine takes.
func (c *Conn) KeepReaders() { c.client.keptLifetime = time.Hour }

// Received returns how many bytes the server has sent.
func (c *Conn) Received() uint64 { return c.client.nc().Stats().InBytes }

// Conn returns the connection of the log.
func (l *Log) Conn() *Conn {
	return &Conn{client: l.client, fast: fastBatches{client: l.client}, watch: &watch{client: l.client}}
}

// Look looks at the streams of all sinks once.
func (c *Conn) Look(ctx context.Context) {
	for _, stream := range c.streams.list() {
		c.watch.lookAt(ctx, stream)
	}
}

// Subscribe subscribes to the checkpoints, without looks.
func (c *Conn) Subscribe(committed func(topic, writer string)) { c.subscribe(committed) }

// HasSubscription reports whether there is a subscription to the checkpoints that was not refused.
func (c *Conn) HasSubscription() bool { return c.watch.subscribed.Load() }

// ForgetHints makes the sink read the checkpoint as if its time had come.
func (s *Sink) ForgetHints() {
	t := *s.watched.Load()
	t.until = time.Now()
	s.watched.Store(&t)
}

// VisitAll is visitAll for streams with these names.
func VisitAll(ctx context.Context, names []string, visit func(stream string)) {
	all := make([]*openStream, len(names))
	for i, name := range names {
		all[i] = &openStream{name: name}
	}
	visitAll(ctx, func() []*openStream { return all }, func(_ context.Context, s *openStream) { visit(s.name) })
}

// MaxLooks is the limit of visitAll.
const MaxLooks = limit.Looks

// Kept reports whether a reader is kept for the next Read.
func (l *Log) Kept() (is bool) {
	l.kept.Take(func(*reader) bool {
		is = true
		return false
	})
	return is
}

// ReadInPulls reads the subject from its first message, in pulls of so many bytes, and
// returns the sizes of the first n messages.
func (l *Log) ReadInPulls(ctx context.Context, limit int64, n int) (sizes []int64, err error) {
	err = l.withStream(ctx, func(ctx context.Context, _ *session, stream string) error {
		r, err := openReader(ctx, l.client, stream, []string{l.subject}, 1, false)
		if err != nil {
			return err
		}
		defer r.close()
		for len(sizes) < n {
			r.limit = limit
			m, err := r.nextMessage(ctx, math.MaxInt64)
			if err != nil {
				return err
			}
			sizes = append(sizes, int64(m.Size()))
		}
		return nil
	})
	return sizes, err
}

// LimitAfterNone returns the limit in bytes of the pull after one that the server has no messages for.
func (l *Log) LimitAfterNone(ctx context.Context, end uint64) (limit int64, err error) {
	err = l.withStream(ctx, func(ctx context.Context, _ *session, stream string) error {
		r, err := openReader(ctx, l.client, stream, []string{l.subject}, end, false)
		if err != nil {
			return err
		}
		defer r.close()
		m, err := r.nextMessage(ctx, math.MaxInt64)
		if limit = r.limit; m != nil {
			return errors.New("the server has a message")
		}
		return err
	})
	return limit, err
}

// SetInterval sets the time after which the key of f is renewed.
func (f *Fleet) SetInterval(d time.Duration) { f.interval = d }

// Rest makes the sink's next commit one after a pause.
func (s *Sink) Rest() { s.fence.proved = time.Time{} }

// Hurry makes the sink's next commit one without a pause, however slow the machine is.
func (s *Sink) Hurry() {
	s.fence.proved = time.Now().Add(time.Hour)
}

// Proved returns the time at which the fence of the next commit was proved.
func (s *Sink) Proved() time.Time { return s.fence.proved }

// SetTimeout sets the timeout of the requests of c that begin from now on.
func (c *Conn) SetTimeout(d time.Duration) { c.client.cfg.Timeout = d }
