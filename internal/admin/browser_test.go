//go:build integration

package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// These tests show the status pages in a headless Chromium. With FEEDBRIDGE_REQUIRE_CHROMIUM
// they fail where they would be skipped. FEEDBRIDGE_SCREENSHOTS is a directory in which they
// keep pictures.

// findChromium returns the path of a Chromium.
func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "Chromium is missing: there is no chromium, chromium-browser or google-chrome in PATH; install it, on Debian with 'apt-get install chromium'"
	if os.Getenv("FEEDBRIDGE_REQUIRE_CHROMIUM") != "" {
		t.Fatal(missing + ", or unset FEEDBRIDGE_REQUIRE_CHROMIUM to skip the tests of the status pages")
	}
	t.Skip(missing)
	return ""
}

// browser is a tab of a Chromium that shows the pages of a server.
type browser struct {
	t    *testing.T
	ctx  context.Context
	base string

	mu     sync.Mutex
	faults []string // exceptions and messages of the console, such as of the security policy
}

// openBrowser serves s and returns a browser for it. It fails the test if a page has reported
// an error by its end, unless the test has taken it.
func openBrowser(t *testing.T, s *admin.Server) *browser {
	t.Helper()
	path := findChromium(t)
	b := &browser{t: t}
	l, err := admin.Listen("127.0.0.1:0")
	must.Succeed(t, err)
	b.base = "http://" + l.Addr().String()
	serving, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(serving, l) }()

	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.WindowSize(1400, 1180), chromedp.Flag("disable-dev-shm-usage", true))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it does not start as root otherwise
	}
	allocated, free := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, quit := chromedp.NewContext(allocated)
	b.ctx = ctx
	t.Cleanup(func() {
		quit()
		free()
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		for _, fault := range b.takeFaults() {
			t.Errorf("the page has reported: %s", fault)
		}
	})
	b.run()
	messages := chromedp.Console(b.ctx)
	go func() {
		for message, err := range messages {
			if err != nil {
				return
			}
			b.mu.Lock()
			b.faults = append(b.faults, message.Text)
			b.mu.Unlock()
		}
	}()
	return b
}

func (b *browser) takeFaults() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	faults := b.faults
	b.faults = nil
	return faults
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// result returns the value of an action.
func result[T any](b *browser, a chromedp.Action[T]) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, a)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// call sends a command to the browser.
func call[P, R any](b *browser, cmd cdp.Command[P, R], params P) R {
	b.t.Helper()
	value, err := chromedp.Call(b.ctx, cmd, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// open shows a page.
func (b *browser) open(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.base+path), chromedp.WaitReady(chromedp.CSS("main")))
}

// eval returns the value of an expression in the page, as JSON.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	value, err := json.Marshal(result(b, chromedp.Evaluate[any](expression)))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(value)
}

// await waits until an expression in the page is true. The page may change to another one in
// between.
func (b *browser) await(expression string) {
	b.t.Helper()
	for range 1200 {
		if is, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+expression+")")); err == nil && is {
			return
		}
		b.run(chromedp.Sleep(50 * time.Millisecond))
	}
	b.t.Fatalf("%s never became true; the page shows:\n%s", expression, b.text("body"))
}

// text returns what a person sees of the elements of a selector, one line each.
func (b *browser) text(selector string) string {
	b.t.Helper()
	return result(b, chromedp.Evaluate[string](fmt.Sprintf(`[...document.querySelectorAll(%q)].map(e => e.innerText.replace(/\s+/g, " ").trim()).join("\n")`, selector)))
}

func (b *browser) wantText(selector, want string) {
	b.t.Helper()
	if got := b.text(selector); got != want {
		b.t.Errorf("%s shows\n%s\nwant\n%s", selector, got, want)
	}
}

// keep keeps a picture of the page if that is asked for.
func (b *browser) keep(name string) {
	b.t.Helper()
	dir := os.Getenv("FEEDBRIDGE_SCREENSHOTS")
	if dir == "" {
		return
	}
	picture := result(b, chromedp.CaptureScreenshot())
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644)); err != nil {
		b.t.Fatal(err)
	}
}

