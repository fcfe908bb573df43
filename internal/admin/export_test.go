package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/feedbridge/feedbridge/internal/admin/statuspage"
)

// Registry returns the registry of /metrics.
func (s *Server) Registry() *prometheus.Registry { return s.registry }

// Pages are the status pages.
func (s *Server) Pages() *statuspage.Pages { return s.pages }

// LockFeed holds the lock of the first feed, as a defect might, until unlock is called.
func (s *Server) LockFeed() (unlock func()) {
	f := s.contents().feeds[0]
	f.mu.Lock()
	return f.mu.Unlock
}

// CoreMetrics are the metrics that keep the label feed at [Core].
var CoreMetrics = coreMetrics

// SealRequest returns the seal of a forwarded request.
func SealRequest(s *Server, method, path, from, to, at, number string) string {
	key, err := s.forward.sealKey()
	if err != nil {
		panic(err)
	}
	return seal(key, "request", method, path, from, to, at, number)
}
