package nats_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// backlog is a feed of entities of 1 kB. Its batches are as large as the limits allow.
type backlog struct{}

func (backlog) Next(_ context.Context, after feed.Cursor, limits feed.Limits) (feed.Batch, error) {
	at, _ := strconv.Atoi(string(after))
	b, bytes := feed.Batch{More: true}, 0
	for !limits.AreReached(len(b.Entities), bytes) {
		e := sinktest.Entities(at+len(b.Entities), 1)[0]
		e.Body = make([]byte, 1000)
		b.Entities, bytes = append(b.Entities, e), bytes+e.Size()
	}
	b.Cursor = feed.Cursor(strconv.Itoa(at + len(b.Entities)))
	return b, nil
}

func (backlog) Release() {}

// progress is an observer that counts published entities and errors.
type progress struct{ published, failed atomic.Int64 }

func (*progress) Polled(feed.Batch, error, time.Duration) {}

func (p *progress) Processed(b feed.Batch, _ time.Duration) { p.published.Add(int64(len(b.Entities))) }

func (p *progress) Entered(s bridge.Status) {
	if s.Err != nil {
		p.failed.Add(1)
	}
}

// A slow link delays a backlog, and no commit is given up. One of the largest size would take a
// minute.
func TestBacklogOverASlowLink(t *testing.T) {
	t.Parallel()
	proxy := runProxy(t, strings.TrimPrefix(startServer(t, t.TempDir(), "127.0.0.1:0").URL(), "nats://"))
	proxy.slow(80_000)
	var seen progress
	b := &bridge.Bridge{
		Feed: "orders", Writer: "me", Sink: connect(t, nats.Config{URL: proxy.url()}).Sink(orders()),
		Open:  func(context.Context, string) (feed.Source, string, error) { return backlog{}, "test", nil },
		Every: time.Hour, Limits: feed.Limits{Entities: nats.MaxEntities, Bytes: nats.MaxBytes}, ReadAhead: 8 << 20,
		Log: silent, Observer: &seen,
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	b.Start(ctx, func() { close(stopped) })
	eventually(t, "1,000 entities are published", func() bool { return seen.published.Load() >= 1000 })
	cancel()
	<-stopped
	if n := seen.failed.Load(); n > 0 {
		t.Errorf("%d commits failed", n)
	}
}