// setScheme sets the colour scheme that the page is asked for.
func (b *browser) setScheme(scheme string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// addNamed adds a feed of a shop.
func addNamed(s *admin.Server, name string) *admin.Feed {
	return s.AddFeed(admin.FeedOptions{
		Name: name, URL: "https://shop.example.com/" + name + "/latest", Format: "datareplication", Bus: "main", Topic: name + ".v1",
		Every: 10 * time.Second, Freshness: time.Minute,
		Describe: func(cp checkpoint.Checkpoint) (d admin.Description) {
			if len(cp.Cursor) == 0 {
				return d
			}
			d.Format = "datareplication"
			d.Cursor = map[string]any{"page": string(cp.Cursor), "index": 7, "last_content_id": "<" + name + "-7@shop>", "last_modified": 1767225600}
			if strings.Contains(string(cp.Cursor), "archive") {
				d.Search = "the first entity since 2020-01-01T00:00:00Z; 4100 pages are searched, back to 2023-06-01T10:00:00Z"
			}
			return d
		},
	})
}

// shop has a feed in each state, with what a feed may have. It began at a time, and takes changes with a token if there is
// one.
func shop(began time.Time, token func() (credential.Secret, error)) *admin.Server {
	s := admin.New(admin.Options{
		Version: "v1.2.3", Started: began, Writer: own, Token: token, Log: slog.New(slog.DiscardHandler),
		Buses: []admin.Bus{
			{Name: "main", Kind: "nats", Check: func(context.Context) error { return nil }},
			{Name: "lake", Kind: "kafka", Check: func(context.Context) error { return errors.New("no broker answers at kafka:9092") }},
		},
	})
	s.AddRead("/feeds/{feed}/newest", func(context.Context, *http.Request) (any, error) {
		return map[string]any{"messages": []any{}}, nil
	})
	point := func(name string, count uint64, writer string) checkpoint.Checkpoint {
		return checkpoint.Checkpoint{Feed: name, Source: "datareplication", Cursor: feed.Cursor("https://shop.example.com/" + name + "/1207"), Count: count, At: time.Now().Add(-5 * time.Second), Writer: writer}
	}
	publish := func(name string, n int, more bool) *admin.Feed {
		f := addNamed(s, name)
		enter(f, bridge.Reading, point(name, 18200, own), 0, nil)
		b := feed.Batch{Cursor: point(name, 0, "").Cursor, More: more, Newest: time.Now().Add(-time.Minute)}
		for i := range n {
			b.Entities = append(b.Entities, feed.Entity{
				ID: fmt.Sprintf("<%s-%d@shop.example.com>", name, 1000+i), Op: []feed.Operation{feed.Put, feed.Put, feed.Delete}[i%3], Body: []byte("{}"),
				Modified: time.Now().Add(-time.Hour + time.Duration(i)*time.Second), Page: "https://shop.example.com/" + name + "/1207",
			})
		}
		b.Violations = []feed.Violation{{Kind: "time_runs_back", Page: b.Entities[0].Page, Detail: "entity <7@shop> is of 2026-01-01T00:00:00Z, and <6@shop> before it of 2026-01-01T00:00:09Z"}}
		f.Polled(b, nil, 40*time.Millisecond)
		f.Processed(b, 3*time.Millisecond)
		return f
	}
	addNamed(s, "addresses")
	publish("articles", 350, true)
	enter(publish("customers", 42, false), bridge.Idle, point("customers", 18242, own), time.Minute, nil)
	enter(addNamed(s, "deliveries"), bridge.Standby, point("deliveries", 905, "host-12"), 20*time.Second, checkpoint.ErrConflict)
	invoices := publish("invoices", 3, false)
	invoices.PretendDay()
	for range 4 {
		enter(invoices, bridge.Retrying, point("invoices", 18203, own), time.Minute, errors.New("GET https://shop.example.com/invoices/latest: 503 Service Unavailable"))
	}
	halted := feed.Permanent(errors.New("the topic has messages but no checkpoint; if they are of this feed, set one with 'feedbridge checkpoint set orders', or give the feed another topic"))
	enter(addNamed(s, "orders"), bridge.Halted, checkpoint.Checkpoint{}, 5*time.Minute, halted)
	search := checkpoint.Checkpoint{Feed: "payments", Source: "datareplication", Cursor: feed.Cursor("https://shop.example.com/payments/archive/311"), At: time.Now().Add(-2 * time.Second), Writer: own}
	enter(addNamed(s, "payments"), bridge.Reading, search, 0, nil)
	prices := point("prices", 12, own)
	prices.Paused = time.Now().Add(-time.Hour)
	enter(addNamed(s, "prices"), bridge.Paused, prices, 0, nil)
	enter(addNamed(s, "stock"), bridge.Stopped, point("stock", 1200300, own), 0, nil)
	addServed(s, "public-orders", admin.ServedTopic{Span: feed.Span{First: 3, End: 1300}, Newest: time.Now().Add(-12 * time.Second), Snapshot: "s1", Created: time.Now().Add(-time.Hour)}, nil)
	addServed(s, "public-stock", admin.ServedTopic{}, errors.New("no NATS server answers"))
	return s
}

func TestBrowserShowsEachState(t *testing.T) {
	s := shop(time.Now(), nil)
	b := openBrowser(t, s)
	b.open("/")
	b.await(`document.getElementById("live-text").textContent === "Live"`)
	b.wantText("tbody tr > th a", "orders\ninvoices\naddresses\narticles\npayments\nprices\ndeliveries\ncustomers\nstock")
	b.wantText("nav.states a", "all 9\n■ halted 1\n▲ retrying 1\n◌ starting 1\n▶ reading 2\n‖ paused 1\n◐ standby 1\n● idle 1\n□ stopped 1")
	b.wantText("ul.buses li", "■ lake (kafka) fails\n● main (nats) answers")
	for name, want := range map[string]struct{ state, sentence, position, lag, recent string }{
		"addresses":  {"◌ starting", "starting: waiting for bus main to return the checkpoint of topic addresses.v1", "unknown", "unknown", "0"},
		"articles":   {"▶ reading", "catching up: 18550 entities are published", "18\u202f550 https://shop.example.com/articles/1207, entity 7", "53m", "350"},
		"customers":  {"● idle", "caught up: 18242 entities are published", "18\u202f242 https://shop.example.com/customers/1207, entity 7", "none", "42"},
		"deliveries": {"◐ standby", "standing by: host-12 publishes this feed", "905 https://shop.example.com/deliveries/1207, entity 7", "unknown", "0"},
		"invoices":   {"▲ retrying", "after attempt 4: GET https://shop.example.com/invoices/latest: 503 Service Unavailable", "18\u202f203 https://shop.example.com/invoices/1207, entity 7", "unknown", "3"},
		"orders":     {"■ halted", "set one with 'feedbridge checkpoint set orders', or give the feed another topic; nothing is published until this is fixed", "unknown", "unknown", "0"},
		"payments":   {"▶ reading", "searching for the first entity since 2020-01-01T00:00:00Z; 4100 pages are searched, back to 2023-06-01T10:00:00Z", "0 https://shop.example.com/payments/archive/311, entity 7", "unknown", "0"},
		"prices":     {"‖ paused", "continue with 'feedbridge resume prices'", "12 https://shop.example.com/prices/1207, entity 7", "unknown", "0"},
		"stock":      {"□ stopped", "stopped: this copy is shutting down", "1\u202f200\u202f300 https://shop.example.com/stock/1207, entity 7", "unknown", "0"},
	} {
		row := "#feed-" + name + " "
		if got := b.text(row + ".sentence"); !strings.Contains(got, want.sentence) {
			t.Errorf("%s: the sentence is %q, want %q in it", name, got, want.sentence)
		}
		b.wantText(row+"td .state", want.state)
		cells := strings.Split(b.text(row+".number"), "\n")
		got := []string{cells[0], cells[1], cells[2]}
		position := strings.ReplaceAll(want.position, "\u202f", " ")
		lag := strings.HasPrefix(got[1], want.lag)
		if got[0] != position || !lag || got[2] != want.recent {
			t.Errorf("%s: position, lag and recent are %q, want %q, %q and %q", name, got, position, want.lag, want.recent)
		}
		if next := cells[4]; (next == "none") != slices.Contains([]string{"addresses", "prices", "stock"}, name) || slices.Contains([]string{"customers", "orders", "invoices", "deliveries"}, name) != strings.HasPrefix(next, "in ") {
			t.Errorf("%s: the next poll is %q", name, next)
		}
	}
	b.checkReadability("light")
	b.setScheme("dark")
	b.checkReadability("dark")
	b.setScheme("light")

	b.run(chromedp.Click(chromedp.CSS(".needs .copy"), chromedp.NodeVisible))
	b.await(`document.querySelector(".needs .copy").textContent === "Copied" && getSelection().toString() === "feedbridge poll orders"`)
	b.eval(`document.querySelector(".needs time").dispatchEvent(new MouseEvent("mouseover", { bubbles: true }))`)
	b.await(`document.querySelector(".needs time").title.includes(String(new Date().getFullYear()))`)

	// By the links and the form, as a person does it.
	b.run(chromedp.Click(chromedp.CSS(`nav.states a[href="/?state=retrying"]`), chromedp.NodeVisible))
	b.await(`location.search === "?state=retrying" && document.querySelectorAll("tbody tr").length === 1`)
	b.wantText("#found", "1 to 1 of 1 feeds, of 9 in all.")
	b.open("/")
	b.run(chromedp.SendKeys(chromedp.CSS("#q"), "LIVERIES.v1\r"))
	b.await(`location.search.includes("q=LIVERIES") && document.querySelectorAll("tbody tr").length === 1`)
	b.wantText("tbody tr > th a", "deliveries")
	b.open("/")
	b.run(chromedp.Click(chromedp.CSS(`thead a[href="/?sort=-entities"]`), chromedp.NodeVisible))
	b.await(`document.querySelector('th[aria-sort="descending"]')?.innerText.startsWith("Position")`)
	if got := b.text("tbody tr > th a"); !strings.HasPrefix(got, "stock\narticles\ncustomers\ninvoices\ndeliveries\nprices\n") {
		t.Errorf("by position the feeds are %q", got)
	}

	b.run(chromedp.Click(chromedp.CSS("#feed-invoices th a"), chromedp.NodeVisible))
	b.await(`document.querySelector("h1")?.innerText === "invoices"`)
	var row status.Feed
	_, body := get(t, s, "/status/invoices")
	must.Succeed(t, json.Unmarshal([]byte(body), &row))
	all := b.text("main")
	for _, want := range []string{
		"▲ retrying", "503 Service Unavailable", "https://shop.example.com/invoices/latest", "invoices.v1 on bus main", "time_runs_back",
		"entity <7@shop> is of 2026-01-01T00:00:00Z, and <6@shop> before it", "<invoices-1002@shop.example.com>", "DELETE", "18 203", "last content id", "<invoices-7@shop>", "last modified 2026-01-01T00:00:00Z",
		row.RecentEntities[0].Modified.Format(time.RFC3339), "https://shop.example.com/invoices/1207", own,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("the page of invoices has no %q:\n%s", want, all)
		}
	}
	if rows := b.text("section[aria-labelledby=errors-heading] tbody tr"); !strings.Contains(rows, " 4 ") || strings.Contains(rows, "\n") {
		t.Errorf("the errors are %q, want one that occurred 4 times", rows)
	}
	b.checkReadability("light")

	b.open("/served")
	b.wantText("tbody tr > th", "public-orders /feeds/public-orders/latest\npublic-stock /feeds/public-stock/latest")
	b.wantText("tbody .state", "● served\n■ not served")
	b.checkReadability("light")
	b.keep("status-page-served")
	b.open("/feed/none")
	b.wantText("main", "All feeds none There is no feed of this name.")
	b.takeFaults() // the answer is 404, which the console reports
}

