package trace

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Transport returns a RoundTripper that makes a span of each request, to the end of the
// response's header, and sends its trace context with the request.
func (t *Tracer) Transport(next http.RoundTripper) http.RoundTripper {
	if t == nil {
		return next
	}
	return &transport{t, next}
}

type transport struct {
	tracer *Tracer
	next   http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, span := t.tracer.tracer.Start(r.Context(), r.Method, oteltrace.WithSpanKind(oteltrace.SpanKindClient))
	defer span.End()
	if span.IsRecording() {
		span.SetAttributes(requestMethod(r.Method), semconv.URLFull(t.tracer.clip(t.tracer.redact.URL(r.URL.String()))), semconv.ServerAddress(r.URL.Hostname()))
		if port, err := strconv.Atoi(r.URL.Port()); err == nil {
			span.SetAttributes(semconv.ServerPort(port))
		}
	}
	r = r.Clone(ctx) // a RoundTripper must not change the request
	t.tracer.propagator.Inject(ctx, propagation.HeaderCarrier(r.Header))
	response, err := t.next.RoundTrip(r)
	if err != nil {
		t.tracer.fail(ctx, span, err, "no_response")
		return response, err
	}
	span.SetAttributes(semconv.HTTPResponseStatusCode(response.StatusCode))
	if response.StatusCode >= 400 {
		span.SetStatus(codes.Error, "")
		span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(response.StatusCode)))
	}
	return response, nil
}

// requestMethod returns the attribute of a method, which has few values.
func requestMethod(method string) attribute.KeyValue {
	if !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost}, method) {
		method = "_OTHER"
	}
	return semconv.HTTPRequestMethodKey.String(method)
}

// Handler returns a Handler that makes a span of each request for a served feed. It continues
// the trace of the client.
//
// otelhttp is not used, because it puts texts of the client into attributes as they are. One
// request for /%ff then loses the whole batch of spans: OTLP takes valid UTF-8 only.
func (t *Tracer) Handler(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := t.propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		method := requestMethod(r.Method)
		name, route := method.Value.AsString(), routeOf(r.URL.Path)
		ctx, span := t.tracer.Start(ctx, strings.TrimSpace(name+" "+route), oteltrace.WithSpanKind(oteltrace.SpanKindServer))
		defer span.End()
		if !span.IsRecording() {
			next.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		span.SetAttributes(method, semconv.URLPath(t.clip(r.URL.Path)))
		if route != "" {
			span.SetAttributes(semconv.HTTPRoute(route))
		}
		answer := &answerWriter{ResponseWriter: w}
		defer func() {
			if answer.status == 0 {
				return // the client left before there was an answer
			}
			span.SetAttributes(semconv.HTTPResponseStatusCode(answer.status), semconv.HTTPResponseBodySize(answer.size))
			if answer.status >= 500 {
				span.SetStatus(codes.Error, "")
				span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(answer.status)))
			}
		}()
		next.ServeHTTP(answer, r.WithContext(ctx))
	})
}

// routeOf returns the form of a path of package serve, or "" for any other path.
func routeOf(path string) string {
	parts := strings.Split(path, "/")
	switch {
	case path == "/":
		return "/"
	case len(parts) < 3 || parts[1] != "feeds" || parts[2] == "":
		return ""
	case len(parts) == 3:
		return "/feeds/{feed}"
	case len(parts) == 4 && parts[3] == "latest":
		return "/feeds/{feed}/latest"
	case len(parts) == 5 && parts[3] == "pages":
		return "/feeds/{feed}/pages/{page}"
	case len(parts) == 5 && parts[3] == "snapshots":
		return "/feeds/{feed}/snapshots/{snapshot}"
	case len(parts) == 6 && parts[3] == "snapshots":
		return "/feeds/{feed}/snapshots/{snapshot}/{page}"
	}
	return ""
}

// answerWriter records the status and the size of an answer.
type answerWriter struct {
	http.ResponseWriter
	status, size int
}

// WriteHeader implements [http.ResponseWriter].
func (w *answerWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *answerWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.size += n
	return n, err
}

// Unwrap returns the underlying writer, for [http.ResponseController].
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
