package sink_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/sink"
)

func TestAnnounceSaysOnceThatReadingTakesLong(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]int{time.Second: 0, time.Minute: 1} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			stop := sink.Announce(slog.New(slog.NewTextHandler(&out, nil)), "shop.orders", 7)
			time.Sleep(took)
			stop()
			synctest.Wait()
			time.Sleep(time.Hour)
			if n := strings.Count(out.String(), `msg="loading the IDs of the topic" topic=shop.orders messages=7`); n != want {
				t.Errorf("after %v: %d lines, want %d: %s", took, n, want, out.String())
			}
		})
	}
}