// The pictures of the documentation are of a process with a token, whose pages have buttons.
func TestBrowserPictures(t *testing.T) {
	b := openBrowser(t, shop(time.Now().Add(-100*time.Hour), constantToken("right", nil)))
	for suffix, scheme := range map[string]string{"": "light", "-dark": "dark"} {
		b.setScheme(scheme)
		for name, path := range map[string]string{"status-page": "/", "status-page-feed": "/feed/invoices"} {
			b.open(path)
			b.await(`document.getElementById("live-text").textContent === "Live" && document.querySelector(".act").checkVisibility()`)
			b.checkReadability(scheme)
			b.keep(name + suffix)
		}
	}
}

// checkReadability checks the contrast of all text, and what a screen reader needs of the page.
func (b *browser) checkReadability(scheme string) {
	b.t.Helper()
	poor := result(b, chromedp.Evaluate[[]string](`(() => {
		const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
		const rgba = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
		const light = (c) => { const [r, g, b] = [...c].slice(0, 3).map((v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
		const poor = [];
		for (const e of document.body.querySelectorAll("*")) {
			if (![...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim()) || !e.checkVisibility()) continue;
			let behind = e;
			while (behind && rgba(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
			const a = light(rgba(getComputedStyle(e).color)), z = light(rgba(getComputedStyle(behind || document.body).backgroundColor));
			const ratio = (Math.max(a, z) + .05) / (Math.min(a, z) + .05);
			if (ratio < 4.5) poor.push(e.outerHTML.slice(0, 100) + " " + ratio.toFixed(2));
		}
		for (const th of document.querySelectorAll("th")) if (!th.hasAttribute("scope")) poor.push("a header without scope: " + th.outerHTML);
		for (const table of document.querySelectorAll("table")) if (!table.closest("[aria-labelledby]")) poor.push("a table without a name");
		for (const input of document.querySelectorAll("input:not([type=hidden])")) if (!input.labels.length) poor.push("an input without a label");
		for (const s of document.querySelectorAll(".state")) if (s.checkVisibility() && s.innerText.trim().split(/\s+/).length < 2) poor.push("a state without words: " + s.outerHTML);
		if (document.querySelectorAll("main").length !== 1 || document.querySelectorAll("h1").length !== 1 || !document.documentElement.lang) poor.push("no single main, h1 or lang");
		return poor;
	})()`))
	for _, p := range poor {
		b.t.Errorf("%s scheme, %s: %s", scheme, b.eval("location.pathname"), p)
	}
	nodes := call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes
	roles := map[string]int{}
	for _, n := range nodes {
		if n.Role != nil {
			var role, name string
			_ = json.Unmarshal(n.Role.Value, &role)
			if n.Name != nil {
				_ = json.Unmarshal(n.Name.Value, &name)
			}
			roles[role]++
			if (role == "link" || role == "button" || role == "navigation" || role == "region" || role == "searchbox") && strings.TrimSpace(name) == "" && !n.Ignored {
				b.t.Errorf("a %s has no name for screen readers", role)
			}
		}
	}
	tables := b.eval(`document.querySelector("table") !== null`) == "true"
	for _, role := range []string{"banner", "main", "contentinfo", "navigation", "heading", "table", "columnheader", "rowheader"} {
		if roles[role] == 0 && (tables || !slices.Contains([]string{"table", "columnheader", "rowheader"}, role)) {
			b.t.Errorf("%s: screen readers find no %s: %v", b.eval("location.pathname"), role, roles)
		}
	}
}

