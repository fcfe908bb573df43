package admin

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/status"
)

func (h *handler) serveStatus(w http.ResponseWriter, req *http.Request) {
	buses := checkBuses(req.Context(), h.contents().buses, h.redact) // before the summary, which names those that are down
	now := time.Now()
	fleet, summary := h.overview(now)
	answer := status.Process{
		Summary: summary,
		Version: h.opts.Version,
		Started: formatTime(h.opts.Started),
		Writer:  h.opts.Writer,
		Config:  h.config.status(h.redact),
		Fleet:   fleet,
		Lists:   h.lists.status(),
		Buses:   buses,
		Feeds:   []status.Feed{},
		Served:  inspectServed(req.Context(), h.contents().served),

		LeftBehind: showLeftBehind(h.contents().left, h.redact),
		SlowHosts:  h.slowHosts(),
	}
	for _, f := range h.contents().feeds {
		answer.Feeds = append(answer.Feeds, f.status(now))
	}
	h.writeJSON(w, http.StatusOK, answer)
}

func (h *handler) serveFeed(w http.ResponseWriter, req *http.Request) {
	all := h.contents().feeds
	if i, found := all.find(req.PathValue("feed")); found {
		h.writeJSON(w, http.StatusOK, h.details(req.Context(), all[i]))
		return
	}
	var names []string
	for _, f := range all {
		names = append(names, f.opts.Name)
	}
	http.Error(w, fmt.Sprintf("there is no feed %q; there are: %s", req.PathValue("feed"), strings.Join(names, ", ")), http.StatusNotFound)
}
