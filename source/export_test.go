package source

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
	return h.ahead[host]
}
