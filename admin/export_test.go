package admin

import "github.com/prometheus/client_golang/prometheus"

// Registry returns the registry of /metrics.
func (s *Server) Registry() *prometheus.Registry { return s.registry }

// CoreMetrics are the metrics that keep the label feed at [Core].
var CoreMetrics = coreMetrics
