package admin

import "github.com/prometheus/client_golang/prometheus"

// Registry is what /metrics is served from.
func (s *Server) Registry() *prometheus.Registry { return s.registry }

// LockFeed holds the lock of the first feed, as a defect might, until unlock is called.
func (s *Server) LockFeed() (unlock func()) {
	f := s.allFeeds()[0]
	f.mu.Lock()
	return f.mu.Unlock
}
