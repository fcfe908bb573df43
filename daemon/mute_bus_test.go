package daemon_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// muteBus returns the variables of a NATS bus that accepts connections and says nothing. The first attempt
// to connect to it lasts for an hour.
func muteBus(t *testing.T, name string) []string {
	t.Helper()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { mute.Close() })
	prefix := "FEEDBRIDGE_BUSES_" + strings.ToUpper(name) + "_NATS_"
	return []string{prefix + "URL=nats://" + mute.Addr().String(), prefix + "TIMEOUT=1h"}
}

// Nothing but the feeds of a mute bus waits for it: not the start, a reload, the status, nor the stop.
func TestAMuteBusDelaysOnlyItsOwnFeeds(t *testing.T) {
	t.Parallel()
	_, url := newUpstream(t, 12)
	dir := t.TempDir()
	on := func(bus string) []string { return []string{url, "TO_BUS=" + bus} }
	published := func(row feedRow) bool { return row.Published == 12 }
	environ := func(feeds map[string][]string, mute ...string) []string {
		return reloadableEnviron(dir, feeds, append(mute, "FEEDBRIDGE_SERVE_LISTEN=localhost:0",
			"FEEDBRIDGE_SERVE_FEEDS_COPY_FROM_TOPIC=good", "FEEDBRIDGE_SERVE_FEEDS_COPY_FROM_BUS=here")...)
	}
	served := func(bus string) []string {
		prefix := "FEEDBRIDGE_SERVE_FEEDS_" + strings.ToUpper(bus) + "_FROM_"
		return append(muteBus(t, bus), prefix+"TOPIC=orders", prefix+"BUS="+bus)
	}
	silent := served("silent")
	r := startReloadable(t, environ(map[string][]string{"good": on("here"), "stuck": on("silent")}, silent...))
	r.awaitFeed(t, "good", published)
	if got := readIDs(t, r.at.Feeds+"/feeds/copy/latest"); len(got) != 12 {
		t.Errorf("%d entities of the other bus are served", len(got))
	}
	// A reader that goes away.
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.at.Feeds+"/feeds/silent/latest", nil)
	must.Succeed(t, err)
	reader := make(chan struct{})
	go func() {
		defer close(reader)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			t.Errorf("a topic of a mute bus is served: %s", resp.Status)
		}
	}()
	if _, body := r.read(t, "/readyz"); !strings.Contains(body, `"bus silent: no answer within 2s"`) {
		t.Errorf("readiness does not name the bus: %s", body)
	}
	if _, body := r.read(t, "/status"); !strings.Contains(body, "readers get 503, and are served again when the bus answers: ") {
		t.Errorf("the status does not say that the bus does not answer: %s", body)
	}
	cancel()
	<-reader

	// A reload adds such a bus.
	quiet := served("quiet")
	r.mustReload(t, environ(map[string][]string{"good": on("here"), "next": on("here"), "stuck": on("silent"), "late": on("quiet")}, append(quiet, silent...)...))
	r.awaitFeed(t, "next", published)

	// A reload removes one while it is being connected.
	if changed := r.mustReload(t, environ(map[string][]string{"good": on("here"), "late": on("quiet")}, quiet...)); len(changed.LeftBehind) > 0 {
		t.Errorf("%v were left behind", changed.LeftBehind)
	}
	r.stop()
	if r.log.count("left behind") > 0 || r.log.count("msg=stopped") != 1 {
		t.Error("the feed of a mute bus does not stop")
	}
}

// A copy whose fleet is on a mute bus starts and stops.
func TestAMuteBusOfTheFleetDelaysNothingElse(t *testing.T) {
	t.Parallel()
	_, url := newUpstream(t, 12)
	dir := t.TempDir()
	r := startReloadable(t, reloadableEnviron(dir, map[string][]string{"orders": {url, "TO_BUS=here"}},
		append(muteBus(t, "silent"), "FEEDBRIDGE_FLEET_NAME=shop", "FEEDBRIDGE_FLEET_BUS=silent")...))
	if _, body := r.read(t, "/readyz"); !strings.Contains(body, `"bus silent: no answer within 2s"`) {
		t.Errorf("readiness does not name the bus: %s", body)
	}
	r.stop()
}

// A process that is stopped before it has started ends without an error.
func TestRunIsStoppedBeforeItHasStarted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must.Succeed(t, daemon.Run(ctx, load(t, t.TempDir(), "http://127.0.0.1:1/"), daemon.Options{Log: slog.New(slog.DiscardHandler)}))
}
