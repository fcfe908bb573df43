package daemon_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
)

// newUpstream serves a sample feed of n entities.
func newUpstream(t *testing.T, n int) (*samplefeed.Feed, string) {
	t.Helper()
	upstream := samplefeed.New(samplefeed.Options{PageSize: 5, Entity: samplefeed.Sized(100)})
	upstream.SetLen(n)
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	return upstream, server.URL + "/feed/latest"
}

// reloadable is a running daemon whose configuration can be replaced.
type reloadable struct {
	at     daemon.Addresses
	client *http.Client // for its socket
	next   atomic.Pointer[config.Options]
	log    *lockedLog
	stops  atomic.Int64 // bridges that have ended
	stop   func()
}

// Polled implements bridge.Observer.
func (*reloadable) Polled(feed.Batch, error, time.Duration) {}

// Processed implements bridge.Observer.
func (*reloadable) Processed(feed.Batch, time.Duration) {}

// Entered implements bridge.Observer.
func (r *reloadable) Entered(s bridge.Status) {
	if s.State == bridge.Stopped {
		r.stops.Add(1)
	}
}

// lockedLog keeps the lines of a log.
type lockedLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *lockedLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	return len(line), nil
}

func (l *lockedLog) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// reloadableEnviron returns variables of a configuration with an embedded bus in dir and
// feeds, by name: the URL, or a variable of the feed as in "every=1s".
func reloadableEnviron(dir string, feeds map[string][]string, more ...string) []string {
	environ := []string{
		"FEEDBRIDGE_DATA_DIR=" + dir,
		"FEEDBRIDGE_BUSES_HERE_EMBEDDED_LISTEN=127.0.0.1:0",
		"FEEDBRIDGE_ADMIN_LISTEN=127.0.0.1:0",
		"FEEDBRIDGE_ADMIN_SOCKET=" + filepath.Join(dir, "s"),
	}
	for name, settings := range feeds {
		prefix := "FEEDBRIDGE_FEEDS_" + strings.ToUpper(name) + "_"
		environ = append(environ, prefix+"URL="+settings[0], prefix+"EVERY=100ms")
		for _, s := range settings[1:] {
			environ = append(environ, prefix+s)
		}
	}
	return append(environ, more...)
}

func startReloadable(t *testing.T, environ []string) *reloadable {
	t.Helper()
	r := &reloadable{log: &lockedLog{}}
	r.next.Store(&config.Options{Environ: environ})
	load := func() (*config.Config, error) { return config.Load(*r.next.Load()) }
	cfg, err := load()
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	started, done := make(chan daemon.Addresses, 1), make(chan error, 1)
	go func() {
		done <- daemon.Run(ctx, cfg, daemon.Options{
			Version: "v0-test", Log: slog.New(slog.NewTextHandler(r.log, nil)), Level: new(slog.LevelVar), Observer: r,
			Started: func(at daemon.Addresses) { started <- at }, Load: load,
		})
	}()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(r.stop)
	select {
	case r.at = <-started:
	case err := <-done:
		t.Fatalf("Run: %v", err)
	}
	socket := cfg.Admin.Socket
	r.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	t.Cleanup(r.client.CloseIdleConnections)
	return r
}

// reload replaces the configuration, and returns what was changed, or the errors.
func (r *reloadable) reload(t *testing.T, environ []string) (done daemon.Reloaded, errs []string) {
	t.Helper()
	r.next.Store(&config.Options{Environ: environ})
	status, body := r.post(t, "/reload")
	if status == http.StatusOK {
		must.Succeed(t, json.Unmarshal([]byte(body), &done))
		return done, nil
	}
	var failed struct{ Errors []string }
	if err := json.Unmarshal([]byte(body), &failed); err != nil || len(failed.Errors) == 0 {
		t.Fatalf("%d: %s", status, body)
	}
	return done, failed.Errors
}

// mustReload is reload, and ends the test at an error.
func (r *reloadable) mustReload(t *testing.T, environ []string) daemon.Reloaded {
	t.Helper()
	done, errs := r.reload(t, environ)
	if errs != nil {
		t.Fatal(errs)
	}
	return done
}

