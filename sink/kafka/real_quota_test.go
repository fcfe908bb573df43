//go:build integration

package kafka_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// The client has a consumer quota, which the messages that a new copy reads exceed many
// times over. It starts all the same.
func TestRealCopyStartsUnderAConsumerQuota(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	topic := ordersIn(t)
	s := connect(t, atReal(b.Addr())).Sink(topic)
	resume(t, s)
	entities := sinktest.Entities(0, 200)
	for i := range entities {
		entities[i].Body = make([]byte, 1000)
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(entities[i].Body) // which never fails, and cannot be compressed
	}
	must.Succeed(t, s.Commit(t.Context(), entities, sinktest.At(200)))

	cfg := atReal(b.Addr())
	cfg.ClientID = kafkatest.Name(t)
	setQuota(t, b.Addr(), cfg.ClientID, "consumer_byte_rate", 20_000)
	// Two copies: the reads of the first have used up the quota when the second starts.
	for range 2 {
		fresh := connect(t, cfg).Sink(topic)
		wantCount(t, fresh, 200)
		wantIDs(t, fresh, 200)
	}
}

// setQuota sets a quota of a client ID.
func setQuota(t *testing.T, addr, clientID, quota string, value float64) {
	t.Helper()
	set, err := kadm.NewClient(kafkaClient(t, addr)).AlterClientQuotas(t.Context(), []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &clientID}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: quota, Value: value}},
	}})
	if err != nil || set[0].Err != nil {
		t.Fatal(err, set)
	}
}

// backlog is a feed of random entities of 2 kB, which cannot be compressed.
type backlog struct{}

func (backlog) Next(_ context.Context, after feed.Cursor, limits feed.Limits) (feed.Batch, error) {
	at, _ := strconv.Atoi(string(after))
	b, bytes := feed.Batch{More: true}, 0
	for !limits.AreReached(len(b.Entities), bytes) {
		e := sinktest.Entities(at+len(b.Entities), 1)[0]
		e.Body = make([]byte, 2000)
		_, _ = rand.NewChaCha8([32]byte{byte(at), byte(at >> 8), byte(len(b.Entities))}).Read(e.Body)
		b.Entities, bytes = append(b.Entities, e), bytes+e.Size()
	}
	b.Cursor = feed.Cursor(strconv.Itoa(at + len(b.Entities)))
	return b, nil
}

func (backlog) Release() {}

// failures is an observer that counts published entities, and keeps the errors.
type failures struct {
	published atomic.Int64
	mu        sync.Mutex
	errs      []error
}

func (*failures) Polled(feed.Batch, error, time.Duration) {}

func (f *failures) Processed(b feed.Batch, _ time.Duration) {
	f.published.Add(int64(len(b.Entities)))
}

func (f *failures) Entered(s bridge.Status) {
	if s.Err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.errs = append(f.errs, s.Err)
	}
}

// A producer quota delays a backlog. It aborts no transaction, except perhaps the first: the
// broker counts what is aborted, too.
func TestRealBacklogUnderAProducerQuota(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	cfg := kafka.Config{Brokers: []string{b.Addr()}, ClientID: kafkatest.Name(t), Timeout: 10 * time.Second}
	setQuota(t, b.Addr(), cfg.ClientID, "producer_byte_rate", 40_000)
	sink := connect(t, cfg).Sink(ordersIn(t))
	var seen failures
	br := &bridge.Bridge{
		Feed: "orders", Writer: "me",
		Open: func(context.Context, string) (feed.Source, string, error) { return backlog{}, "test", nil },
		Sink: sink, Every: time.Minute, Limits: feed.Limits{Entities: kafka.MaxEntities, Bytes: kafka.MaxBytes}, ReadAhead: 8 << 20,
		Log: silent, Observer: &seen,
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	begin := time.Now()
	br.Start(ctx, func() { close(stopped) })
	// 1.2 MB, of which the quota lets through 0.4 MB at once.
	until(t, func() bool { return seen.published.Load() > 600 })
	cancel()
	<-stopped
	t.Logf("%d entities in %v", seen.published.Load(), time.Since(begin))
	if len(seen.errs) > 1 {
		t.Errorf("%d commits failed: %v", len(seen.errs), seen.errs)
	}
}
