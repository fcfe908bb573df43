package trace

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// maxCauses limits the causes that are logged until sending works again.
const maxCauses = 8

// exporter logs why spans cannot be sent: once for each cause until sending works again.
type exporter struct {
	sdktrace.SpanExporter
	log *slog.Logger

	mu     sync.Mutex // guards the fields below
	causes map[string]bool
	lost   int // spans, since sending failed first
}

// ExportSpans sends spans. It returns no error, because it has logged it.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.recordFailure(err, len(spans))
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.causes != nil {
		e.log.Info("traces are sent again", "lost_spans", e.lost)
		e.causes, e.lost = nil, 0
	}
	return nil
}

// recordFailure counts the spans and logs the error, unless its cause has been logged.
func (e *exporter) recordFailure(err error, spans int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += spans
	cause := withoutDigits(err)
	if e.causes[cause] || len(e.causes) >= maxCauses {
		return
	}
	if e.causes == nil {
		e.causes = map[string]bool{}
	}
	e.causes[cause] = true
	e.log.Warn("cannot send traces; spans are dropped", "error", err)
}

// withoutDigits returns the text of an error without its digits, since ports, sizes and times differ
// from attempt to attempt.
func withoutDigits(err error) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, err.Error())
}
