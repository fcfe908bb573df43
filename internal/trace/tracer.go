package trace

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/feedbridge/feedbridge/internal/logonce"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// longest is the most characters of an attribute's text.
const longest = 1000

// Options describe the process that sends traces.
type Options struct {
	// Version is the version of the program.
	Version string
	// Instance names this copy.
	Instance string
	// Log gets the errors of the OpenTelemetry library. It is required.
	Log *slog.Logger
	// Redact hides the secrets of URLs. Nil hides the parameters with the usual names.
	Redact *safetext.Redactor

	client *http.Client // for tests; nil for that of the environment
}

// Tracer makes spans and sends them. A nil Tracer is off. Its methods may be called from any
// goroutine.
type Tracer struct {
	tracer     oteltrace.Tracer
	provider   *sdktrace.TracerProvider
	exporter   sdktrace.SpanExporter
	propagator propagation.TextMapPropagator
	redact     *safetext.Redactor
}

// Start returns a Tracer as the OTEL_ variables configure it, or nil if they do not ask for
// traces. It connects to nothing. Its error names the variable whose value cannot be used.
func Start(ctx context.Context, o Options) (t *Tracer, err error) {
	if err := Check(); err != nil || !isEnabled() {
		return nil, err
	}
	var causes logonce.Causes
	otel.SetLogger(logr.New(librarySink{logr.FromSlogHandler(o.Log.Handler()).GetSink()}))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if isNew, _ := causes.Add(err.Error()); isNew {
			o.Log.Warn("error of the OpenTelemetry library", "error", err)
		}
	}))
	attributes, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName("feedbridge"), semconv.ServiceVersion(o.Version), semconv.ServiceInstanceID(o.Instance)),
		resource.WithFromEnv(), // overrides those above
	)
	if err != nil {
		otel.Handle(fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)) // the other attributes are used
	}
	var options []otlptracehttp.Option
	if o.client != nil {
		options = append(options, otlptracehttp.WithHTTPClient(o.client))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	t = &Tracer{exporter: exporter, redact: o.Redact, propagator: propagation.NewCompositeTextMapPropagator()}
	if propagates() {
		t.propagator = propagation.TraceContext{}
	}
	defer func() {
		if cause := recover(); cause != nil {
			t, err = nil, fmt.Errorf("OTEL_BSP_MAX_QUEUE_SIZE or OTEL_BSP_MAX_EXPORT_BATCH_SIZE: invalid number: %v", cause)
		}
	}()
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(attributes)) // panics if a queue of that size cannot be made
	t.tracer = t.provider.Tracer("github.com/feedbridge/feedbridge", oteltrace.WithInstrumentationVersion(o.Version))
	_, endpoint := firstSet(endpointVariables)
	o.Log.Info("sending traces", "endpoint", o.Redact.URL(cmp.Or(endpoint, "https://localhost:4318")))
	return t, nil
}

// Stop sends the spans that wait, for at most the given time. Those that are not sent by
// then are dropped. No method may be called after it.
func (t *Tracer) Stop(within time.Duration) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		// Ends a request that the collector does not answer.
		_ = t.exporter.Shutdown(context.Background())
		otel.Handle(fmt.Errorf("spans are dropped at the stop: %w", err))
	}
}

// clip returns text as an attribute has it: one line, without the secrets of URLs.
func (t *Tracer) clip(text string) string { return t.redact.Clip(text, longest) }

// fail marks a span as failed. An error that is the end of ctx is none.
func (t *Tracer) fail(ctx context.Context, span oteltrace.Span, err error, kind string) {
	if err == nil || ctx.Err() != nil {
		return
	}
	span.SetStatus(codes.Error, t.clip(err.Error()))
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
}
