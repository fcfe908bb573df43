//go:build integration

package serve

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// Chromium shows the feeds of all formats on a desktop and on a phone, light and dark: nothing is wider than the
// screen, and nothing of an entry runs. FEEDBRIDGE_SCREENSHOTS is a directory for pictures.
func TestBrowserShowsServedFeeds(t *testing.T) {
	if _, err := exec.LookPath("chromium"); err != nil && os.Getenv("FEEDBRIDGE_REQUIRE_CHROMIUM") == "" {
		t.Skip("Chromium is missing; on Debian install it with 'apt-get install chromium'")
	}
	topic := numberedTopic(1)
	add := func(title, html string) {
		id := fmt.Sprintf("https://blog.example.com/2026/%d", topic.span.End)
		d := entry.Document{ID: id, Title: title, DatePublished: "2026-02-27T08:30:00+01:00", ContentHTML: html}
		topic.add(messageOf(id, feed.Put, later(int(topic.span.End)), string(d.Marshal()), feed.Field{Name: "Content-Type", Value: entry.ContentType}, feed.Field{Name: entryID, Value: id}))
	}
	add("How we moved 300 feeds to one stream", "<p>Last year each team polled its own vendors. "+strings.Repeat("Now one daemon does, and everyone reads the same topic. ", 12))
	add("\u202eevil "+strings.Repeat("W", 5000), "<script>document.title='ran'</script><img src=x onerror=\"document.title='ran'\"><p>"+strings.Repeat("w", 5000))
	add("مرحبا بالعالم", "<p>نص عربي قصير، ثم English.")
	topic.add(messageOf("order-4711@shop.example.com", feed.Put, later(4), "{\n  \"id\": 4711,\n  \"state\": \"paid\",\n  \"total\": \"12.50\"\n}", feed.Field{Name: "Content-Type", Value: "application/json"}))
	topic.add(messageOf("order-4710@shop.example.com", feed.Delete, later(5), ""))
	topic.numbered(2)
	var feeds []*Feed
	for _, format := range Format("").Values() {
		f, err := New(Config{Name: format, Format: Format(format), Title: "Shop news", PageSize: 7}, topic)
		must.Succeed(t, err)
		feeds = append(feeds, f)
	}
	server := httptest.NewServer(NewServer(ServerOptions{}, feeds...))
	defer server.Close()
	allocated, free := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true))...)
	defer free()
	bounded, stop := context.WithTimeout(allocated, 2*time.Minute)
	defer stop()
	tab, quit := chromedp.NewContext(bounded)
	defer quit()
	must.Succeed(t, chromedp.Do(tab))
	for _, width := range []int64{1280, 390} {
		for _, scheme := range []string{"light", "dark"} {
			_, err := chromedp.Call(tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			must.Succeed(t, err)
			must.Succeed(t, chromedp.Do(tab, chromedp.EmulateViewport(width, 844, chromedp.EmulateMobile)))
			for _, f := range append(feeds, nil) {
				name, at, want := "list", "/", "Feeds"
				if f != nil {
					name, at, want = f.cfg.Name, f.cfg.entryURL(), "Shop news"
				}
				must.Succeed(t, chromedp.Do(tab, chromedp.Navigate(server.URL+at), chromedp.WaitReady(chromedp.CSS("h1"))))
				wide, err := chromedp.Run(tab, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`))
				must.Succeed(t, err)
				title, err := chromedp.Run(tab, chromedp.Evaluate[string](`document.title`))
				must.Succeed(t, err)
				if wide > width || title != want {
					t.Errorf("%s is %d pixels wide on a screen of %d, with the title %q", name, wide, width, title)
				}
				if dir := os.Getenv("FEEDBRIDGE_SCREENSHOTS"); dir != "" {
					picture, err := chromedp.Run(tab, chromedp.FullScreenshot(100))
					must.Succeed(t, err)
					must.Succeed(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), picture, 0o644))
				}
			}
		}
	}
}
