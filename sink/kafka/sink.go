package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
)

// Sink appends to one topic and keeps its checkpoint beside it; see the package
// comment. But for IDs, Fits and Messages it is used by one goroutine at a time.
type Sink struct {
	conn            *Conn
	topic           Topic
	key             keyer  // nil if there are none
	name            string // the checkpoint's key
	transactionalID string
	ids             *sink.IDs

	// limit is the largest batch of records that the topic takes, in bytes; 0
	// before the first Resume.
	limit atomic.Int64

	// ready is set by a Resume and by a Commit that succeed, and cleared by
	// whatever fails. What follows holds while it is set.
	ready bool
	place place
	// id is the topic's.
	id kadm.TopicID
	// placed reports that there has been a checkpoint, as far as this sink knows.
	placed bool
	// newest is the newest checkpoint that this sink has seen. A commit is refused unless it
	// still is.
	newest stored

	// producer has initialized the transactional id; nil before the first commit, and after
	// any error. Another copy may have initialized the id since.
	producer *kgo.Client
	batch    int32 // the largest batch of the producer
	// connections are those of the producer, and confirmed how often they had changed when
	// newest was last found to be the newest checkpoint; -1 if the producer has not looked.
	connections *connections
	confirmed   int64

	hung hungTransaction

	// seen says up to where in each partition ids has been caught up, of which topic, with
	// which checkpoint, and since which move of the position by a person. It outlives errors.
	seen struct {
		id         kadm.TopicID
		known      bool
		moved      time.Time
		next       []int64
		checkpoint stored
	}
}

// Sink returns a sink for a topic. The topic is looked at, and created if need
// be, by Resume.
func (c *Conn) Sink(t Topic) *Sink {
	t.Partitions = max(1, t.Partitions)
	s := &Sink{
		conn: c, topic: t, key: t.Key.keyer(),
		name:            t.Name + "/" + t.Feed,
		transactionalID: c.transactionalID(t.Name, t.Feed),
		ids:             sink.NewIDs(t.Window),
		newest:          stored{offset: -1},
	}
	s.hung.sink = s
	s.seen.checkpoint = stored{offset: -1}
	return s
}

// IDs returns the newest IDs that the topic holds, and all of its marks, as of the
// last Resume or Commit. It always returns the same.
func (s *Sink) IDs() *sink.IDs { return s.ids }

// Resume checks that the topic is fit to be committed to, and creates it if it is
// missing and the configuration says so. It returns the stored checkpoint, having
// caught up IDs with it. It disturbs no copy that is alive.
func (s *Sink) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	s.ready = false
	s.ids.Rollback()
	was := s.newest
	var cp checkpoint.Checkpoint
	err := s.ask(ctx, func(ctx context.Context) (err error) {
		// Another copy may commit while the IDs are read, and they would be
		// ahead of the checkpoint: the next commit would be refused, but what is
		// read until then would look repeated.
		for range 3 {
			var again bool
			if cp, again, err = s.resume(ctx); err != nil || !again {
				return err
			}
		}
		return nil
	})
	if err != nil || !s.newest.is(was) || s.batch != s.largestBatch() {
		// The producer has been fenced by the copy that made the newest checkpoint, or the
		// topic takes other batches now.
		s.close()
	}
	if err != nil {
		return checkpoint.Checkpoint{}, fmt.Errorf("resume: %w", err)
	}
	s.hung.drop()
	s.ready = true
	return cp, nil
}

func (s *Sink) resume(ctx context.Context) (cp checkpoint.Checkpoint, again bool, err error) {
	was := s.place
	at, feeds, err := s.findCheckpoint(ctx, s.topic.Create, s.conn.cfg.Timeout, s.watchTransaction().check)
	if err != nil {
		return cp, false, err
	}
	if at != was {
		s.seen.known, s.seen.checkpoint = s.seen.known && was == place{}, stored{offset: -1}
	}
	if err := s.foreign(feeds); err != nil {
		return cp, false, err
	}
	s.newest = feeds.of(s.topic.Feed)
	found := s.newest.offset >= 0
	if found {
		s.placed = true
		if cp, err = decode(s.newest.data, s.topic.Feed); err != nil {
			return cp, false, err
		}
	}
	d, err := s.checkTopic(ctx, s.newest, cp)
	if err != nil {
		return cp, false, err
	}
	if !found {
		if s.placed {
			return cp, false, s.errMissing()
		}
		written, ends, err := s.written(ctx, d)
		if err != nil {
			return cp, false, err
		}
		if !written {
			s.forget(d)
			s.seen.next, s.seen.checkpoint = ends, s.newest
			return cp, false, nil
		}
	} else if err := s.catchUp(ctx, d, cp); err != nil {
		return cp, false, err
	}
	now, err := s.current(ctx)
	if err != nil {
		return cp, false, err
	}
	if !found && now.offset < 0 {
		return cp, false, s.errMissing()
	}
	return cp, !now.is(s.newest), nil
}

