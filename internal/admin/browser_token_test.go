//go:build integration

package admin_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/admin"
)

// The buttons ask for the token once, send it in a header only, and show the answer or the error beside them.
func TestBrowserChangesFeedsWithTheToken(t *testing.T) {
	s := admin.New(admin.Options{Started: time.Now(), Writer: own, Log: slog.New(slog.DiscardHandler), Token: constantToken("right", nil)})
	enter(addNamed(s, "orders"), bridge.Halted, checkpoint.Checkpoint{}, time.Hour, errDown)
	asked := make(chan string, 10)
	s.AddChange("/feeds/{feed}/poll", func(_ context.Context, r *http.Request) (any, error) {
		asked <- r.PathValue("feed")
		return map[string]any{"state": "idle", "published": 3, "duplicates": 1}, nil
	})
	s.AddChange("/feeds/{feed}/pause", func(context.Context, *http.Request) (any, error) {
		return nil, &admin.ChangeError{Status: http.StatusServiceUnavailable, Errs: []error{errDown}}
	})
	const attack = `<img src=x onerror="window.pwned=1"><script>window.pwned=2</script>`
	s.AddRead("/feeds/{feed}/newest", func(context.Context, *http.Request) (any, error) {
		return map[string]any{"messages": []map[string]any{{"id": attack, "operation": "PUT", "modified": "2026-01-01T00:00:00Z", "title": attack, "text": attack, "feed_title": attack}}}, nil
	})
	b := openBrowser(t, s)
	b.open("/?token=right")
	b.await(`location.search === "" && document.getElementById("token-in-url").checkVisibility()`)
	b.eval(`document.querySelector('.needs .act[data-post$="/poll"]').focus()`)
	b.run(chromedp.KeyEvent("\r"))
	b.await(`document.getElementById("ask").open && document.activeElement.id === "ask-token"`)
	b.run(chromedp.KeyEvent("wrong\r"))
	b.await(`document.getElementById("ask").open && document.getElementById("ask-why").textContent === "That is not the token."`)
	b.run(chromedp.KeyEvent("right\r"))
	b.await(`document.getElementById("said-orders").textContent === "Polled: 3 published, 1 left out as duplicates; the feed is idle."`)
	if name := <-asked; name != "orders" {
		t.Errorf("%q was polled", name)
	}
	b.run(chromedp.Click(chromedp.CSS(`.needs .act[data-post$="/pause"]`), chromedp.NodeVisible))
	b.await(`document.querySelector("#said-orders.refused").textContent.includes("503 Service Unavailable")`)
	b.checkReadability("light")
	b.keep("status-page-buttons")
	b.open("/feed/orders")
	b.await(`document.querySelector("article h3")`)
	if got := b.text("article"); strings.Count(got, attack) != 3 {
		t.Errorf("the newest message is shown as %q", got)
	}
	if got := b.eval(`[window.pwned === undefined, document.querySelectorAll("main img, main script").length, location.href.includes("right")]`); got != "[true,0,false]" {
		t.Errorf("not hurt, elements, and a token in the address are %s", got)
	}
	b.keep("status-page-newest")
	for _, fault := range b.takeFaults() {
		if !strings.Contains(fault, "401") && !strings.Contains(fault, "503") {
			t.Errorf("the page has reported: %s", fault)
		}
	}
}