// post sends a request without a body.
func (r *reloadable) post(t *testing.T, path string) (status int, body string) {
	t.Helper()
	return r.send(t, http.MethodPost, path)
}

func (r *reloadable) send(t *testing.T, method, path string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, nil)
	must.Succeed(t, err)
	resp, err := r.client.Do(req)
	must.Succeed(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	return resp.StatusCode, string(text)
}

func (r *reloadable) read(t *testing.T, path string) (status int, body string) {
	t.Helper()
	return r.send(t, http.MethodGet, path)
}

// feedRow is a part of /status/FEED.
type feedRow struct {
	State               string
	Explanation         string
	Every               string
	Entities, Published int
}

// awaitFeed waits until the status of a feed is as is reports.
func (r *reloadable) awaitFeed(t *testing.T, name string, is func(feedRow) bool) feedRow {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var row feedRow
		status, body := r.read(t, "/status/"+name)
		if status == http.StatusOK {
			must.Succeed(t, json.Unmarshal([]byte(body), &row))
			if is(row) {
				return row
			}
		}
		if time.Now().After(end) {
			t.Fatalf("the feed %s did not come to be as it should: %s", name, body)
		}
	}
}

func entities(n int) func(feedRow) bool {
	return func(row feedRow) bool { return row.Entities == n && row.State == "idle" }
}

func wantChanged(t *testing.T, what string, got daemon.Changed, added, restarted, removed string) {
	t.Helper()
	for how, names := range map[string][2]string{"added": {strings.Join(got.Added, " "), added}, "restarted": {strings.Join(got.Restarted, " "), restarted}, "removed": {strings.Join(got.Removed, " "), removed}} {
		if names[0] != names[1] {
			t.Errorf("%s %s: %q, want %q", what, how, names[0], names[1])
		}
	}
}

func TestReloadRestartsOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, url := newUpstream(t, 12)
	served := []string{"FEEDBRIDGE_SERVE_LISTEN=localhost:0", "FEEDBRIDGE_SERVE_FEEDS_ONE_FROM_TOPIC=kept", "FEEDBRIDGE_SERVE_FEEDS_TWO_FROM_TOPIC=changed"}
	r := startReloadable(t, reloadableEnviron(dir, map[string][]string{"kept": {url}, "changed": {url}, "removed": {url}}, served...))
	for _, name := range []string{"kept", "changed", "removed"} {
		r.awaitFeed(t, name, entities(12))
	}
	if status := get(t, r.at.Feeds+"/feeds/one/latest"); status != http.StatusOK {
		t.Errorf("the served feed answers with %d", status)
	}

	now := reloadableEnviron(dir, map[string][]string{"kept": {url}, "changed": {url, "FRESHNESS=1h"}, "added": {url}},
		"FEEDBRIDGE_SERVE_LISTEN=localhost:0", "FEEDBRIDGE_SERVE_FEEDS_TWO_FROM_TOPIC=changed", "FEEDBRIDGE_SERVE_FEEDS_TWO_PAGE_SIZE=3", "FEEDBRIDGE_SERVE_FEEDS_THREE_FROM_TOPIC=added")
	done := r.mustReload(t, now)
	if n := r.stops.Load(); n != 2 {
		t.Errorf("%d feeds have ended when the reload is over, want 2", n)
	}
	wantChanged(t, "feeds", done.Feeds, "added", "changed", "removed")
	wantChanged(t, "served feeds", done.Served, "three", "two", "one")
	wantChanged(t, "buses", done.Buses, "", "", "")
	// The restarted feed finds all of its entities on the bus.
	if row := r.awaitFeed(t, "changed", entities(12)); row.Published != 0 {
		t.Errorf("the restarted feed has published %d entities again", row.Published)
	}
	if row := r.awaitFeed(t, "kept", entities(12)); row.Published != 12 {
		t.Errorf("the feed that did not change was restarted: %d published", row.Published)
	}
	r.awaitFeed(t, "added", entities(12))
	if status, _ := r.read(t, "/status/removed"); status != http.StatusNotFound {
		t.Errorf("the status of the removed feed: %d", status)
	}
	_, metrics := r.read(t, "/metrics")
	for _, gone := range []string{`feed="removed"`, `feed="one"`} {
		if strings.Contains(metrics, gone) {
			t.Errorf("there are metrics of %s", gone)
		}
	}
	for _, there := range []string{`feed="added"`, "feedbridge_config_reload_success 1"} {
		if !strings.Contains(metrics, there) {
			t.Errorf("the metrics lack %s", there)
		}
	}
	for name, want := range map[string]int{"one": http.StatusNotFound, "two": http.StatusOK, "three": http.StatusOK} {
		if status := get(t, r.at.Feeds+"/feeds/"+name+"/latest"); status != want {
			t.Errorf("the served feed %s answers with %d", name, status)
		}
	}

	done = r.mustReload(t, now)
	for what, changed := range map[string]daemon.Changed{"feeds": done.Feeds, "served feeds": done.Served, "buses": done.Buses} {
		wantChanged(t, what, changed, "", "", "")
	}
}

func TestBadReloadChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	upstream, url := newUpstream(t, 12)
	good := reloadableEnviron(dir, map[string][]string{"orders": {url}})
	r := startReloadable(t, good)
	r.awaitFeed(t, "orders", entities(12))
	_, errs := r.reload(t, reloadableEnviron(dir, map[string][]string{"orders": {url, "GAP=never", "DEDUPE_WINDOW=0"}, "more": {"ftp://x/"}}))
	want := []string{"FEEDBRIDGE_FEEDS_MORE_URL: feeds.more.url: ", "FEEDBRIDGE_FEEDS_ORDERS_DEDUPE_WINDOW: feeds.orders.dedupe_window: ", "FEEDBRIDGE_FEEDS_ORDERS_GAP: feeds.orders.gap: "}
	if len(errs) != len(want) {
		t.Fatalf("%d errors: %q", len(errs), errs)
	}
	for i := range want {
		if !strings.HasPrefix(errs[i], want[i]) {
			t.Errorf("got %s, want %s", errs[i], want[i])
		}
	}
	if n := r.log.count("the configuration was not reloaded"); n != len(want) {
		t.Errorf("%d errors were logged", n)
	}
	if _, metrics := r.read(t, "/metrics"); !strings.Contains(metrics, "feedbridge_config_reload_success 0") {
		t.Error("the metric does not show the error")
	}
	if _, status := r.read(t, "/status"); !strings.Contains(status, "feeds.more.url") {
		t.Errorf("/status does not show the error: %s", status)
	}
	upstream.SetLen(13)
	if row := r.awaitFeed(t, "orders", entities(13)); row.Published != 13 {
		t.Errorf("the feed was restarted: %d published", row.Published)
	}
	r.mustReload(t, good)
	if _, metrics := r.read(t, "/metrics"); !strings.Contains(metrics, "feedbridge_config_reload_success 1") {
		t.Error("the metric shows an error that is over")
	}
}

func TestReloadRefusesWhatNeedsARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, url := newUpstream(t, 1)
	feeds := map[string][]string{"orders": {url}}
	r := startReloadable(t, reloadableEnviron(dir, feeds))
	const sentence = ": cannot be changed while feedbridge runs; restart it, or set the value that it was started with"
	for key, environ := range map[string][]string{
		"data_dir":            {"FEEDBRIDGE_DATA_DIR=" + t.TempDir()},
		"log.format":          {"FEEDBRIDGE_LOG_FORMAT=text"},
		"secret_parameters":   {"FEEDBRIDGE_SECRET_PARAMETERS=shop"},
		"grace":               {"FEEDBRIDGE_GRACE=1s"},
		"memory":              {"FEEDBRIDGE_MEMORY=1000000"},
		"admin":               {"FEEDBRIDGE_ADMIN_HOSTS=feedbridge.example.com"},
		"buses.here.embedded": {"FEEDBRIDGE_BUSES_HERE_EMBEDDED_LISTEN=127.0.0.1:4299"},
		"serve":               {"FEEDBRIDGE_SERVE_FEEDS_ONE_FROM_TOPIC=orders"},
	} {
		_, errs := r.reload(t, reloadableEnviron(dir, feeds, environ...))
		if len(errs) != 1 || errs[0] != key+sentence {
			t.Errorf("%s: got %q", key, errs)
		}
	}
	r.mustReload(t, reloadableEnviron(dir, feeds, "FEEDBRIDGE_LOG_LEVEL=debug"))
}

