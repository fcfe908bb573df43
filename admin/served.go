package admin

import (
	"strconv"
	"time"
)

// AddServed returns what is to be told of each request to a topic that is served
// as a feed: the status of the answer, and how long it took to its last byte. It
// may be called from any goroutine.
func (s *Server) AddServed(feed string) func(status int, took time.Duration) {
	return func(status int, took time.Duration) {
		s.times.served.WithLabelValues(feed, strconv.Itoa(status)).Inc()
		s.times.servedSeconds.WithLabelValues(feed).Observe(took.Seconds())
	}
}
