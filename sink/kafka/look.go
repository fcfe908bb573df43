package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// Checkpoint returns the checkpoint that the topic has, with the errors of
// Resume, but that of another feed is returned as it is if this feed has none. It
// changes nothing: a topic that is missing is an empty one.
func (s *Sink) Checkpoint(ctx context.Context) (checkpoint.Checkpoint, error) {
	var cp checkpoint.Checkpoint
	err := s.ask(ctx, func(ctx context.Context) error {
		last, err := s.lookAt(ctx)
		if err != nil {
			return err
		}
		if last.data != nil {
			if cp, err = decode(last.data, s.topic.Feed); err != nil {
				return err
			}
		}
		d, err := s.conn.describe(ctx, s.topic.Name)
		switch {
		case missing(err) && cp.Count == 0:
			return nil
		case missing(err):
			return s.errGone()
		case err != nil:
			return err
		}
		if err := s.sameTopic(d, last); err != nil || last.data != nil {
			return err
		}
		written, _, err := s.written(ctx, d)
		if err == nil && written {
			err = s.errMissing()
		}
		return err
	})
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	return cp, nil
}

// lookAt returns the newest checkpoint of the feed; of another feed, if the topic
// is not shared and has none of this one; and none.
func (s *Sink) lookAt(ctx context.Context) (stored, error) {
	at, err := s.conn.store.find(ctx, s.topic, false)
	if missing(err) {
		return stored{}, nil
	}
	if err != nil {
		return stored{}, err
	}
	feeds, err := s.feeds(ctx, at, s.conn.cfg.Timeout, nil)
	if err != nil {
		return stored{}, err
	}
	return s.newest(feeds), nil
}

// newest is that of the checkpoints of the topic which lookAt returns.
func (s *Sink) newest(feeds map[string]stored) stored {
	last, found := feeds[s.topic.Feed]
	if !found && !s.topic.Shared {
		for _, name := range slices.Sorted(maps.Keys(feeds)) {
			return feeds[name]
		}
	}
	return last
}

// Check says what would keep a Resume and a Commit from working, without changing
// anything: a topic that is missing and may be created is fine.
func (s *Sink) Check(ctx context.Context) error {
	return s.ask(ctx, func(ctx context.Context) error {
		c := s.conn
		at, err := c.store.find(ctx, s.topic, false)
		switch {
		case missing(err) && s.topic.Create:
			err = c.mayCreate(ctx, c.cfg.Checkpoints, checkpointPartitions, s.topic.Replication, checkpointConfig)
		case err == nil:
			var feeds map[string]stored
			if feeds, err = s.feeds(ctx, at, c.cfg.Timeout, nil); err == nil {
				err = s.foreign(feeds)
			}
		}
		if err != nil {
			return err
		}
		if err := s.mayCommit(ctx); err != nil {
			return err
		}
		d, err := c.describe(ctx, s.topic.Name)
		if missing(err) && s.topic.Create {
			return c.mayCreate(ctx, s.topic.Name, s.topic.Partitions, s.topic.Replication, s.topicConfig())
		}
		if err != nil {
			return err
		}
		_, err = s.fitness(ctx, d)
		return err
	})
}

// mayCommit finds out whether this user may use the transactional ids, by asking
// for the end of a transaction of a producer that nobody is. It touches no
// transaction. A new cluster has no coordinator until it has been asked for one.
func (s *Sink) mayCommit(ctx context.Context) error {
	ctx, cancel := s.conn.bounded(ctx)
	defer cancel()
	for i := range s.writers {
		if err := s.conn.mayCommitAs(ctx, s.writers[i].id); err != nil {
			return err
		}
	}
	return nil
}

func (c *Conn) mayCommitAs(ctx context.Context, transactionalID string) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := c.findCoordinator(ctx, transactionalID)
		if err == nil {
			return c.mayWrite(ctx, transactionalID)
		}
		if !passes(err) || sleep(ctx, wait) != nil {
			return err
		}
	}
}

