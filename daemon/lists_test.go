package daemon_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// awaitStatus waits until the status of a feed is answered with a status code.
func (r *reloadable) awaitStatus(t *testing.T, name string, want int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if status, _ := r.read(t, "/status/"+name); status == want {
			return
		} else if time.Now().After(end) {
			t.Fatalf("the status of %s is answered with %d, want %d", name, status, want)
		}
	}
}

// Feeds of lists are started and stopped as the lists change. A list that is something else, or has lost its feeds,
// changes nothing.
func TestFeedsFromLists(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, url := newUpstream(t, 12)
	file := filepath.Join(dir, "list.yaml")
	write := func(text string) {
		must.Succeed(t, os.WriteFile(file+".new", []byte(text), 0o600))
		must.Succeed(t, os.Rename(file+".new", file))
	}
	var opml atomic.Pointer[string]
	opml.Store(new("<opml><body><outline name='three' xmlUrl='" + url + "'/></body></opml>"))
	lists := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") != "k" {
			http.Error(w, "no key", http.StatusForbidden)
			return
		}
		fmt.Fprint(w, *opml.Load())
	}))
	t.Cleanup(lists.Close)
	write(fmt.Sprintf("- {name: one, url: \"%s\"}\n- {name: two, url: \"%s?a\"}\n- {name: Bad, url: \"%s?b\"}\n", url, url, url))
	environ := reloadableEnviron(dir, map[string][]string{"own": {url + "?own"}}, "FEEDBRIDGE_FEEDS_FROM_FILES_FILE="+file,
		"FEEDBRIDGE_FEEDS_FROM_WEB_URL="+lists.URL, "FEEDBRIDGE_FEEDS_FROM_WEB_HEADERS=X-Key: k", "FEEDBRIDGE_FEEDS_FROM_WEB_DEFAULTS_EVERY=200ms",
		"FEEDBRIDGE_FEED_DEFAULTS_TO_TOPIC=news.{feed}", "FEEDBRIDGE_FEED_DEFAULTS_TO_STREAM_NAME=news")
	r := startReloadable(t, environ)
	// The lists are read before the start. The URL of the feed three is that of one, which comes first.
	for _, name := range []string{"own", "one", "two"} {
		r.awaitFeed(t, name, entities(12))
	}
	if n := r.log.count("an entry of a list of feeds is not used"); n != 2 {
		t.Errorf("%d entries with errors were logged, want 2: Bad, and a repeated URL", n)
	}

	write(fmt.Sprintf("- {name: two, url: \"%s?a\"}\n", url))
	must.Succeed(t, func() error { _, errs := r.reload(t, environ); return fmtErrors(errs) }())
	r.awaitStatus(t, "one", http.StatusNotFound)
	if row := r.awaitFeed(t, "three", entities(12)); row.Every != "200ms" {
		t.Errorf("the feed of the other list is polled every %s", row.Every)
	}
	// An entry of a list before it that takes the URL of a running feed does not stop it.
	write(fmt.Sprintf("- {name: one, url: \"%s\"}\n- {name: two, url: \"%[1]s?a\"}\n", url))
	must.Succeed(t, func() error { _, errs := r.reload(t, environ); return fmtErrors(errs) }())
	r.awaitLog(t, "feeds_from.files:1: another entry, of this list or another one, has this URL too")
	r.awaitStatus(t, "one", http.StatusNotFound)
	r.awaitStatus(t, "three", http.StatusOK)
	// A list with an error, and one that is empty, change nothing.
	write("<html>")
	must.Succeed(t, func() error { _, errs := r.reload(t, environ); return fmtErrors(errs) }())
	r.awaitLog(t, "this is an HTML page, not a list")
	write("[]")
	must.Succeed(t, func() error { _, errs := r.reload(t, environ); return fmtErrors(errs) }())
	r.awaitLog(t, "a list has lost most of its feeds")
	r.awaitFeed(t, "two", entities(12))
	if row := r.awaitFeed(t, "own", entities(12)); row.Published != 12 {
		t.Errorf("the configured feed was restarted: %d published", row.Published)
	}
	if status, body := r.post(t, "/reload?lists=use"); status != http.StatusOK {
		t.Fatalf("%d: %s", status, body)
	}
	r.awaitStatus(t, "two", http.StatusNotFound)
	// A feed with another URL goes on, and is shown until the list changes again.
	opml.Store(new("<opml><body><outline name='three' xmlUrl='" + url + "?other'/></body></opml>"))
	must.Succeed(t, func() error { _, errs := r.reload(t, environ); return fmtErrors(errs) }())
	r.awaitLog(t, "feeds of a list have another URL than before")
	if _, body := r.read(t, "/status"); !strings.Contains(body, `"moved_feeds": 1`) {
		t.Errorf("/status does not show the feed with another URL: %s", body)
	}
	// A feed that comes back continues with its checkpoint.
	write(fmt.Sprintf("- {name: two, url: \"%s?a\"}\n", url))
	must.Succeed(t, func() error { _, errs := r.reload(t, environ); return fmtErrors(errs) }())
	if row := r.awaitFeed(t, "two", entities(12)); row.Published != 0 {
		t.Errorf("the feed that came back has published %d entities again", row.Published)
	}
}

