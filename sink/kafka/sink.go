package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink"
)

// Sink appends to one topic and keeps its checkpoint beside it; see the package
// comment. It is used by one goroutine at a time, except for IDs, Fits and RetentionLimits.
type Sink struct {
	client  *client
	topic   Topic
	check   topicCheck
	records recordMaker

	checkpoints  checkpointStore
	dead         *deadLetters // nil if they are not configured
	dedupe       dedupeLoader
	transactions transactions
	hung         hungTransaction

	// ready is set by a Resume and by a Commit that succeed, and cleared by every error.
	ready bool
	// hadCheckpoint reports that this sink has seen a checkpoint.
	hadCheckpoint bool
	// confirmed is how often the producer's connections had changed when its first checkpoint
	// was last found to follow checkpoints.newest; -1 if it was not.
	confirmed int64

	watch *watch
	// watched is what the looks at the topic are compared with; nil before the first Resume.
	watched atomic.Pointer[watchedTopic]
}

func newSink(c *client, checkpoints *checkpointTopic, t Topic) *Sink {
	t.Partitions, t.Window = max(1, t.Partitions), cmp.Or(max(0, t.Window), sink.DefaultWindow)
	t.DeadLetters = t.DeadLetters || t.MissingKey == KeyDeadLetter
	dead := newDeadLetters(c, t)
	id := newTransactionalID(c, t.Name, t.Feed)
	s := &Sink{
		client: c, topic: t,
		check:        topicCheck{c, t},
		records:      recordMaker{topic: t, key: t.Key.newKeyer(), broker: c.cfg.Brokers[0], dead: dead},
		dead:         dead,
		checkpoints:  checkpointStore{client: c, topic: checkpoints, to: t, newest: noCheckpoint},
		dedupe:       dedupeLoader{client: c, topic: t, ids: sink.NewIDs(t.Window)},
		transactions: transactions{client: c, id: id},
	}
	s.hung = hungTransaction{client: c, id: id, topics: []string{t.Name}, checkpoints: &s.checkpoints, transactions: &s.transactions}
	if dead != nil {
		s.hung.topics = append(s.hung.topics, dead.name)
	}
	s.dedupe.seen.checkpoint = noCheckpoint
	return s
}

// Close closes the connections of the sink's producer. It is called after the last commit has
// ended, so no transaction is open. The [Conn] stays open.
func (s *Sink) Close() {
	s.transactions.closeProducer()
	s.watch.countSinks(s.topic.Name, -1)
}

// CommitsBy returns how the brokers store the commits: "transactions".
func (s *Sink) CommitsBy() string { return "transactions" }

// IDs returns the newest IDs that the topic holds, and all of its marks, as of the
// last Resume or Commit. It always returns the same.
func (s *Sink) IDs() *sink.IDs { return s.dedupe.ids }

// Fits returns how many of the entities, counted from the first, can be published, and an error
// about the next one: it is too large with its headers, which matches [sink.ErrTooLarge], Kafka
// cannot carry one of them, which matches [sink.ErrHeader], or it has no key although it needs one,
// which matches [sink.ErrNoKey] if such entities are dead letters.
func (s *Sink) Fits(entities []feed.Entity) (n int, err error) {
	for i := range entities {
		if err := s.records.checkEntity(entities[i]); err != nil {
			return i, err
		}
	}
	return len(entities), nil
}

// Resume checks the topic, and creates it if it is missing and the configuration allows it. It
// catches IDs up with the topic and returns the stored checkpoint. It does not disturb a copy
// that is alive.
func (s *Sink) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	s.ready = false
	s.IDs().Rollback()
	was, consumers := s.checkpoints.newest, s.watch.consumers.Load()
	var cp checkpoint.Checkpoint
	err := s.withExplainedErrors(ctx, func(ctx context.Context) (err error) {
		// If another copy commits while the IDs are read, they are ahead of the checkpoint. The
		// next commit would be refused, but until then new entities would count as
		// duplicates.
		for range 3 {
			var again bool
			if cp, again, err = s.resumeOnce(ctx); err != nil || !again {
				return err
			}
		}
		return nil
	})
	if err != nil || !s.checkpoints.newest.equals(was) || s.transactions.batch != s.records.largestBatch() {
		// The producer has been fenced by the copy that made the newest checkpoint, or the
		// topic takes other batches now.
		s.transactions.closeProducer()
	}
	if err != nil {
		return checkpoint.Checkpoint{}, fmt.Errorf("resume: %w", err)
	}
	s.hung.dropCure()
	if !s.transactions.isOpen() {
		// The next commit initializes the id, and this Resume has waited until every transaction
		// has ended.
		s.hung.last = nil
	}
	s.ready = true
	s.recordWatched(consumers)
	return cp, nil
}

