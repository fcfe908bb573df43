package trace

import (
	"context"
	"log/slog"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/feedbridge/feedbridge/internal/logonce"
)

// exporter logs why spans cannot be sent: once for each cause until sending works again.
type exporter struct {
	sdktrace.SpanExporter
	log    *slog.Logger
	causes logonce.Causes
	lost   atomic.Int64 // spans, since sending failed first
}

// ExportSpans sends spans. It returns no error, because it has logged it.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.recordFailure(err, len(spans))
	} else if e.causes.End() {
		e.log.Info("traces are sent again", "lost_spans", e.lost.Swap(0))
	}
	return nil
}

// recordFailure counts the spans and logs the error, unless its cause has been logged.
func (e *exporter) recordFailure(err error, spans int) {
	e.lost.Add(int64(spans))
	if isNew, _ := e.causes.Add(err.Error()); isNew {
		e.log.Warn("cannot send traces; spans are dropped", "error", err)
	}
}
