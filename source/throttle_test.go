package source

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// The feeds that a limit slows down log that once, and again after it slowed none of them down for
// a while.
func TestThrottledFeedsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		hosts := &Hosts{}
		newThrottle := func() *throttle { return &throttle{log: slog.New(slog.NewTextHandler(&log, nil)), hosts: hosts} }
		limit := newThrottle()
		request := func(n int) {
			for range n {
				shared, waited, err := hosts.waitForRate(t.Context(), hostKey{"shop.example:443", 10})
				must.Succeed(t, err)
				limit.addWait("shop.example", shared, waited)
			}
		}
		want := func(n int) {
			t.Helper()
			if got := strings.Count(log.String(), "limits.rate slows feeds of a host down"); got != n {
				t.Errorf("%d lines, want %d:\n%s", got, n, log.String())
			}
		}
		request(10) // 9 of them wait for a tenth of a second
		want(0)
		request(200)
		want(1)
		time.Sleep(throttleGap / 2)
		request(50)
		want(1)
		limit = newThrottle() // of another feed
		request(50)
		want(1)
		time.Sleep(2 * throttleGap)
		request(5)
		want(1)
		request(50)
		want(2)
	})
}
