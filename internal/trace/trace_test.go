package trace_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/trace"
)

// source is a feed.Source whose batches have one entity each.
type source struct{ n int }

func (s *source) Next(context.Context, feed.Cursor, feed.Limits) (feed.Batch, error) {
	s.n++
	return feed.Batch{Entities: []feed.Entity{{ID: "1"}}, Cursor: feed.Cursor{byte(s.n)}}, nil
}

func (*source) Release() {}

// topic is a bridge.Sink that takes everything.
type topic struct{ commits int }

func (*topic) Resume(context.Context) (checkpoint.Checkpoint, error) {
	return checkpoint.Checkpoint{}, nil
}

func (s *topic) Commit(context.Context, []feed.Entity, checkpoint.Checkpoint) error {
	s.commits++
	return nil
}

// roundTrip is a RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// start starts a Tracer that sends with f, and returns its log. The environment must have
// the endpoint.
func start(t *testing.T, f roundTrip) (*trace.Tracer, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	tracer, err := trace.Start(t.Context(), trace.WithClient(trace.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, &http.Client{Transport: f}))
	if err != nil || tracer == nil {
		t.Fatalf("Start returns %v, %v", tracer, err)
	}
	return tracer, &log
}

// copyFeed makes polls and commits.
func copyFeed(t *testing.T, tracer *trace.Tracer, n int) {
	t.Helper()
	f := tracer.Feed(trace.FeedOptions{Name: "orders", System: "nats", Topic: "orders"})
	src, snk := f.Source(&source{}), f.Sink(&topic{})
	for range n {
		b, err := src.Next(t.Context(), nil, feed.Limits{})
		must.Succeed(t, err)
		must.Succeed(t, snk.Commit(t.Context(), b.Entities, checkpoint.Checkpoint{Cursor: b.Cursor}))
	}
}

// Without the variables nothing is wrapped, so that no code of this package runs.
func TestOff(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"no variable":      nil,
		"the SDK disabled": {"OTEL_SDK_DISABLED": "TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"},
		"no exporter":      {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "no URL"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range env {
				t.Setenv(k, v)
			}
			tracer, err := trace.Start(t.Context(), trace.Options{Log: slog.New(slog.DiscardHandler)})
			if err != nil || tracer != nil {
				t.Fatalf("Start returns %v, %v, want neither", tracer, err)
			}
			f := tracer.Feed(trace.FeedOptions{})
			src, snk, mux := &source{}, &topic{}, http.NewServeMux()
			if f.Source(src) != src || f.Sink(snk) != snk || tracer.Transport(http.DefaultTransport) != http.DefaultTransport || tracer.Handler(mux) != mux {
				t.Error("something is wrapped")
			}
			tracer.Stop(time.Second)
		})
	}
}

// Only values with which the library would send spans elsewhere, or panic, are errors.
func TestBadVariables(t *testing.T) {
	for variable, c := range map[string]struct{ value, want string }{
		"OTEL_EXPORTER_OTLP_PROTOCOL":        {"grpc", `OTEL_EXPORTER_OTLP_PROTOCOL: invalid protocol "grpc": want http/protobuf or http/json`},
		"OTEL_TRACES_EXPORTER":               {"zipkin", `OTEL_TRACES_EXPORTER: invalid exporter "zipkin": want otlp or none`},
		"OTEL_BSP_MAX_QUEUE_SIZE":            {"-1", "OTEL_BSP_MAX_QUEUE_SIZE or "},
		"OTEL_EXPORTER_OTLP_ENDPOINT":        {"http://user:hunter2@collector:43x18", "OTEL_EXPORTER_OTLP_ENDPOINT: invalid URL: want one such as http://localhost:4318"},
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": {"collector:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: invalid URL"},
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE":     {"-1", " or OTEL_BSP_MAX_EXPORT_BATCH_SIZE: invalid number"},
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
			t.Setenv(variable, c.value)
			if tracer, err := trace.Start(t.Context(), trace.Options{Log: slog.New(slog.DiscardHandler)}); err == nil || tracer != nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("Start returns %v, %v, want %q", tracer, err, c.want)
			}
		})
	}
}

// The library logs values that it cannot use, and secrets of the variables are not in the log.
func TestTheLibraryLogsBadValues(t *testing.T) {
	for variable, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_HEADERS": "hunter2", "OTEL_TRACES_SAMPLER": "jaeger_remote", "OTEL_RESOURCE_ATTRIBUTES": "team",
		"OTEL_EXPORTER_OTLP_CERTIFICATE": "missing.pem", "OTEL_EXPORTER_OTLP_TIMEOUT": "10s",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
			t.Setenv(variable, value)
			tracer, log := start(t, func(*http.Request) (*http.Response, error) { return nil, errors.New("down") })
			defer tracer.Stop(0)
			if text := log.String(); strings.Count(text, "\n") < 2 || strings.Contains(text, "hunter2") {
				t.Errorf("the log has no error, or a secret:\n%s", text)
			}
		})
	}
}

// A collector that never answers delays no poll and no commit, and a stop by no more than its
// limit. The queue is bounded: more spans than it holds are dropped.
func TestACollectorThatHangs(t *testing.T) {
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example.com:4318")
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int32
		tracer, log := start(t, func(r *http.Request) (*http.Response, error) {
			requests.Add(1)
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		begin := time.Now()
		copyFeed(t, tracer, 5)
		synctest.Wait()
		if requests.Load() == 0 {
			t.Fatal("nothing was sent, so the collector cannot hang")
		}
		copyFeed(t, tracer, 1000)
		if took := time.Since(begin); took != 0 {
			t.Errorf("the feed was delayed by %v", took)
		}
		const limit = 2 * time.Second
		tracer.Stop(limit)
		if took := time.Since(begin); took != limit {
			t.Errorf("the stop took %v, want %v", took, limit)
		}
		synctest.Wait()
		if n := strings.Count(log.String(), "error of the OpenTelemetry library"); n == 0 {
			t.Errorf("the log does not have the failure:\n%s", log)
		}
	})
}

// A collector that is down is a line of the log in ten minutes.
func TestACollectorThatIsDownIsLoggedNowAndThen(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example.com:4318")
	synctest.Test(t, func(t *testing.T) {
		var attempts int
		tracer, log := start(t, func(r *http.Request) (*http.Response, error) {
			attempts++
			// The local port differs each time.
			return nil, errors.New("read tcp 127.0.0.1:" + time.Now().Format("150405") + ": connection reset")
		})
		for range 100 {
			copyFeed(t, tracer, 1)
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		if attempts < 100 {
			t.Errorf("%d attempts, want 100 or more", attempts)
		}
		if n := strings.Count(log.String(), "error of the OpenTelemetry library"); n != 10 {
			t.Errorf("the failure is logged %d times in 100 minutes, want 10:\n%s", n, log)
		}
		tracer.Stop(time.Minute)
	})
}

// The answers of a handler are as they are without traces, and its writer can be unwrapped.
func TestHandlerKeepsTheAnswer(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example.com:4318")
	tracer, _ := start(t, func(*http.Request) (*http.Response, error) { return nil, errors.New("down") })
	defer tracer.Stop(0)
	h := tracer.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusGone)
		_, _ = io.WriteString(w, "gone")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "BREW", "/feeds/orders/pages/1", nil))
	if w.Code != http.StatusGone || w.Body.String() != "gone" || !w.Flushed {
		t.Errorf("the answer is %d %q", w.Code, w.Body)
	}
}
