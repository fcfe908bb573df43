package source

import "github.com/feedbridge/feedbridge/internal/limit"

// WaitAnswered waits until all requests ahead have an answer or an error.
func WaitAnswered(a *PagesAhead) {
	for _, f := range a.fetches {
		<-f.answered
	}
}

// AheadOfHost returns the number of pages that are requested ahead from a host.
func AheadOfHost(h *Hosts, host string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ahead[host] == nil {
		return 0
	}
	free := 0
	for slot := h.ahead[host].TryAcquire(); slot != nil; slot = h.ahead[host].TryAcquire() {
		defer slot.Release()
		free++
	}
	return limit.PagesOfHost - free
}

// ShareOf returns the share of this copy of the rate of a host.
func ShareOf(h *Hosts, host string, rate float64) float64 {
	return h.limiter(hostKey{host, rate}).share
}

// KnownHosts returns the number of hosts whose limit is kept.
func KnownHosts(h *Hosts) int { return len(h.limiters) }