func (c *Conn) mayWrite(ctx context.Context, transactionalID string) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = transactionalID, -1, -1
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return causeOf(ctx, err)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		return err
	}
	return nil
}

func (c *Conn) findCoordinator(ctx context.Context, transactionalID string) error {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = 1
	req.CoordinatorKey = transactionalID
	req.CoordinatorKeys = []string{transactionalID}
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return causeOf(ctx, err)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	for _, c := range resp.Coordinators {
		if err := kerr.ErrorForCode(c.ErrorCode); err != nil {
			return err
		}
	}
	return nil
}

// Overwrite stores what next makes of the checkpoint that [Sink.Checkpoint] would
// return, the zero one if the topic has none or one that cannot be read, and
// discards those of other feeds unless the topic is shared. It fences whoever
// writes to the topic. Like a commit it is refused with [checkpoint.ErrConflict] if
// someone commits at the same moment. It is for a person who moves a feed's place;
// the sink must Resume afterwards.
func (s *Sink) Overwrite(ctx context.Context, next func(old checkpoint.Checkpoint) checkpoint.Checkpoint) error {
	s.ready = false
	s.close()
	err := s.ask(ctx, func(ctx context.Context) error {
		at, err := s.conn.store.find(ctx, s.topic, s.topic.Create)
		if err != nil {
			return err
		}
		s.place = at
		feeds, err := s.feeds(ctx, at, s.conn.cfg.Timeout, s.watch().look)
		if err != nil {
			return err
		}
		s.fence = -1
		if last, ok := feeds[s.topic.Feed]; ok {
			s.fence = last.offset
		}
		d, err := s.conn.describe(ctx, s.topic.Name)
		if err != nil && !missing(err) {
			return err
		}
		s.id = d.id
		if err == nil {
			// A transaction that hangs there is ended before the id is taken.
			if _, err := s.settleTopic(ctx, d); err != nil {
				return err
			}
		}
		return s.overwrite(ctx, feeds, next)
	})
	if err != nil {
		return fmt.Errorf("overwrite: %w", err)
	}
	return nil
}

func (s *Sink) overwrite(ctx context.Context, feeds map[string]stored, next func(old checkpoint.Checkpoint) checkpoint.Checkpoint) error {
	var records []kgo.Record
	if !s.topic.Shared {
		for _, name := range slices.Sorted(maps.Keys(feeds)) {
			if name == s.topic.Feed {
				continue
			}
			for _, id := range s.conn.transactionalIDs(s.topic.Name, name) {
				if err := s.conn.endTransaction(ctx, id); err != nil {
					return err
				}
			}
			records = append(records, kgo.Record{Topic: s.conn.cfg.Checkpoints, Partition: s.place.partition, Key: []byte(s.topic.Name + "/" + name)})
		}
	}
	ctx, cancel := s.conn.within(ctx, 3*s.conn.cfg.Timeout)
	defer cancel()
	if err := s.take(ctx, defaultBatch, false); err != nil {
		return err
	}
	defer s.close()
	// Nobody else can commit any more. Before, another feed may have.
	feeds, err := s.feeds(ctx, s.place, s.conn.cfg.Timeout, nil)
	if err != nil {
		return err
	}
	old, _ := checkpoint.Decode(s.newest(feeds).data) // whoever moves the place was told
	p := s.writers[0].producer
	records = append(records, s.checkpointRecord(next(old)))
	if err := send(ctx, p, records, nil); err != nil {
		return err
	}
	return commitSent(ctx, p, lastOf(records))
}

// errNone says that a topic is missing and is not to be created.
func (s *Sink) errNone(topic string) error {
	partitions, config := s.topic.Partitions, append([]string{"retention.ms=-1"}, s.topic.Config...)
	if topic == s.conn.cfg.Checkpoints {
		partitions, config = checkpointPartitions, checkpointConfig
	}
	return feed.Permanent(fmt.Errorf("there is no topic %s, and create is off; create it with '%s'", topic, s.conn.creation(topic, partitions, config)))
}