// A list that is held is used once a person confirms it, with the first command and not if the configuration is wrong.
// The status shows the titles that the list had when it was read last.
func TestAPersonConfirmsALostList(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, url := newUpstream(t, 3)
	file := filepath.Join(dir, "list.opml")
	write := func(outlines string) {
		must.Succeed(t, os.WriteFile(file+".new", []byte("<opml><body>"+outlines+"</body></opml>"), 0o600))
		must.Succeed(t, os.Rename(file+".new", file))
	}
	outline := func(title string) string { return "<outline name='one' title='" + title + "' xmlUrl='" + url + "'/>" }
	write(outline("The first"))
	environ := reloadableEnviron(dir, nil, "FEEDBRIDGE_FEEDS_FROM_L_FILE="+file)
	r := startReloadable(t, environ)
	r.awaitFeed(t, "one", entities(3))
	write("")
	r.mustReload(t, environ)
	r.awaitLog(t, "a list has lost most of its feeds")
	r.next.Store(&config.Options{Environ: append(slices.Clone(environ), "FEEDBRIDGE_FEEDS_MORE_URL=ftp://x/")})
	if status, body := r.post(t, "/reload?lists=use"); status != http.StatusUnprocessableEntity {
		t.Fatalf("a wrong configuration: %d: %s", status, body)
	}
	r.next.Store(&config.Options{Environ: environ})
	if held := r.mustReload(t, environ).Held; len(held) != 1 || held[0].Lost != 1 {
		t.Errorf("after a wrong configuration: held are %+v", held)
	}
	r.awaitStatus(t, "one", http.StatusOK)
	write(outline("Another one"))
	r.mustReload(t, environ)
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, body := r.read(t, "/status/one"); strings.Contains(body, `"title": "Another one"`) {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the title is not shown: %s", body)
		}
	}
	write("")
	var done daemon.Reloaded
	_, body := r.post(t, "/reload?lists=use")
	if must.Succeed(t, json.Unmarshal([]byte(body), &done)); len(done.Held) > 0 || !slices.Equal(done.Feeds.Removed, []string{"one"}) {
		t.Errorf("the list that was just written is not used: %s", body)
	}
}

func fmtErrors(errs []string) error {
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(errs, "\n"))
}

// awaitLog waits until a line of the log has a text.
func (r *reloadable) awaitLog(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(patience); r.log.count(text) == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no line of the log has %q", text)
		}
	}
}