// No page is wider than the screen, with any number of feeds and whatever their texts contain.
func TestBrowserAtEachSize(t *testing.T) {
	for _, feeds := range []int{0, 1, 30, 2000} {
		s := newServer(admin.Bus{Name: "main", Kind: "nats", Check: func(context.Context) error { return nil }})
		for i := range feeds {
			long := strings.Repeat("W", 30*(i%4))
			f := s.AddFeed(admin.FeedOptions{
				Name: fmt.Sprintf("feed-%d%s", i, long),
				Title: func() string {
					return []string{"", "The Journal of <b>Tests</b> & Trials", "\u202eexe.gpj", strings.Repeat("x", 1000)}[i%4]
				},
				URL: "https://shop.example.com/" + long, Bus: "main", Topic: "t" + long + ".v1", Every: time.Second, Freshness: time.Minute,
				Describe: func(checkpoint.Checkpoint) admin.Description {
					return admin.Description{Format: "atom", Cursor: map[string]any{"page": "https://shop.example.com/" + long}}
				},
			})
			batch := feed.Batch{Entities: []feed.Entity{{ID: "<1>" + long, Op: feed.Put, Page: "https://shop.example.com/" + strings.Repeat(long, 3)}}}
			f.Processed(batch, 0)
			if i%3 == 1 {
				enter(f, bridge.Halted, checkpoint.Checkpoint{}, time.Minute, errors.New("the topic "+strings.Repeat(long, 5)+" is gone; create it again"))
			}
			if i == 0 {
				f.PretendDay()
			}
		}
		b := openBrowser(t, s)
		for _, width := range []int64{1280, 700, 390, 320} {
			b.run(chromedp.EmulateViewport(width, 900))
			for _, scheme := range []string{"light", "dark"} {
				b.setScheme(scheme)
				for path, name := range map[string]string{"/": "", "/feed/feed-0": "-feed", "/served": "-served"} {
					if feeds == 0 && name == "-feed" {
						continue
					}
					b.open(path)
					wide := b.eval(`[...document.querySelectorAll("body *")].filter((e) => {
						const box = e.getBoundingClientRect();
						for (let p = e.parentElement; p; p = p.parentElement) if (["hidden", "auto"].includes(getComputedStyle(p).overflowX)) return false;
						return box.right > innerWidth + .5 && box.width > 0;
					}).map((e) => e.outerHTML.slice(0, 120))`)
					if wide != "[]" || b.eval("document.documentElement.scrollWidth <= innerWidth") != "true" {
						t.Errorf("%d feeds, %s at %d pixels: wider than the screen: %.500s", feeds, path, width, wide)
					}
					if cut := b.eval(`[...document.querySelectorAll(".scroll")].some((e) => e.scrollWidth > e.clientWidth)`); width <= 700 && cut != "false" {
						t.Errorf("%d feeds, %s at %d pixels: a table is cut", feeds, path, width)
					}
					b.checkReadability(scheme)
					b.keep(fmt.Sprintf("size-%d-%d-%s%s", feeds, width, scheme, name))
				}
			}
		}
	}
}

