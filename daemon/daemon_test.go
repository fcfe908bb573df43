package daemon_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/nats/embedded"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

// patience limits how long a test waits for something that should take a moment.
const patience = 2 * time.Minute

// load returns the configuration of a daemon with an embedded bus in dir that copies the feed
// orders from url, and serves the topic again.
func load(t *testing.T, dir, url string, more ...string) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Options{Environ: append([]string{
		"FEEDBRIDGE_DATA_DIR=" + dir,
		"FEEDBRIDGE_BUSES_HERE_EMBEDDED_LISTEN=127.0.0.1:0",
		"FEEDBRIDGE_ADMIN_LISTEN=127.0.0.1:0",
		"FEEDBRIDGE_SERVE_LISTEN=localhost:0", // not that of admin
		"FEEDBRIDGE_SERVE_FEEDS_ORDERS_FROM_TOPIC=orders",
		"FEEDBRIDGE_FEEDS_ORDERS_URL=" + url,
		"FEEDBRIDGE_FEEDS_ORDERS_EVERY=100ms",
	}, more...)})
	must.Succeed(t, err)
	return cfg
}

// counter is a bridge.Observer that reports how many entities are published.
type counter struct{ published chan int }

func (counter) Polled(feed.Batch, error, time.Duration)   {}
func (counter) Entered(bridge.Status)                     {}
func (c counter) Processed(b feed.Batch, _ time.Duration) { c.published <- len(b.Entities) }

// await returns when n entities have been published.
func (c counter) await(t *testing.T, n int) {
	t.Helper()
	end := time.After(patience)
	for n > 0 {
		select {
		case published := <-c.published:
			n -= published
		case <-end:
			t.Fatalf("%d entities are missing after %v", n, patience)
		}
	}
	if n < 0 {
		t.Fatalf("%d entities too many were published", -n)
	}
}

// start runs a daemon, and returns its addresses and a function that stops it.
func start(t *testing.T, cfg *config.Config, observer bridge.Observer) (daemon.Addresses, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	started, done := make(chan daemon.Addresses, 1), make(chan error, 1)
	go func() {
		done <- daemon.Run(ctx, cfg, daemon.Options{
			Version: "v0-test", Log: slog.New(slog.DiscardHandler), Observer: observer,
			Started: func(at daemon.Addresses) { started <- at },
		})
	}()
	stop := func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			t.Error("Run does not return after its context has ended")
		}
	}
	select {
	case at := <-started:
		return at, stop
	case err := <-done:
		t.Fatalf("Run: %v", err)
	case <-time.After(patience):
		t.Fatal("the daemon does not start")
	}
	panic("unreachable")
}

