package nats

// Log returns the sink's topic to be read back.
func (s *Sink) Log() *Log { return s.conn.Log(s.topic.Subject, s.topic.Stream.Name) }