// Entities that arrive while feeds are restarted again and again are published once each, in
// order.
func TestTopicIsExactThroughReloads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	upstream, url := newUpstream(t, 5)
	environ := func(i int) []string {
		return reloadableEnviron(dir, map[string][]string{"orders": {url, fmt.Sprintf("FRESHNESS=%dm", 10+i)}})
	}
	r := startReloadable(t, environ(0))
	const reloads = 12
	for i := 1; i <= reloads; i++ {
		upstream.SetLen(5 + 20*i)
		done := r.mustReload(t, environ(i))
		wantChanged(t, "feeds", done.Feeds, "", "orders", "")
	}
	r.awaitFeed(t, "orders", entities(5+20*reloads))
	want := readIDs(t, url)
	cfg, err := config.Load(config.Options{Environ: environ(reloads)})
	must.Succeed(t, err)
	r.stop()
	bus, err := daemon.OpenBus(t.Context(), cfg, "here", slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	defer bus.Close()
	log := bus.Log(config.From{Topic: "orders"})
	span, err := log.Span(t.Context())
	must.Succeed(t, err)
	var got []string
	for record, err := range log.Read(t.Context(), span.First, span.End) {
		must.Succeed(t, err)
		got = append(got, idOf(record))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the topic has %d messages, want %d: %v", len(got), len(want), got)
	}
}

func idOf(r feed.Record) string {
	for _, field := range r.Header {
		if field.Name == "Content-ID" {
			return field.Value
		}
	}
	return ""
}

// A missing file halts the feed or the bus that needs it, and nothing else. It is read again.
func TestMissingFileHaltsItsFeedOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, url := newUpstream(t, 12)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	missing := filepath.Join(dir, "ca.pem")
	environ := reloadableEnviron(dir, map[string][]string{
		"good":  {url},
		"bad":   {url, "AUTH_TLS_CA_FILE=" + missing},
		"other": {url, "TO_BUS=far"},
	}, "FEEDBRIDGE_FEEDS_GOOD_TO_BUS=here", "FEEDBRIDGE_FEEDS_BAD_TO_BUS=here", "FEEDBRIDGE_BUSES_FAR_NATS_URL=tls://127.0.0.1:1", "FEEDBRIDGE_BUSES_FAR_NATS_TLS_CA_FILE="+missing,
		"FEEDBRIDGE_SERVE_LISTEN=localhost:0", "FEEDBRIDGE_SERVE_FEEDS_OPEN_FROM_TOPIC=good", "FEEDBRIDGE_SERVE_FEEDS_OPEN_FROM_BUS=here",
		"FEEDBRIDGE_SERVE_FEEDS_CLOSED_FROM_TOPIC=good", "FEEDBRIDGE_SERVE_FEEDS_CLOSED_FROM_BUS=here", "FEEDBRIDGE_SERVE_FEEDS_CLOSED_AUTH_BEARER=file:"+missing,
		"FEEDBRIDGE_SERVE_FEEDS_AWAY_FROM_TOPIC=other", "FEEDBRIDGE_SERVE_FEEDS_AWAY_FROM_BUS=far")
	r := startReloadable(t, environ)
	r.awaitFeed(t, "good", entities(12))
	for name, want := range map[string]string{
		"bad":   "auth.tls.ca_file: open " + missing + ": no such file or directory; create the file, or correct its path; nothing is published until this is fixed",
		"other": "bus far: nats: tls.ca_file: open " + missing + ": no such file or directory; create the file, or correct its path; nothing is published until this is fixed",
	} {
		row := r.awaitFeed(t, name, func(row feedRow) bool { return row.State == "halted" })
		if !strings.HasPrefix(row.Explanation, want) {
			t.Errorf("%s: %s", name, row.Explanation)
		}
	}
	for name, want := range map[string]int{"open": http.StatusOK, "closed": http.StatusServiceUnavailable, "away": http.StatusInternalServerError} {
		if status := get(t, r.at.Feeds+"/feeds/"+name+"/latest"); status != want {
			t.Errorf("the served feed %s answers with %d", name, status)
		}
	}
	if _, body := r.read(t, "/status"); !strings.Contains(body, "readers get 503 until this is fixed: serve.feeds.closed.auth: bearer: open "+missing) {
		t.Errorf("/status does not name the missing file of the served feed: %s", body)
	}

	// The file appears. A reload tries what needs it at once.
	must.Succeed(t, os.WriteFile(missing, certificatePEM(secure), 0o600))
	done := r.mustReload(t, environ)
	wantChanged(t, "feeds", done.Feeds, "", "bad other", "")
	wantChanged(t, "buses", done.Buses, "", "far", "")
	r.awaitFeed(t, "bad", entities(12))
	r.awaitFeed(t, "other", func(row feedRow) bool { return row.State == "retrying" }) // nobody listens there
	if row := r.awaitFeed(t, "good", entities(12)); row.Published != 12 {
		t.Errorf("the feed whose files did not change was restarted: %d published", row.Published)
	}
	if status := get(t, r.at.Feeds+"/feeds/closed/latest"); status != http.StatusUnauthorized {
		t.Errorf("the protected feed answers with %d", status)
	}
}

