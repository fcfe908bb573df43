//go:build integration

package site_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// Chromium shows every page on a desktop and on a phone: nothing is wider than the screen,
// what scrolls on a phone has a shadow, and nothing is requested from other hosts. FEEDBRIDGE_SCREENSHOTS is a directory for pictures.
func TestBrowserShowsTheSite(t *testing.T) {
	site := built(t)
	server := httptest.NewServer(http.FileServerFS(site))
	defer server.Close()
	allocated, free := chromedp.NewExecAllocator(context.Background(),
		append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true))...)
	defer free()
	tab, quit := chromedp.NewContext(allocated)
	defer quit()
	for name, width := range map[string]int64{"desktop": 1280, "phone": 390} {
		must.Succeed(t, chromedp.Do(tab, chromedp.EmulateViewport(width, 844, chromedp.EmulateMobile)))
		for file := range webPages(t, site) {
			at := server.URL + "/" + path.Dir(file) + "/"
			must.Succeed(t, chromedp.Do(tab, chromedp.Navigate(at), chromedp.WaitReady(chromedp.CSS(".md-version"))))
			wide, err := chromedp.Run(tab, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`))
			must.Succeed(t, err)
			if wide > width {
				t.Errorf("%s is %d pixels wide on a screen of %d", file, wide, width)
			}
			unmarked, err := chromedp.Run(tab, chromedp.Evaluate[int64](`[...document.querySelectorAll(".md-typeset__scrollwrap, pre > code")].filter(e =>
				e.scrollWidth > e.clientWidth && innerWidth < 500 && !getComputedStyle(e).backgroundAttachment.includes("local")).length`))
			must.Succeed(t, err)
			if unmarked > 0 {
				t.Errorf("%s has %d tables or listings whose scrolling has no shadow", file, unmarked)
			}
			loaded, err := chromedp.Run(tab, chromedp.Evaluate[[]string](`performance.getEntriesByType("resource").map(e => e.name)`))
			must.Succeed(t, err)
			for _, u := range loaded {
				if !strings.HasPrefix(u, server.URL) {
					t.Errorf("%s requests %s", file, u)
				}
			}
			if dir := os.Getenv("FEEDBRIDGE_SCREENSHOTS"); dir != "" {
				picture, err := chromedp.Run(tab, chromedp.FullScreenshot(100))
				must.Succeed(t, err)
				must.Succeed(t, os.WriteFile(filepath.Join(dir, path.Base(path.Dir(file))+"-"+name+".png"), picture, 0o644))
			}
		}
	}
}
