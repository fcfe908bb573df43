package admin

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/internal/admin/status"
)

// readiness is the answer of /readyz: whether the process is ready, and the reason for each feed and bus.
type readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"`
	// Notes are about the fleet, and make no difference to Ready: otherwise a rollout that
	// waits for ready copies would never end.
	Notes []string        `json:"notes"`
	Feeds []feedReadiness `json:"feeds"`
	Buses []busStatus     `json:"buses"`
}

// feedReadiness is the part of the answer about one feed.
type feedReadiness struct {
	Feed  string       `json:"feed"`
	Ready bool         `json:"ready"`
	State bridge.State `json:"state"`
	// FreshAt holds the time when the feed was last known to be copied. Limit holds the
	// time for which that counts as fresh.
	FreshAt *time.Time `json:"fresh_at"`
	Limit   string     `json:"limit"`
}

// serveHealth answers for probes whose failure restarts the process. A feed that fails needs no
// restart, so it makes no difference here; /readyz reports it.
func (h *handler) serveHealth(w http.ResponseWriter, _ *http.Request) {
	h.AwaitFeeds()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}

// serveReady answers /readyz: with 200 if the process is ready, and with 503 if it is not.
func (h *handler) serveReady(w http.ResponseWriter, req *http.Request) {
	answer := readiness{Reasons: []string{}, Notes: []string{}, Feeds: []feedReadiness{}, Buses: checkBuses(req.Context(), h.contents().buses, h.redact)}
	for _, bus := range answer.Buses {
		if bus.unready {
			answer.Reasons = append(answer.Reasons, fmt.Sprintf("bus %s: %s", bus.Bus.Bus, bus.Error))
		}
	}
	now := time.Now()
	for _, f := range h.contents().feeds {
		v := f.view(now)
		reason := v.staleReason()
		if reason != "" {
			answer.Reasons = append(answer.Reasons, fmt.Sprintf("feed %s: %s", f.opts.Name, reason))
		}
		state, _ := v.currentState()
		answer.Feeds = append(answer.Feeds, feedReadiness{f.opts.Name, reason == "", state, formatTime(v.r.freshAt), status.FormatDuration(f.opts.Freshness)})
	}
	answer.Reasons = append(answer.Reasons, h.lists.unread()...)
	member := h.fleet.membership()
	if reason := member.notMember(); reason != "" {
		answer.Reasons = append(answer.Reasons, reason)
	}
	if note := member.differs(now); note != "" {
		answer.Notes = append(answer.Notes, note)
	}
	answer.Ready = len(answer.Reasons) == 0
	status := http.StatusOK
	if !answer.Ready {
		status = http.StatusServiceUnavailable
	}
	h.writeJSON(w, status, answer)
}