// The members of a fleet agree on one version of a list: a topic never gets the entities of two URLs, and a copy that
// has another version than most is shown.
func TestAFleetAgreesOnAList(t *testing.T) {
	t.Parallel()
	bus := startBus(t)
	_, url := newUpstream(t, 1)
	before := fmt.Sprintf("- {name: one, url: '%s?1'}\n- {name: two, url: '%[1]s?two'}\n- {name: gone, url: '%[1]s?gone'}\n", url)
	after := fmt.Sprintf("- {name: one, url: '%s?2'}\n- {name: two, url: '%[1]s?two'}\n- {name: new, url: '%[1]s?new'}\n", url)
	var copies []*reloadable
	var files []string
	var environs [][]string
	for range 3 {
		dir := t.TempDir()
		files = append(files, filepath.Join(dir, "list.yaml"))
		must.Succeed(t, os.WriteFile(files[len(files)-1], []byte(before), 0o600))
		environs = append(environs, append(copyEnviron(bus, dir, url, 0, 0), "FEEDBRIDGE_FEEDS_FROM_BLOGS_FILE="+files[len(files)-1]))
		copies = append(copies, startReloadable(t, environs[len(environs)-1]))
	}
	// await waits until exactly these feeds are run, by one copy each, and these copies are shown to differ.
	await := func(when string, feeds map[string]string, differ ...int) {
		t.Helper()
		var problem string
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			runs, members := map[string]string{}, make([]string, len(copies))
			var shown []int
			problem = ""
			for n, c := range copies {
				var s status.Process
				_, body := c.read(t, "/status")
				must.Succeed(t, json.Unmarshal([]byte(body), &s))
				for _, f := range s.Feeds {
					if f.State != "elsewhere" && f.Owner == "" {
						if runs[f.Feed] != "" {
							problem += f.Feed + " is run twice; "
						}
						runs[f.Feed] = f.URL[len(url):]
					}
				}
				for _, m := range s.Fleet.Members {
					members[n] += fmt.Sprint(m.OtherLists)
				}
				if s.Lists[0].FleetDigest != "" {
					shown = append(shown, n)
				}
			}
			for _, text := range members {
				if strings.Count(text, "blogs") != len(differ) {
					problem += "the members are shown as " + text + "; "
				}
			}
			if !maps.Equal(runs, feeds) || !slices.Equal(shown, differ) {
				problem += fmt.Sprintf("%v are run, and %v differ; ", runs, shown)
			}
			if problem == "" {
				return
			}
		}
		t.Fatalf("%s: %s", when, problem)
	}
	read := func(n int, text string) {
		must.Succeed(t, os.WriteFile(files[n], []byte(text), 0o600))
		must.Succeed(t, func() error { _, errs := copies[n].reload(t, environs[n]); return fmtErrors(errs) }())
	}
	old, now := map[string]string{"one": "?1", "two": "?two", "gone": "?gone"}, map[string]string{"one": "?2", "two": "?two", "new": "?new"}
	await("all have the same", old)
	read(0, after)
	await("one copy has a newer version", old, 0)
	read(1, after)
	await("two copies have it", now, 2)
	if _, text := copies[2].read(t, "/metrics"); !strings.Contains(text, `feedbridge_list_differs{list="blogs"} 1`) {
		t.Error("no metric shows the copy with the old version")
	}
	// It cannot read the list any more: that changes nothing, and is shown.
	must.Succeed(t, os.Remove(files[0]))
	read(2, "<html>")
	copies[2].awaitLog(t, "this is an HTML page, not a list")
	await("one cannot read it", now, 2)
	read(2, after)
	await("all have the newer version", now)
}

// A copy that has never read a list runs its other feeds, is not ready, and tries again sooner than at the list's interval.
func TestAListThatCannotBeReadAtTheStart(t *testing.T) {
	t.Parallel()
	_, url := newUpstream(t, 3)
	var up atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		fmt.Fprintf(w, "- {name: listed, url: '%s?listed'}\n", url)
	}))
	t.Cleanup(server.Close)
	r := startReloadable(t, reloadableEnviron(t.TempDir(), map[string][]string{"own": {url}}, "FEEDBRIDGE_FEEDS_FROM_WEB_URL="+server.URL+"/?token=geheim", "FEEDBRIDGE_FEEDS_FROM_WEB_EVERY=1h"))
	r.awaitFeed(t, "own", entities(3))
	code, body := r.read(t, "/readyz")
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "list web: has not been read yet, so its feeds are not run: ") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	_, metrics := r.read(t, "/metrics")
	if !strings.Contains(metrics, `feedbridge_list_up{list="web"} 0`) || strings.Contains(metrics, "list_last_success") {
		t.Error("the metrics do not show that the list was never read")
	}
	if _, body := r.read(t, "/status"); strings.Contains(body, "geheim") {
		t.Errorf("/status has a secret: %s", body)
	}
	up.Store(true)
	r.awaitFeed(t, "listed", entities(3))
	if code, body := r.read(t, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz: %d %s", code, body)
	}
}