// certificatePEM returns the certificate of a server.
func certificatePEM(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// A feed whose bus gets another address goes on there.
func TestReloadConnectsToAnotherBus(t *testing.T) {
	t.Parallel()
	_, url := newUpstream(t, 12)
	// The embedded buses of two other daemons.
	var urls []string
	for range 2 {
		_, none := newUpstream(t, 0)
		urls = append(urls, startReloadable(t, reloadableEnviron(t.TempDir(), map[string][]string{"none": {none}})).at.Bus)
	}
	dir := t.TempDir()
	environ := func(url2 string) []string {
		return []string{
			"FEEDBRIDGE_BUSES_MAIN_NATS_URL=" + url2, "FEEDBRIDGE_ADMIN_LISTEN=off", "FEEDBRIDGE_ADMIN_SOCKET=" + filepath.Join(dir, "s"),
			"FEEDBRIDGE_FEEDS_ORDERS_URL=" + url, "FEEDBRIDGE_FEEDS_ORDERS_EVERY=100ms",
		}
	}
	second, connections := countConnections(t, urls[1])
	r := startReloadable(t, environ(urls[0]))
	r.awaitFeed(t, "orders", entities(12))
	done := r.mustReload(t, environ(second))
	wantChanged(t, "buses", done.Buses, "", "main", "")
	wantChanged(t, "feeds", done.Feeds, "", "orders", "")
	if row := r.awaitFeed(t, "orders", entities(12)); row.Published != 12 {
		t.Errorf("%d entities were published on the other bus", row.Published)
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		status, body := r.read(t, "/readyz")
		if status == http.StatusOK {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("/readyz: %s", body)
		}
	}
	if connections.Load() == 0 {
		t.Error("the daemon is not connected to the other bus")
	}
	r.stop()
	for end := time.Now().Add(patience); connections.Load() > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a stop leaves the connection to the other bus open")
		}
	}
}

// countConnections returns the URL of a proxy for a bus, and the number of connections to it.
func countConnections(t *testing.T, bus string) (url string, open *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	open = new(atomic.Int64)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(bus, "nats://"))
			if err != nil {
				_ = client.Close()
				continue
			}
			open.Add(1)
			go func() { _, _ = io.Copy(client, server) }()
			go func() {
				defer open.Add(-1)
				_, _ = io.Copy(server, client)
				_ = errors.Join(client.Close(), server.Close())
			}()
		}
	}()
	return "nats://" + listener.Addr().String(), open
}