// A page follows the state without being loaded again, keeps the focus, and can be paused.
func TestBrowserIsLive(t *testing.T) {
	s := newServer(admin.Bus{Name: "main", Kind: "nats", Check: func(context.Context) error { return nil }})
	orders, stock := addNamed(s, "orders"), addNamed(s, "stock")
	enter(orders, bridge.Idle, checkpoint.Checkpoint{Count: 1}, time.Hour, nil)
	enter(stock, bridge.Idle, checkpoint.Checkpoint{Count: 2}, time.Hour, nil)
	b := openBrowser(t, s)
	b.open("/?sort=name")
	b.await(`document.getElementById("live-text").textContent === "Live"`)
	b.eval(`window.loaded = "once"; document.querySelector("#feed-orders th a").focus(); document.getElementById("q").value = "half a wo"`)

	enter(orders, bridge.Halted, checkpoint.Checkpoint{Count: 1}, time.Hour, errors.New("the topic is gone; restore it"))
	b.await(`document.querySelector("#feed-orders .state").innerText.includes("halted")`)
	b.await(`document.querySelector("#feed-orders .sentence").innerText.includes("the topic is gone; restore it")`)
	stock.Processed(batch("b", 5, false), 0)
	b.await(`document.querySelector("#feed-stock [data-label='Last 15 minutes']").innerText === "5"`)
	s.AddFeed(admin.FeedOptions{Name: "prices", Every: time.Second})
	b.await(`document.querySelectorAll("tbody tr").length === 3`)
	if got := b.eval(`[window.loaded, document.activeElement.innerText, document.getElementById("q").value]`); got != `["once","orders","half a wo"]` {
		t.Errorf("after the updates: %s", got)
	}

	b.run(chromedp.Click(chromedp.CSS("#live-pause"), chromedp.NodeVisible))
	b.await(`document.getElementById("live-text").textContent === "Paused"`)
	enter(orders, bridge.Reading, checkpoint.Checkpoint{Count: 1}, 0, nil)
	b.wantText("#feed-orders td .state", "■ halted")
	b.run(chromedp.Click(chromedp.CSS("#live-pause"), chromedp.NodeVisible))
	b.await(`document.querySelector("#feed-orders .state").innerText.includes("reading")`)

	b.open("/feed/stock")
	stock.Processed(feed.Batch{Cursor: feed.Cursor("c"), Entities: []feed.Entity{{ID: "<new@shop>", Op: feed.Put}}}, 0)
	b.await(`document.querySelector("section[aria-labelledby=entities-heading]").innerText.includes("<new@shop>")`)
}

