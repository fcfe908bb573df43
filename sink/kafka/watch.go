package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/retry"
)

// watch is the consumer of the checkpoints that all copies commit, and the looks at the topics of the
// open sinks. It is safe for concurrent use.
type watch struct {
	client *client
	// consumers counts the consumers, and working is set while the last one reads all partitions.
	// Before it began, commits may have gone unseen.
	consumers atomic.Int64
	working   atomic.Bool

	lookEvery time.Duration
	last      atomic.Pointer[look] // nil before the first one

	mu    sync.Mutex
	sinks map[string]int // the open sinks by topic
}

// look is what the cluster has reported of the topics of all open sinks, and of the topic for
// checkpoints, while a consumer worked. It is not changed.
type look struct {
	at        time.Time // before the requests
	consumers int64
	topics    kadm.TopicDetails
	ends      kadm.ListedOffsets
}

// defaultLookEvery is the interval of looks. It is less than the age of a confirmation from which a
// bridge reads the checkpoint.
const defaultLookEvery = 25 * time.Second

// countSinks adds n to the number of the open sinks of a topic.
func (w *watch) countSinks(topic string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sinks[topic] += n; w.sinks[topic] == 0 {
		delete(w.sinks, topic)
	}
}

// lookAtTopics looks at all topics, with two requests that grow with their number.
func (w *watch) lookAtTopics(ctx context.Context) {
	l := look{at: time.Now(), consumers: w.consumers.Load()}
	if !w.working.Load() || w.client.reconnects.anyUnreachable() {
		return
	}
	w.mu.Lock()
	names := slices.AppendSeq([]string{w.client.cfg.Checkpoints}, maps.Keys(w.sinks))
	w.mu.Unlock()
	ctx, cancel := w.client.withRequestTimeout(ctx)
	defer cancel()
	var err error
	if l.topics, err = w.client.admin.ListTopicsWithInternal(ctx, names...); err != nil {
		w.client.log.Debug("cannot look at the topics; their feeds read their checkpoints", "error", err)
		return
	}
	l.ends, _ = w.client.admin.ListEndOffsets(ctx, names...) // after an error it lacks those of some brokers
	w.last.Store(&l)
}

// watchedTopic is what a sink knows since its last Resume or Commit. It is not changed.
type watchedTopic struct {
	consumers   int64 // before the Resume
	checkpoints kadm.TopicID
	topic       topicEnds
}

// confirmedBy returns the time of a look if it shows that a topic has all that the sink knows, and that
// all commits since then would have been seen; otherwise the zero time. The receiver is nil before the
// first Resume, and l before the first look.
func (t *watchedTopic) confirmedBy(l *look, name, checkpointTopic string) (at time.Time) {
	if t == nil || l == nil || l.consumers != t.consumers {
		return at
	}
	topic, checkpoints := l.topics[name], l.topics[checkpointTopic]
	if errors.Join(topic.Err, checkpoints.Err) != nil || !t.topic.isOf(topic.ID) || checkpoints.ID != t.checkpoints {
		return at
	}
	for p, end := range t.topic.ends {
		if now, ok := l.ends.Lookup(name, int32(p)); !ok || now.Err != nil || now.Offset < end {
			return at
		}
	}
	return l.at
}

// keepRunning looks at the topics, and runs the watch again when it has ended by an error, until ctx
// ends or the client is closed.
func (w *watch) keepRunning(ctx context.Context, committed func(topic, writer string)) {
	go func() {
		for retry.Sleep(ctx, w.lookEvery) == nil && !w.client.closed.Load() {
			w.lookAtTopics(ctx)
		}
	}()
	backoff := retry.Backoff{Min: time.Second, Max: watchRetry}
	for again := false; ctx.Err() == nil && !w.client.closed.Load(); again = true {
		if again && backoff.Wait(ctx) != nil {
			return
		}
		err := w.run(ctx, committed, func() { backoff = retry.Backoff{Min: time.Second, Max: watchRetry} })
		w.working.Store(false)
		w.client.log.Debug("the watch of the checkpoints has ended; until it begins again, each feed reads its own", "error", err)
	}
}

// watchPause is the time between two fetches. Without it a copy would fetch after each commit of
// each feed, its own included, and decode one record at a time.
const watchPause = 100 * time.Millisecond

// watchRetry is the longest wait until an interrupted watch begins again.
const watchRetry = 30 * time.Second

// run watches until ctx ends or there is an error. It calls begun when it sees all commits from then
// on.
func (w *watch) run(ctx context.Context, committed func(topic, writer string), begun func()) error {
	topic := w.client.cfg.Checkpoints
	d, err := w.client.describeTopic(ctx, topic)
	if err != nil {
		return err
	}
	ends, err := w.client.listOffsets(ctx, topic, d.Partitions.Numbers(), stableOffset)
	if err != nil {
		return err
	}
	offsets := map[int32]kgo.Offset{}
	for p, end := range ends {
		offsets[int32(p)] = kgo.NewOffset().At(end)
	}
	consumer, err := kgo.NewClient(append(slices.Clone(w.client.opts),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxBytes(fetchBytes),
		// An offset that is gone is that of another topic with the same name.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	)...)
	if err != nil {
		return err
	}
	defer consumer.Close()
	begun()
	w.consumers.Add(1)
	w.working.Store(true)
	checked := time.Now()
	for {
		poll, cancel := context.WithTimeout(ctx, recheck)
		fetches := consumer.PollFetches(poll)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := fetches.Err(); err != nil && poll.Err() == nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			name, _, _ := strings.Cut(string(r.Key), "/")
			cp, _ := checkpoint.Decode(r.Value) // without a writer if it cannot be read
			committed(name, cp.Writer)
		})
		if retry.Sleep(ctx, watchPause) != nil {
			return context.Cause(ctx)
		}
		if time.Since(checked) < recheck {
			continue
		}
		if d, err = w.client.describeTopic(ctx, topic); err != nil {
			return err
		}
		for p := len(offsets); p < len(d.Partitions); p++ {
			offsets[int32(p)] = kgo.NewOffset().AtStart()
			consumer.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {int32(p): offsets[int32(p)]}})
		}
		checked = time.Now()
	}
}
