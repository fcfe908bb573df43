package admin

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

// readiness is the answer of /readyz: whether the process is ready, and the reason for each feed, bus and list that is not.
type readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"`
	// Notes make no difference to Ready. They are about the fleet, since a rollout that waits for ready copies would
	// never end, and about buses that topics are only served from.
	Notes []string `json:"notes"`
}

// maxLogStuck is the time without a reader of the log after which the process is to be restarted, because a
// restart usually makes a new pipe.
const maxLogStuck = time.Minute

// serveHealth answers for probes whose failure restarts the process. A feed that fails needs no
// restart, so it makes no difference here; /readyz reports it.
func (h *handler) serveHealth(w http.ResponseWriter, _ *http.Request) {
	h.AwaitFeeds()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if h.opts.LogStuck != nil {
		if stuck := h.opts.LogStuck(); stuck >= maxLogStuck {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "nobody has read the log on standard error for %v; restart its reader, or this process\n", stuck.Round(time.Second))
			return
		}
	}
	_, _ = io.WriteString(w, "ok\n")
}

// serveReady answers /readyz: with 200 if the process is ready, and with 503 if it is not.
func (h *handler) serveReady(w http.ResponseWriter, req *http.Request) {
	answer := readiness{Reasons: []string{}, Notes: []string{}}
	buses := h.contents().buses
	for i, bus := range checkBuses(req.Context(), buses, h.redact) {
		switch text := fmt.Sprintf("bus %s: %s", bus.Bus, bus.Error); {
		case bus.OK:
		case buses[i].counts():
			answer.Reasons = append(answer.Reasons, text)
		default:
			answer.Notes = append(answer.Notes, text)
		}
	}
	now := time.Now()
	for _, f := range h.contents().feeds {
		f.use(now, func(v *feedView) {
			if reason := v.staleReason(); reason != "" {
				answer.Reasons = append(answer.Reasons, fmt.Sprintf("feed %s: %s", f.opts.Name, reason))
			}
		})
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
