package daemon_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// TestBadListAnswers reads lists that are too large, or something else. No more than the limit is read of them.
func TestBadListAnswers(t *testing.T) {
	t.Parallel()
	const size = 50 << 20
	var sent atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/page":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<!DOCTYPE html><html><head><meta charset=utf-8><body>Log in")
			return
		case "/length":
			w.Header().Set("Content-Length", fmt.Sprint(size))
		}
		for n := 0; n < size; n += 1 << 20 {
			written, err := w.Write(make([]byte, 1<<20))
			if sent.Add(int64(written)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "list.opml")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	must.Succeed(t, os.Truncate(file, 50<<30)) // without blocks
	const tooLarge = "the list has more than 16777216 bytes; divide it into several"
	const pageTooLarge = "the page has more than 16777216 bytes, and no larger one is read"
	for _, test := range []struct {
		name string
		list config.List
		want string
	}{
		{"a file", config.List{File: file}, tooLarge},
		{"a URL", config.List{URL: server.URL + "/"}, pageTooLarge},
		{"a URL with the length", config.List{URL: server.URL + "/length"}, pageTooLarge},
		{"an HTML page", config.List{URL: server.URL + "/page"}, "this is an HTML page, not a list; want the URL of its OPML document"},
	} {
		entries, err := daemon.ReadList(t.Context(), test.list, daemon.Options{Version: "v0"})
		if err == nil || !strings.Contains(err.Error(), test.want) || len(entries) > 0 {
			t.Errorf("%s: %d entries, %v, want %s", test.name, len(entries), err, test.want)
		}
	}
	if n := sent.Load(); n > 2*size*3/4 {
		t.Errorf("the server could send %d bytes of %d", n, 2*size)
	}
}

// A list that has lost most of its feeds is held by each member of a fleet, which go on with all feeds, also when
// another one joins, which takes the list as it is. The list is used when one member was asked to.
func TestAFleetHoldsAList(t *testing.T) {
	t.Parallel()
	bus := startBus(t)
	_, url := newUpstream(t, 1)
	text := func(feeds int) (all string) {
		for n := range feeds {
			all += fmt.Sprintf("- {name: f%d, url: '%s?%d'}\n", n, url, n)
		}
		return all
	}
	file := filepath.Join(t.TempDir(), "list.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(text(20)), 0o600))
	var copies []*reloadable
	var environs [][]string
	start := func() *reloadable {
		environs = append(environs, append(copyEnviron(bus, t.TempDir(), url, 0, 0), "FEEDBRIDGE_FEEDS_FROM_BLOGS_FILE="+file))
		return startReloadable(t, environs[len(environs)-1])
	}
	for range 3 {
		copies = append(copies, start())
	}
	await := func(when string, feeds, held int) {
		t.Helper()
		var running, holding int
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			running, holding = 0, 0
			for _, c := range copies {
				var s status.Process
				_, body := c.read(t, "/status")
				must.Succeed(t, json.Unmarshal([]byte(body), &s))
				for _, f := range s.Feeds {
					if f.State != "elsewhere" && f.Owner == "" {
						running++
					}
				}
				if s.Lists[0].Held != nil {
					holding++
				}
			}
			if running == feeds && holding == held {
				return
			}
		}
		t.Fatalf("%s: %d feeds are run and %d members hold the list, want %d and %d", when, running, holding, feeds, held)
	}
	await("at the start", 20, 0)
	must.Succeed(t, os.WriteFile(file, []byte(text(3)), 0o600))
	for n, c := range copies {
		must.Succeed(t, func() error { _, errs := c.reload(t, environs[n]); return fmtErrors(errs) }())
	}
	await("the list has shrunk", 20, 3)
	copies = append(copies, start())
	await("a member has joined that knows only the small list", 20, 3)
	// Only one of the members that hold it is left. The other one shows who holds its version, and can confirm it.
	copies[1].stop()
	copies[2].stop()
	copies = []*reloadable{copies[0], copies[3]}
	await("one member holds it", 20, 1)
	var s status.Process
	_, body := copies[1].read(t, "/status")
	must.Succeed(t, json.Unmarshal([]byte(body), &s))
	if text := s.Lists[0].Explanation(); !strings.Contains(text, "is another version than the members of the fleet agree on") || !strings.Contains(text, "is held by ") {
		t.Errorf("the list %s", text)
	}
	if done := copies[0].mustReload(t, environs[0]); len(done.Held) != 1 || done.Held[0].List != "blogs" || done.Held[0].Lost != 17 {
		t.Errorf("a reload reports %+v", done.Held)
	}
	if status, body := copies[1].post(t, "/reload?lists=use"); status != http.StatusOK || !strings.Contains(body, `"confirmed_lists": {`) {
		t.Fatalf("%d: %s", status, body)
	}
	await("the other member has confirmed it", 3, 0)
	// What one member confirms the others use.
	copies = append(copies, start())
	must.Succeed(t, os.WriteFile(file, []byte("[]"), 0o600))
	await("the list is empty", 3, 3)
	if status, body := copies[2].post(t, "/reload?lists=use"); status != http.StatusOK {
		t.Fatalf("%d: %s", status, body)
	}
	await("one member has confirmed it", 0, 0)
}