// After the server has stopped, the page shows that it is not live, and keeps its content.
func TestBrowserNoticesTheEnd(t *testing.T) {
	s := newServer()
	addNamed(s, "orders")
	b := openBrowser(t, s)
	b.open("/")
	b.await(`document.getElementById("live-text").textContent === "Live"`)
	s.Pages().Close()
	b.await(`document.getElementById("live-text").textContent=== "Not live" && document.getElementById("gone").innerText.startsWith("feedbridge does not answer.")`)
	b.keep("status-page-gone")
	b.wantText("tbody tr > th a", "orders")
	b.takeFaults()
}

// Nothing that a feed sends, or that is configured, becomes a part of the page.
func TestBrowserWithHostileText(t *testing.T) {
	attacks := []string{
		`<script>window.pwned = 1</script>`, `"><img src=x onerror="window.pwned=2">`, `</td></tr></table><script>window.pwned = 3</script>`,
		`javascript:window.pwned=4`, `' onmouseover='window.pwned=5' x='`, `<svg/onload=window.pwned=6>`, `{{.Feed}}${window.pwned=7}`, "\ndata: <script>window.pwned=8</script>\n\nevent: x\n",
		`<!--<script>`, `&lt;script&gt;window.pwned=9&lt;/script&gt;`, "\u202egnp.exe",
	}
	s := newServer(admin.Bus{Name: attacks[0], Kind: attacks[1], Check: func(context.Context) error { return errors.New(attacks[2]) }})
	for i, attack := range attacks {
		f := s.AddFeed(admin.FeedOptions{
			Name: fmt.Sprintf("%d%s", i, safetext.Clean(attack)), URL: attack, Format: attack, Bus: attack, Topic: attack, Every: time.Second,
			Describe: func(checkpoint.Checkpoint) admin.Description {
				return admin.Description{Format: attack, Cursor: map[string]any{"page": attack, "title": attack, attack: attack}, Search: attack}
			},
		})
		page := feed.Batch{
			Cursor: feed.Cursor("x"), Entities: []feed.Entity{{ID: attack, Op: feed.Operation(attack), Page: attack}},
			Violations: []feed.Violation{{Kind: attack, Page: attack, Detail: attack}},
		}
		f.Polled(page, nil, 0)
		f.Processed(page, 0)
		enter(f, bridge.Halted, checkpoint.Checkpoint{Cursor: feed.Cursor("x"), Writer: attack, At: time.Now(), Count: 1}, time.Hour, errors.New(attack))
		s.AddServed(admin.ServedOptions{Name: fmt.Sprintf("%d%s", i, attack), URL: attack, Format: attack, Bus: attack, Topic: attack, Look: func(context.Context) (admin.ServedTopic, error) {
			return admin.ServedTopic{Snapshot: attack}, errors.New(attack)
		}})
	}
	b := openBrowser(t, s)
	check := func(where string) {
		t.Helper()
		if got := b.eval(`[window.pwned === undefined, document.scripts.length, document.querySelectorAll("img, svg:not(.hour), [onload], [onerror], [onmouseover]").length,
			[...document.querySelectorAll("a")].every((a) => a.origin === location.origin), document.querySelectorAll("main").length]`); got != `[true,1,0,true,1]` {
			t.Errorf("%s: not hurt, scripts, foreign elements, own links and mains are %s", where, got)
		}
	}
	b.open("/?q=" + "%22%3E%3Cscript%3Ewindow.pwned%3D1%3C%2Fscript%3E&state=%3Cscript%3E")
	check("a hostile search")
	b.open("/")
	b.await(`document.getElementById("live-text").textContent === "Live"`)
	check("/")
	b.keep("hostile")
	if got := b.text("tbody tr .sentence"); !strings.HasPrefix(got, `<script>window.pwned = 1</script>; nothing is published`) || !strings.Contains(got, "\n"+`\u202egnp.exe;`) {
		t.Errorf("the sentences are\n%s", got)
	}
	b.eval(`document.querySelectorAll("main *").forEach((e) => e.dispatchEvent(new MouseEvent("mouseover", { bubbles: true })))`)
	check("/, after the mouse")
	for i := range attacks {
		b.open("/")
		b.eval(fmt.Sprintf(`document.querySelectorAll("tbody th a")[%d].click()`, i))
		b.await(`document.querySelector("p.back") !== null`)
		b.await(`document.getElementById("live-text").textContent === "Live"`)
		check(b.eval("location.href"))
		if got := b.eval(`document.querySelector("section[aria-labelledby=entities-heading] tbody tr") !== null`); got != "true" {
			t.Errorf("%s does not show the feed", b.eval("location.href"))
		}
	}
	b.open("/served")
	check("/served")
}