func decode(data []byte, feedName string) (checkpoint.Checkpoint, error) {
	cp, err := checkpoint.Decode(data)
	if err != nil {
		return cp, fmt.Errorf("%w; if no newer feedbridge wrote it, set it anew with 'feedbridge checkpoint set %s', or discard it with 'feedbridge checkpoint reset %[2]s'", err, feedName)
	}
	return cp, nil
}

func (s *Sink) errMissing() error {
	return feed.Permanent(fmt.Errorf("%w; say where to read on with 'feedbridge checkpoint set %s', "+
		"or start the feed over with 'feedbridge checkpoint reset %[2]s'", checkpoint.ErrMissing, s.topic.Feed))
}

// feeds returns the checkpoints of the topic in one partition, once every transaction there
// has ended.
func (s *Sink) feeds(ctx context.Context, at place, patience time.Duration, meanwhile func(context.Context, time.Duration) error) (checkpoints, error) {
	c := s.conn
	ends, err := c.waitStable(ctx, c.cfg.Checkpoints, []int32{at.partition}, nil, patience, meanwhile)
	if err != nil {
		return nil, err
	}
	return c.checkpoints.read(ctx, at, ends[0], s.topic.Name)
}

// current returns the newest checkpoint of the feed that is committed. It does not wait for
// transactions that are open.
func (s *Sink) current(ctx context.Context) (stored, error) {
	c := s.conn
	ends, err := c.offsets(ctx, c.cfg.Checkpoints, []int32{s.place.partition}, stable)
	if err != nil {
		return stored{}, err
	}
	feeds, err := c.checkpoints.read(ctx, s.place, ends[0], s.topic.Name)
	return feeds.of(s.topic.Feed), err
}

// foreign returns an error that matches [checkpoint.ErrForeign] if another feed
// writes into the topic and it is not shared.
func (s *Sink) foreign(feeds checkpoints) error {
	if s.topic.Shared {
		return nil
	}
	for name := range feeds {
		if name != s.topic.Feed {
			return feed.Permanent(fmt.Errorf("%w: it has a checkpoint of feed %q, this is feed %q; give the feed a topic of its own, "+
				"or set \"shared: true\" for all feeds that write into it, or take the topic over with 'feedbridge checkpoint reset %[3]s', "+
				"if the other feed is gone", checkpoint.ErrForeign, name, s.topic.Feed))
		}
	}
	return nil
}

// ask runs f and makes its errors understandable.
func (s *Sink) ask(ctx context.Context, f func(context.Context) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := f(ctx); err != nil {
		return fmt.Errorf("topic %q: %w", s.topic.Name, s.explain(ctx, err))
	}
	return nil
}

// written says whether the topic has messages of this feed, or may have had some,
// and up to where in each partition it has looked.
func (s *Sink) written(ctx context.Context, d description) (bool, []int64, error) {
	c := s.conn
	ends, err := s.waitTopic(ctx, d, nil)
	if err != nil {
		return false, nil, err
	}
	starts, err := c.offsets(ctx, d.name, d.partitions(), first)
	if err != nil {
		return false, nil, err
	}
	found := false
	for p, to := range ends {
		from := starts[p]
		if s.topic.Shared {
			// All of a topic that others fill for years is too much to read.
			from = max(from, to-s.reach())
		} else if from > 0 {
			// What is gone counts.
			return true, ends, nil
		}
		err := c.scan(ctx, d.name, int32(p), from, to, func(r *kgo.Record) (bool, error) {
			found = s.mine(r)
			return !found, nil
		})
		if err != nil || found {
			return found, ends, err
		}
	}
	return false, ends, nil
}

// mine says whether a record counts as this feed's.
func (s *Sink) mine(r *kgo.Record) bool {
	if !s.topic.Shared {
		return true
	}
	for _, h := range r.Headers {
		if h.Key == message.FeedName {
			return string(h.Value) == s.topic.Feed
		}
	}
	return false
}

// missing says whether an error is that a topic does not exist.
func missing(err error) bool { return errors.Is(err, kerr.UnknownTopicOrPartition) }