func get(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must.Succeed(t, err)
	resp, err := http.DefaultClient.Do(req)
	must.Succeed(t, err)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// readIDs returns the Content-IDs of a datareplication feed, in order.
func readIDs(t *testing.T, url string) (ids []string) {
	t.Helper()
	cfg := load(t, t.TempDir(), url)
	sources, err := daemon.NewSources(cfg.Feeds["orders"], daemon.SourceOptions{IDs: sink.NewIDs(0)}, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	src, kind, err := sources.Open(t.Context(), "")
	if err != nil || kind != datareplication.Kind {
		t.Fatalf("opened a source of the kind %q: %v", kind, err)
	}
	var at feed.Cursor
	for {
		b, err := src.Next(t.Context(), at, feed.Limits{})
		must.Succeed(t, err)
		for _, e := range b.Entities {
			ids = append(ids, e.ID)
		}
		if at = b.Cursor; !b.More {
			return ids
		}
	}
}

// A daemon in this process copies a feed, serves it again, and continues after a restart
// where it stopped. A command finds its checkpoint on the bus.
func TestRunCopiesAndServesAFeed(t *testing.T) {
	t.Parallel()
	upstream := samplefeed.New(samplefeed.Options{PageSize: 5, Entity: samplefeed.Sized(100)})
	upstream.SetLen(12)
	agents := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case agents <- r.UserAgent():
		default:
		}
		upstream.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	url := server.URL + "/feed/latest"
	cfg := load(t, t.TempDir(), url)
	published := counter{make(chan int, 1000)}

	at, stop := start(t, cfg, published)
	published.await(t, 12)
	if agent := <-agents; !strings.HasPrefix(agent, "feedbridge/v0-test (") {
		t.Errorf("User-Agent %q", agent)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/status"} {
		if got := get(t, at.Status+path); got != http.StatusOK {
			t.Errorf("%s answers with %d", path, got)
		}
	}
	if !strings.HasPrefix(at.Bus, "nats://") {
		t.Errorf("the embedded bus is at %q", at.Bus)
	}
	want := readIDs(t, url)
	if got := readIDs(t, at.Feeds+"/feeds/orders/latest"); len(got) != 12 || !slices.Equal(got, want) {
		t.Errorf("the served feed has %v, want %v", got, want)
	}
	stop()

	upstream.SetLen(15)
	at, stop = start(t, cfg, published)
	published.await(t, 3)
	want = readIDs(t, url)
	got := readIDs(t, at.Feeds+"/feeds/orders/latest")
	for end := time.Now().Add(patience); len(got) < len(want) && time.Now().Before(end); {
		got = readIDs(t, at.Feeds+"/feeds/orders/latest") // a page may be cached for a moment
	}
	if !slices.Equal(got, want) {
		t.Errorf("after a restart the served feed has %v, want %v", got, want)
	}
	stop()

	bus, err := daemon.OpenBus(t.Context(), cfg, "here", slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	defer bus.Close()
	must.Succeed(t, bus.Check(t.Context()))
	cp, err := bus.Checkpoints("orders", cfg.Feeds["orders"]).Checkpoint(t.Context())
	if err != nil || cp.Count != 15 || cp.Feed != "orders" {
		t.Errorf("checkpoint %+v, %v", cp, err)
	}
}

// Missing archives and held deletes of an Atom feed are metrics.
func TestRunCountsWhatTheTopicLacks(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/atom+xml")
		_, _ = io.WriteString(w, `<feed xmlns="http://www.w3.org/2005/Atom"><id>urn:f</id><title>f</title><updated>2026-01-01T00:00:00Z</updated>`+
			`<entry><id>urn:1</id><title>1</title><updated>2026-01-01T00:00:00Z</updated></entry></feed>`)
	}))
	t.Cleanup(upstream.Close)
	published := counter{make(chan int, 1000)}
	at, stop := start(t, load(t, t.TempDir(), upstream.URL), published)
	defer stop()
	published.await(t, 1)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at.Status+"/metrics", nil)
	must.Succeed(t, err)
	resp, err := http.DefaultClient.Do(req)
	must.Succeed(t, err)
	defer resp.Body.Close()
	metrics, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	for _, want := range []string{`feedbridge_feed_gaps{feed="orders"} 0`, `feedbridge_feed_deletes_held{feed="orders"} 0`} {
		if !strings.Contains(string(metrics), want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
}

// Errors that can only occur at the start are returned by Run, and nothing is left open.
func TestRunFailsAtTheStart(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { taken.Close() })
	for _, tt := range []struct{ name, environ, want string }{
		{"the address of the admin server is taken", "FEEDBRIDGE_ADMIN_LISTEN=" + taken.Addr().String(), "in use"},
		{"the address of the served feeds is taken", "FEEDBRIDGE_SERVE_LISTEN=" + taken.Addr().String(), "in use"},
		{"the token file is missing", "FEEDBRIDGE_ADMIN_TOKEN=file:/does/not/exist", "admin.token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			opts := daemon.Options{Log: slog.New(slog.DiscardHandler), Started: func(daemon.Addresses) { t.Error("it has started") }}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := daemon.Run(ctx, load(t, dir, "http://127.0.0.1:1/", tt.environ), opts)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want an error with %q", err, tt.want)
			}
			// The embedded bus is closed: it would be locked otherwise.
			opts.Started = func(daemon.Addresses) { cancel() }
			if err := daemon.Run(ctx, load(t, dir, "http://127.0.0.1:1/"), opts); err != nil {
				t.Errorf("a second Run: %v", err)
			}
		})
	}
}

func TestOpenBusCreatesNoEmbeddedBus(t *testing.T) {
	t.Parallel()
	want := "the embedded bus has never run"
	if !embedded.Built {
		want = embedded.ErrNotBuilt.Error()
	}
	dir := t.TempDir()
	_, err := daemon.OpenBus(t.Context(), load(t, dir, "http://127.0.0.1:1/"), "here", slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the data directory has %v, %v", entries, err)
	}
}
