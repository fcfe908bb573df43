package nats

import "time"

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