// With many feeds, a page, a search, an order and a live update each have fifty rows.
func TestBrowserWithTenThousandFeeds(t *testing.T) {
	const feeds = 10_000
	s := newServer(admin.Bus{Name: "main", Kind: "nats", Check: func(context.Context) error { return nil }})
	var last *admin.Feed
	for i := range feeds {
		last = addNamed(s, fmt.Sprintf("feed-%05d", i))
		enter(last, bridge.Idle, checkpoint.Checkpoint{Count: uint64(i), Cursor: feed.Cursor(fmt.Sprintf("https://shop.example.com/%d", i)), At: time.Now(), Writer: own}, time.Hour, nil)
	}
	b := openBrowser(t, s)
	for _, c := range []struct{ situation, path, found, first, last string }{
		{"the first page", "/", "1 to 50 of 10 000 feeds.", "feed-00000", "feed-00049"},
		{"the last page", "/?page=200", "9 951 to 10 000 of 10 000 feeds.", "feed-09950", "feed-09999"},
		{"a page that does not exist", "/?page=99999", "9 951 to 10 000 of 10 000 feeds.", "feed-09950", "feed-09999"},
		{"by position", "/?sort=-entities", "1 to 50 of 10 000 feeds.", "feed-09999", "feed-09950"},
		{"a search", "/?q=-0123", "1 to 10 of 10 feeds, of 10 000 in all.", "feed-01230", "feed-01239"},
		{"nothing is found", "/?q=nothing", "No feeds, of 10 000 in all.", "", ""},
	} {
		begin := time.Now()
		b.open(c.path)
		t.Logf("%s: %v", c.situation, time.Since(begin).Round(time.Millisecond))
		b.wantText("#found", c.found)
		rows := strings.Split(b.text("tbody tr > th a"), "\n")
		if rows[0] != c.first || rows[len(rows)-1] != c.last {
			t.Errorf("%s: the rows are %s to %s, want %s to %s", c.situation, rows[0], rows[len(rows)-1], c.first, c.last)
		}
	}
	b.open("/")
	b.await(`document.getElementById("live-text").textContent === "Live"`)
	enter(last, bridge.Retrying, checkpoint.Checkpoint{}, time.Minute, errDown)
	b.await(`document.querySelector("tbody tr")?.id === "feed-feed-09999"`)
	b.wantText("nav.states a", "all 10 000\n▲ retrying 1\n● idle 9 999")
	b.keep("ten-thousand-feeds")
}

