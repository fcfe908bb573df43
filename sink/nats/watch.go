package nats

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/limit"
	"github.com/feedbridge/feedbridge/internal/retry"
)

// How an idle copy knows that its checkpoint is still the newest one without reading it:
//
//  1. One look at each stream, every lookEvery, whatever the number of its topics. If the last
//     sequence is the one that the sink knows, nothing was stored since.
//  2. In a stream of several topics, sequences of others follow. There the subscription to the
//     checkpoints reports each commit. It may lose some, so such a checkpoint is also read every
//     minHinted to maxHinted.
//  3. A look that shows less than the one before it, or a stream that was created again, confirms
//     nothing until the sink has resumed. The same holds for a look on another connection than
//     that of the last Resume or Commit: the stream may have gone back, and commits gone unseen; and
//     for one that shows another configuration than Resume has checked.
//
// A look that is not answered confirms nothing. Then each feed reads its own checkpoint.

const (
	// lookEvery is the interval of looks at a stream. It is less than the age of a confirmation from
	// which a bridge reads the checkpoint.
	lookEvery = 25 * time.Second
	// lookParts divides the interval: in each part of it, a part of the streams is looked at.
	lookParts = 100

	minHinted = 10 * time.Minute
	maxHinted = 20 * time.Minute
)

// watch sees the commits of all copies, and what happens to the streams of the open sinks. It is safe
// for concurrent use.
type watch struct {
	log    *slog.Logger
	client *client
	// subscribed is set while there is a subscription that the server has not refused. An answer to
	// a look shows that it has it: the server reads the subscription first.
	subscribed atomic.Bool
}

// subscribe calls committed for each commit that the server of a connection reports.
func (w *watch) subscribe(nc *nats.Conn, committed func(topic, writer string)) {
	w.subscribed.Store(true)
	_, err := nc.Subscribe(allCheckpoints, func(m *nats.Msg) {
		if cp, err := checkpoint.Decode(m.Data); err == nil {
			committed(strings.TrimPrefix(m.Subject, checkpointPrefix), cp.Writer)
		}
	})
	if err != nil {
		w.subscribed.Store(false) // the connection is closed
	}
}

// refuse records that the server has refused the subscription. A permission that is given later is
// found at a restart.
func (w *watch) refuse(err error) {
	if w.subscribed.Swap(false) {
		w.log.Info("cannot watch the checkpoints; in a stream of several topics each feed reads its own every 30 to 45 seconds", "subject", allCheckpoints, "error", err)
	}
}

// visitAll calls visit for each stream once in lookEvery until ctx ends, evenly over that time. It calls
// it for at most [limit.Looks] at a time. If they take too long, the rounds do.
func visitAll(ctx context.Context, streams func() []*openStream, visit func(context.Context, *openStream)) {
	looks := limit.New(limit.Looks, 0)
	for begin := time.Now(); ; begin = time.Now() {
		all := streams()
		for part := range time.Duration(lookParts) {
			if retry.Sleep(ctx, time.Until(begin.Add(lookEvery*(part+1)/lookParts))) != nil {
				return
			}
			for _, stream := range all[len(all)*int(part)/lookParts : len(all)*int(part+1)/lookParts] {
				look, err := looks.Acquire(ctx)
				if err != nil {
					return
				}
				go func() {
					defer look.Release()
					visit(ctx, stream)
				}()
			}
		}
	}
}

// lookAt looks at a stream.
func (w *watch) lookAt(ctx context.Context, stream *openStream) {
	ses, err := w.client.sessions.activeSession()
	if err != nil {
		return
	}
	now := look{at: time.Now(), session: ses}
	info, err := w.client.streamInfo(ctx, stream.name)
	if err != nil {
		w.log.Debug("cannot look at a stream; its feeds read their checkpoints", "stream", stream.name, "error", err)
		return
	}
	now.created, now.lastTime = info.Created, info.State.LastTime
	now.first, now.last, now.entries = info.State.FirstSeq, info.State.LastSeq, info.State.Msgs
	now.config = hashOf(info.Config)
	stream.recordLook(now)
}

// hashOf returns a hash of a configuration, so that thousands of topics do not keep a copy each.
func hashOf(c jetstream.StreamConfig) uint64 {
	text, _ := json.Marshal(c) // as it was read
	return xxhash.Sum64(text)
}

// watchedTopic is what a sink knows of its stream since its last Resume or Commit. It is not changed.
type watchedTopic struct {
	session *session
	created time.Time
	config  uint64 // a hash of it
	losses  int    // before the Resume
	// own reports that the stream takes no other subjects than those of the topic.
	own bool
	// checkpoint is the sequence of the checkpoint, 0 if there is none, and last the newest
	// sequence that the sink knows.
	checkpoint, last uint64
	// until is when the checkpoint is read again, although all commits are reported.
	until time.Time
}

// after returns what the sink knows when it has read or stored the newest checkpoint at a sequence.
func (t watchedTopic) after(checkpoint uint64) *watchedTopic {
	t.checkpoint, t.last = checkpoint, max(t.last, checkpoint)
	t.until = time.Now().Add(minHinted + rand.N(maxHinted-minHinted))
	return &t
}

// confirmedBy returns the time of a look if it shows that the checkpoint is still the newest one, and
// otherwise the zero time. subscribed reports whether all commits are reported. t is nil before the
// first Resume.
func (t *watchedTopic) confirmedBy(l look, subscribed bool) time.Time {
	switch {
	case t == nil || l.session != t.session || l.config != t.config || l.losses != t.losses || !l.created.Equal(t.created) || t.checkpoint > 0 && t.checkpoint < l.first:
		return time.Time{}
	case l.last == t.last:
		return l.at
	case l.last < t.last || t.own || !subscribed || time.Now().After(t.until):
		return time.Time{}
	}
	return l.at
}
