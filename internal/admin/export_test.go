package admin

import (
	"context"
	"math"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/admin/statuspage"
)

// Registry returns the registry of /metrics.
func (s *Server) Registry() *prometheus.Registry { return s.registry }

// Pages are the status pages.
func (s *Server) Pages() *statuspage.Pages { return s.pages }

// CheckBus asks the first bus, as a probe does.
func (s *Server) CheckBus(ctx context.Context) { s.contents().buses[0].status(ctx, true, s.redact) }

// LockFeed holds the lock of the first feed, as a defect might, until unlock is called.
func (s *Server) LockFeed() (unlock func()) {
	f := s.contents().feeds[0]
	f.mu.Lock()
	return f.mu.Unlock
}

// SealRequest returns the seal of a forwarded request.
func SealRequest(s *Server, method, path, from, to, at, number string) string {
	key, err := s.forward.sealKey()
	if err != nil {
		panic(err)
	}
	return seal(key, "request", method, path, from, to, at, number)
}

// PretendDay gives a feed a day of activity.
func (f *Feed) PretendDay() {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.history.counters()
	a.advance(now)
	for i := range a.perHour {
		hour := (a.hour + 1 + int64(i)) % status.Hours
		busy := uint32(40 + 35*math.Sin(float64(i)/3.5))
		a.perHour[hour].entities += busy * busy / 3
		a.perHour[hour].slowest = 3 + busy/4
		if i%9 == 4 {
			a.perHour[hour].errors += 2
			a.perHour[hour].slowest = 1200
		}
	}
}

// DialMembers sets how requests that are forwarded connect.
func (s *Server) DialMembers(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	s.forward.client.Transport = &http.Transport{DialContext: dial}
}