// Without JavaScript all pages show everything, and search, order and pages work.
func TestBrowserWithoutJavaScript(t *testing.T) {
	s := shop(time.Now(), nil)
	for i := range 60 {
		addNamed(s, fmt.Sprintf("shop-%02d", i))
	}
	b := openBrowser(t, s)
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open("/")
	if got := b.text("header"); !strings.Contains(got, "Reload the page to see what has changed.") || strings.Contains(got, "Pause") {
		t.Errorf("the header shows %q", got)
	}
	b.wantText("#found", "1 to 50 of 69 feeds.")
	b.run(chromedp.Click(chromedp.CSS(`.pager a[rel=next]`)), chromedp.WaitReady(chromedp.CSS(`.pager a[rel=prev]`)))
	b.wantText("#found", "51 to 69 of 69 feeds.")
	b.run(chromedp.SendKeys(chromedp.CSS("#q"), "shop-1"), chromedp.Submit(chromedp.CSS("#q")), chromedp.WaitReady(chromedp.CSS("form a")))
	b.wantText("#found", "1 to 10 of 10 feeds, of 69 in all.")
	b.run(chromedp.Click(chromedp.CSS(`thead th:first-child a`)), chromedp.WaitReady(chromedp.CSS(`th[aria-sort="ascending"]`)))
	b.run(chromedp.Click(chromedp.CSS(`thead th:first-child a`)), chromedp.WaitReady(chromedp.CSS(`th[aria-sort="descending"]`)))
	if got := b.text("tbody tr > th a"); !strings.HasPrefix(got, "shop-19\nshop-18\n") {
		t.Errorf("the rows are %q", got)
	}
	b.run(chromedp.Click(chromedp.CSS("#feed-shop-19 th a")), chromedp.WaitReady(chromedp.CSS("p.back")))
	b.wantText("h1", "shop-19")
}
