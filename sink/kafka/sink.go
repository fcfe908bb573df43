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
	conn    *Conn
	topic   Topic
	key     keyer  // nil if there are none
	name    string // the checkpoint's key
	writers [2]writer
	ids     *sink.IDs

	// limit is the largest batch of records that the topic takes, in bytes; 0
	// before the first Resume.
	limit atomic.Int64

	// ready is set by a Resume and by a Commit that succeed, and cleared by
	// whatever fails. What follows holds while it is set.
	ready bool
	place place
	// id is the topic's.
	id kadm.TopicID
	// placed says that there has been a checkpoint, as far as this sink knows.
	placed bool
	// fence is the offset of the newest checkpoint that this sink has seen; -1
	// if there is none. A commit is refused unless it still is the newest.
	fence int64

	// open says that the writers have their producers: from the first commit on,
	// until any error of one. They may have been fenced since.
	open  bool
	turn  int          // the writer whose turn the next commit is
	batch int32        // the largest batch of the producers
	own   int64        // the offset of the checkpoint that was committed last
	cure  *cure        // nil unless one is under way
	ahead made         // the records of what the next commit may have
	spare []kgo.Record // what they may be made in; empty, and used by no producer

	// seen says up to where in each partition ids has been caught up, of what
	// topic, and since which move of the place by a person. It outlives errors.
	seen struct {
		id    kadm.TopicID
		known bool
		moved time.Time
		next  []int64
		// checkpoint is the offset of the newest checkpoint then.
		checkpoint int64
	}
}

// Sink returns a sink for a topic. The topic is looked at, and created if need
// be, by Resume.
func (c *Conn) Sink(t Topic) *Sink {
	t.Partitions = max(1, t.Partitions)
	s := &Sink{
		conn: c, topic: t, key: t.Key.keyer(),
		name: t.Name + "/" + t.Feed,
		ids:  sink.NewIDs(t.Window),
	}
	for i, id := range c.transactionalIDs(t.Name, t.Feed) {
		s.writers[i].id = id
	}
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
	s.ahead = made{} // they were measured by what the topic took then
	s.ids.Rollback()
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
	if err != nil {
		return checkpoint.Checkpoint{}, fmt.Errorf("resume: %w", err)
	}
	if s.open && (s.fence != s.own || s.batch != s.largestBatch()) {
		// They have been fenced by whoever made the newest checkpoint, or the
		// topic takes other batches now.
		s.close()
	}
	if s.cure != nil {
		// Another copy has ended what hung. To go on with it would disturb that copy.
		s.conn.closeProducer(s.cure.producer)
		s.cure = nil
	}
	s.ready = true
	return cp, nil
}

func (s *Sink) resume(ctx context.Context) (cp checkpoint.Checkpoint, again bool, err error) {
	at, err := s.conn.store.find(ctx, s.topic, s.topic.Create)
	if err != nil {
		return cp, false, err
	}
	if at != s.place {
		// What was committed last lies nowhere any more.
		s.close()
		s.place, s.seen.checkpoint = at, -1
	}
	feeds, err := s.feeds(ctx, s.place, s.conn.cfg.Timeout, s.watch().look)
	if err != nil {
		return cp, false, err
	}
	if err := s.foreign(feeds); err != nil {
		return cp, false, err
	}
	last, found := feeds[s.topic.Feed]
	s.fence = -1
	if found {
		s.fence, s.placed = last.offset, true
		if cp, err = decode(last.data, s.topic.Feed); err != nil {
			return cp, false, err
		}
	}
	d, err := s.checkTopic(ctx, last, cp)
	if err != nil {
		return cp, false, err
	}
	if !found {
		// With another number of partitions it lies elsewhere.
		if elsewhere, err := s.elsewhere(ctx); err != nil || elsewhere {
			if err == nil {
				err = fmt.Errorf("%w (topic %s has one of this feed in another partition: somebody has changed the number of its partitions)",
					s.errMissing(), s.conn.cfg.Checkpoints)
			}
			return cp, false, err
		}
		if s.placed {
			return cp, false, s.errMissing()
		}
		written, ends, err := s.written(ctx, d)
		if err != nil {
			return cp, false, err
		}
		if !written {
			s.forget(d)
			s.seen.next = ends
			return cp, false, nil
		}
	} else if err := s.catchUp(ctx, d, cp); err != nil {
		return cp, false, err
	}
	now, err := s.current(ctx)
	if err != nil {
		return cp, false, err
	}
	if !found && now < 0 {
		return cp, false, s.errMissing()
	}
	return cp, now != s.fence, nil
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

// feeds returns the checkpoints of the topic, by feed, once all that the partition
// has is committed or aborted.
func (s *Sink) feeds(ctx context.Context, at place, patience time.Duration, meanwhile func(context.Context, time.Duration) error) (map[string]stored, error) {
	c := s.conn
	ends, err := c.settle(ctx, c.cfg.Checkpoints, []int32{at.partition}, patience, meanwhile)
	if err != nil {
		return nil, err
	}
	return c.store.read(ctx, at, ends[0], s.topic.Name)
}

// current returns the offset of the newest checkpoint that is committed, -1 if
// there is none. It does not wait for transactions that are under way.
func (s *Sink) current(ctx context.Context) (int64, error) {
	c := s.conn
	ends, err := c.offsets(ctx, c.cfg.Checkpoints, []int32{s.place.partition}, stable)
	if err != nil {
		return 0, err
	}
	feeds, err := c.store.read(ctx, s.place, ends[0], s.topic.Name)
	if err != nil {
		return 0, err
	}
	if last, ok := feeds[s.topic.Feed]; ok {
		return last.offset, nil
	}
	return -1, nil
}

// foreign returns an error that matches [checkpoint.ErrForeign] if another feed
// writes into the topic and it is not shared.
func (s *Sink) foreign(feeds map[string]stored) error {
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
	ends, err := s.settleTopic(ctx, d)
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

// elsewhere says whether another partition has a checkpoint of this feed: the
// topic for checkpoints has another number of partitions now.
func (s *Sink) elsewhere(ctx context.Context) (bool, error) {
	d, err := s.conn.describe(ctx, s.conn.cfg.Checkpoints)
	if err != nil {
		return false, err
	}
	ends, err := s.conn.offsets(ctx, d.name, d.partitions(), stable)
	if err != nil {
		return false, err
	}
	for p, to := range ends {
		if int32(p) == s.place.partition || to == 0 {
			continue
		}
		feeds, err := s.conn.store.read(ctx, place{s.place.id, int32(p)}, to, s.topic.Name)
		if err != nil {
			return false, err
		}
		if _, ok := feeds[s.topic.Feed]; ok {
			return true, nil
		}
	}
	return false, nil
}
