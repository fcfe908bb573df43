package conformance

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/message"
)

// Limiter ends the way back through a datareplication feed that has too many pages, which would
// be requested before the first entity is read. It observes the responses of the crawl.
type Limiter struct {
	most int
	stop func()

	mu   sync.Mutex
	seen map[string]bool // URLs of pages; nil when the way back is over
	at   time.Time
}

// NewLimiter returns a Limiter that calls stop behind that many pages.
func NewLimiter(most int, stop func()) *Limiter {
	return &Limiter{most: most, stop: stop, seen: map[string]bool{}}
}

// Arrived reports that the crawl has found the page to start at.
func (l *Limiter) Arrived() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = nil
}

// At returns the time of the page at which the crawl was ended; zero if it was not.
func (l *Limiter) At() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
}

// Wrap is that of source.Options.
func (l *Limiter) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		res, err := next.RoundTrip(r)
		if err == nil && strings.HasPrefix(strings.ToLower(res.Header.Get("Content-Type")), "multipart/") {
			l.count(r.URL.String(), res.Header.Get("Last-Modified"))
		}
		return res, err
	})
}

func (l *Limiter) count(url, modified string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil || !l.at.IsZero() {
		return
	}
	l.seen[url] = true
	// The newest page has two URLs.
	if at, _, ok := message.ParseDate(modified); ok && len(l.seen) > l.most+1 {
		l.at = at
		l.stop()
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
