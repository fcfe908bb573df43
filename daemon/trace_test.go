package daemon_test

import (
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// receiver is an OTLP collector that keeps spans.
type receiver struct {
	*httptest.Server

	mu      sync.Mutex // guards the fields below
	spans   []span
	service string // the name of it
}

// span is a span in a form that is easy to compare.
type span struct {
	name, trace, id, parent string
	kind                    otlp.Span_SpanKind
	attributes              map[string]string
	links                   []string // IDs of spans
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var got collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &got)
		}
		if err != nil || req.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", req.URL, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, resource := range got.ResourceSpans {
			for _, a := range resource.Resource.Attributes {
				if a.Key == "service.name" {
					r.service = a.Value.GetStringValue()
				}
			}
			for _, scope := range resource.ScopeSpans {
				for _, s := range scope.Spans {
					r.spans = append(r.spans, readSpan(s))
				}
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func readSpan(s *otlp.Span) span {
	out := span{
		name: s.Name, trace: hex.EncodeToString(s.TraceId), id: hex.EncodeToString(s.SpanId), parent: hex.EncodeToString(s.ParentSpanId),
		kind: s.Kind, attributes: map[string]string{},
	}
	for _, a := range s.Attributes {
		text := a.Value.String()
		_, text, _ = strings.Cut(text, ":")
		out.attributes[a.Key] = strings.Trim(text, `"`)
	}
	for _, l := range s.Links {
		out.links = append(out.links, hex.EncodeToString(l.SpanId))
	}
	return out
}

// named returns the spans with that name.
func (r *receiver) named(name string) (found []span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.name == name {
			found = append(found, s)
		}
	}
	return found
}

// A daemon sends a span of each poll with those of its requests, of each commit below the poll,
// and of each served page below that of the client.
func TestTraces(t *testing.T) {
	_, url := newUpstream(t, 12)
	otel := newReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otel.URL)
	cfg := load(t, t.TempDir(), url+"?api_key=hunter2")
	published := counter{make(chan int, 1000)}
	at, stop := start(t, cfg, published)
	published.await(t, 12)
	const client = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	page := getWith(t, at.Feeds+"/feeds/orders/latest", "traceparent", client)
	if !strings.Contains(page, "Content-ID") || strings.Contains(strings.ToLower(page), "trace") {
		t.Errorf("the served page has no entities, or a trace context:\n%s", page)
	}
	want := readIDs(t, url)
	if got := readIDs(t, at.Feeds+"/feeds/orders/latest"); !slices.Equal(got, want) {
		t.Errorf("the served feed has %v, want %v", got, want)
	}
	stop()

	otel.mu.Lock()
	service := otel.service
	otel.mu.Unlock()
	if service != "feedbridge" {
		t.Errorf("service.name is %q", service)
	}
	polls, fruitful := map[string]span{}, map[string]bool{}
	for _, p := range otel.named("poll orders") {
		polls[p.id] = p
		// A poll that the stop has cut off has no count.
		if n := p.attributes["feedbridge.entities"]; n != "" && n != "0" {
			fruitful[p.id] = true
		}
	}
	requests := 0
	for _, r := range append(otel.named("GET"), otel.named("HEAD")...) {
		poll, ok := polls[r.parent]
		if ok && poll.trace == r.trace && r.kind == otlp.Span_SPAN_KIND_CLIENT && r.attributes["http.response.status_code"] != "" {
			requests++
		} else if r.parent != "" {
			t.Errorf("a request is %+v, want a child of a poll", r)
		}
		if full := r.attributes["url.full"]; !strings.HasPrefix(full, strings.TrimSuffix(url, "latest")) || strings.Contains(full, "hunter2") {
			t.Errorf("url.full is %q", full)
		}
	}
	if len(polls) < 3 || requests < 3 {
		t.Errorf("%d polls with %d requests, want 3 of each or more", len(polls), requests)
	}
	for _, c := range otel.named("commit orders") {
		if c.attributes["messaging.batch.message_count"] == "0" {
			continue
		}
		poll, ok := polls[c.parent]
		if !ok || poll.trace != c.trace || c.kind != otlp.Span_SPAN_KIND_PRODUCER ||
			c.attributes["messaging.system"] != "nats" || c.attributes["messaging.destination.name"] != "orders" || c.attributes["feedbridge.bytes"] == "0" {
			t.Errorf("a commit is %+v, want a child of a poll", c)
		}
		for _, id := range append(c.links, c.parent) {
			delete(fruitful, id)
		}
	}
	if len(fruitful) > 0 {
		t.Errorf("no commit belongs to the polls %v", fruitful)
	}
	pages := otel.named("GET /feeds/{feed}/latest")
	if i := slices.IndexFunc(pages, func(s span) bool { return s.trace == client[3:35] }); i < 0 || pages[i].parent != client[36:52] ||
		pages[i].kind != otlp.Span_SPAN_KIND_SERVER || pages[i].attributes["http.response.status_code"] != "200" {
		t.Errorf("the pages are %+v, want one of the client's trace", pages)
	}
}

func getWith(t *testing.T, url, name, value string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must.Succeed(t, err)
	req.Header.Set(name, value)
	resp, err := http.DefaultClient.Do(req)
	must.Succeed(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	return string(body)
}

// With a collector that never answers a feed is copied as without one, and the daemon stops.
func TestTracesToACollectorThatHangs(t *testing.T) {
	_, url := newUpstream(t, 12)
	end := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(end) })
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", hanging.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	published := counter{make(chan int, 1000)}
	_, stop := start(t, load(t, t.TempDir(), url), published)
	published.await(t, 12)
	stop()
}

// A variable that cannot be used is an error before the first poll.
func TestRunRefusesBadTraceVariables(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	err := daemon.Run(t.Context(), load(t, t.TempDir(), "http://127.0.0.1:1/"), daemon.Options{
		Log: slog.New(slog.DiscardHandler), Started: func(daemon.Addresses) { t.Error("it has started") },
	})
	if !errors.Is(err, feed.ErrPermanent) || !strings.Contains(err.Error(), `OTEL_EXPORTER_OTLP_PROTOCOL: invalid protocol "grpc": want http/protobuf`) {
		t.Errorf("got %v", err)
	}
}
