package daemon_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
	environ := reloadableEnviron(dir, map[string][]string{"own": {url}}, "FEEDBRIDGE_FEEDS_FROM_FILES_FILE="+file,
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
	// A feed that comes back continues with its checkpoint.
	write(fmt.Sprintf("- {name: two, url: \"%s?a\"}\n", url))
	must.Succeed(t, func() error { _, errs := r.reload(t, environ); return fmtErrors(errs) }())
	if row := r.awaitFeed(t, "two", entities(12)); row.Published != 0 {
		t.Errorf("the feed that came back has published %d entities again", row.Published)
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
