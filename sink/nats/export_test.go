package nats

import (
	"context"
	"math"
	"time"
)

// Log returns the sink's topic to be read back.
func (s *Sink) Log() *Log { return s.conn.Log(s.topic.Subject, s.topic.Stream.Name) }

// SetIdle sets how long a reading outlives its reader.
func (c *Conn) SetIdle(d time.Duration) { c.idle = d }

// Received is how much has come from the server, in bytes.
func (c *Conn) Received() uint64 { return c.nc.Stats().InBytes }

// Conn is what the log reads by.
func (l *Log) Conn() *Conn { return l.conn }

// Kept says whether a reading waits for somebody who goes on with it.
func (l *Log) Kept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept != nil
}

// ReadInPulls reads the subject from its first message, in pulls of so many bytes, and
// returns the sizes of the first n messages.
func (l *Log) ReadInPulls(ctx context.Context, limit int64, n int) (sizes []int64, err error) {
	err = l.ask(ctx, func(ctx context.Context, _ *session, stream string) error {
		r, err := l.conn.read(ctx, stream, []string{l.subject}, 1, false)
		if err != nil {
			return err
		}
		defer r.close()
		for len(sizes) < n {
			r.limit = limit
			m, err := r.next(ctx, math.MaxInt64)
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
func (s *Sink) Rest() { s.fence.at = time.Time{} }
