package nats

import (
	"context"
	"math"
	"time"
)

// Log returns the sink's topic to be read back.
func (s *Sink) Log() *Log { return (&Conn{client: s.client}).Log(s.topic.Subject, s.topic.Stream.Name) }

// SetConsumerTTL sets how long the server keeps the consumer of a reader that is gone.
func (c *Conn) SetConsumerTTL(d time.Duration) { c.client.consumerTTL = d }

// Received returns how many bytes the server has sent.
func (c *Conn) Received() uint64 { return c.client.nc.Stats().InBytes }

// Conn returns the connection of the log.
func (l *Log) Conn() *Conn { return &Conn{client: l.client, sinks: newSinkCounts()} }

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

// Rest makes the sink's next commit one after a pause.
func (s *Sink) Rest() { s.fence.proved = time.Time{} }