func (s *Sink) resumeOnce(ctx context.Context) (cp checkpoint.Checkpoint, again bool, err error) {
	store, seen := &s.checkpoints, &s.dedupe.seen
	was := store.location
	feeds, err := store.findCheckpoints(ctx, s.topic.Create, s.client.cfg.Timeout, s.watchTransaction())
	if err != nil {
		return cp, false, err
	}
	if store.location != was {
		seen.known, seen.checkpoint = seen.known && was == topicPartition{}, noCheckpoint
	}
	if err := store.checkOwner(feeds); err != nil {
		return cp, false, err
	}
	store.newest = feeds.forFeed(s.topic.Feed)
	found := store.newest.offset >= 0
	if found {
		s.hadCheckpoint = true
		if cp, err = decodeCheckpoint(store.newest.data, s.topic.Feed); err != nil {
			return cp, false, err
		}
	}
	d, limit, err := s.check.ensureTopic(ctx, store.newest.topic, cp.Count == 0 && (found || !seen.known))
	if err != nil {
		return cp, false, err
	}
	s.records.limit.Store(min(limit, largestRequest))
	if !found && s.hadCheckpoint {
		return cp, false, s.errMissing()
	}
	if err := s.dedupe.checkLost(cp); err != nil {
		return cp, false, err
	}
	ends, err := s.check.waitStable(ctx, d, store.newest.topic, s.watchTransaction())
	if err != nil {
		return cp, false, err
	}
	deadTopic, err := s.dead.ensureTopic(ctx)
	if err != nil {
		return cp, false, err
	}
	dead, err := s.dead.waitStable(ctx, deadTopic, store.newest.dead, s.watchTransaction())
	if err != nil {
		return cp, false, err
	}
	if !found {
		if found, err = s.dedupe.hasMessages(ctx, d, ends, dead); err != nil {
			return cp, false, err
		}
		if !found {
			s.dedupe.resetIDs(d)
			s.dedupe.noteState(ends, dead, store.newest)
			return cp, false, nil
		}
	} else if err := s.dedupe.catchUp(ctx, d, ends, dead, cp, store); err != nil {
		return cp, false, err
	}
	now, err := store.readNewest(ctx)
	if err != nil {
		return cp, false, err
	}
	if now.offset < 0 && store.newest.offset < 0 {
		return cp, false, s.errMissing()
	}
	return cp, !now.equals(store.newest), nil
}

// recordWatched records the newest checkpoint that the sink has read or stored.
func (s *Sink) recordWatched(consumers int64) {
	s.watched.Store(&watchedTopic{consumers, s.checkpoints.location.id, s.dedupe.seen.topic})
}

// Unchanged returns when a look last showed that the topic has all that it had after the last Resume or
// Commit, and all commits since then would have been seen; the zero time if none did. It is safe for
// concurrent use.
func (s *Sink) Unchanged() time.Time {
	return s.watched.Load().confirmedBy(s.watch.last.Load(), s.topic.Name, s.client.cfg.Checkpoints)
}

// watchTransaction returns the function to call while Resume waits for a partition.
func (s *Sink) watchTransaction() meanwhile {
	a := abandonedTransaction{transactions: &s.transactions, hung: &s.hung, next: s.client.graceTime() / 2}
	return a.abortIfAbandoned
}

func decodeCheckpoint(data []byte, feedName string) (checkpoint.Checkpoint, error) {
	cp, err := checkpoint.Decode(data)
	if err != nil {
		return cp, fmt.Errorf("%w; if no newer feedbridge wrote it, set it again with 'feedbridge checkpoint set %s', or discard it with 'feedbridge checkpoint reset %[2]s'", err, feedName)
	}
	return cp, nil
}

func (s *Sink) errMissing() error {
	return feed.Permanent(fmt.Errorf("%w; set the position to continue from with 'feedbridge checkpoint set %s', "+
		"or start the feed over with 'feedbridge checkpoint reset %[2]s'", checkpoint.ErrMissing, s.topic.Feed))
}

// withExplainedErrors runs f and explains its errors.
func (s *Sink) withExplainedErrors(ctx context.Context, f func(context.Context) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := f(ctx); err != nil {
		return fmt.Errorf("topic %q: %w", s.topic.Name, s.explainError(ctx, err))
	}
	return nil
}

// explainError returns err, the error of an operation within ctx, with its cause and cure.
func (s *Sink) explainError(ctx context.Context, err error) error {
	cfg, id := s.client.cfg, s.transactions.id.name
	switch {
	case errors.Is(err, feed.ErrPermanent), errors.Is(err, checkpoint.ErrConflict):
		return err
	case isFenced(err):
		return fmt.Errorf("%w: another producer has taken the transactional id %q (%w); if no other copy of this feed runs, "+
			"another program uses it: set client_id", checkpoint.ErrConflict, id, err)
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return feed.Permanent(fmt.Errorf("this user may not use the transactional id %q (%w); run '%s --operation Write --operation Describe --transactional-id %[1]q'",
			id, err, cfg.aclCommand()))
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		// The error does not name the topic.
		topics := []string{s.topic.Name, cfg.Checkpoints}
		if s.dead != nil {
			topics = append(topics, s.dead.name)
		}
		return cfg.errTopicRights(err, topics...)
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return feed.Permanent(fmt.Errorf("%w: %w", sink.ErrTooLarge, err))
	case isMissingTopic(err) && !s.topic.Create && strings.Contains(err.Error(), cfg.Checkpoints):
		return missingCheckpointTopic(s.client, s.topic.Replication).errMissing()
	}
	return s.client.explainError(ctx, err)
}
