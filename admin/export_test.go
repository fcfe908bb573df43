package admin

import "github.com/prometheus/client_golang/prometheus"

// Registry is what /metrics is served from.
func (s *Server) Registry() *prometheus.Registry { return s.registry }
