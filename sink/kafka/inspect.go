package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/checkpoint"
)

// Checkpoint returns the checkpoint that the topic has, with the errors of
// Resume, but that of another feed is returned as it is if this feed has none. It
// changes nothing: a topic that is missing is an empty one.
func (s *Sink) Checkpoint(ctx context.Context) (checkpoint.Checkpoint, error) {
	var cp checkpoint.Checkpoint
	err := s.ask(ctx, func(ctx context.Context) error {
		last, err := s.inspect(ctx)
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
		if err := s.sameTopic(d, last); err != nil {
			return err
		}
		if last.data != nil {
			return s.lost(ctx, d, last.ends)
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

// inspect returns the newest checkpoint of the feed; of another feed, if the topic
// is not shared and has none of this one; and none.
func (s *Sink) inspect(ctx context.Context) (stored, error) {
	_, feeds, err := s.findCheckpoint(ctx, false, s.conn.cfg.Timeout, nil)
	if missing(err) {
		return stored{}, nil
	}
	if err != nil {
		return stored{}, err
	}
	return s.newestOf(feeds), nil
}

// newestOf returns the checkpoint among feeds that inspect returns.
func (s *Sink) newestOf(feeds checkpoints) stored {
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
		_, feeds, err := s.findCheckpoint(ctx, false, c.cfg.Timeout, nil)
		switch {
		case missing(err) && s.topic.Create:
			err = c.mayCreate(ctx, c.cfg.Checkpoints, checkpointPartitions, s.topic.Replication, checkpointConfig)
		case err == nil:
			err = s.foreign(feeds)
		}
		if err != nil {
			return err
		}
		if err := c.mayCommit(ctx, s.transactionalID); err != nil {
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

// mayCommit returns an error if this user may not use the transactional id. It asks
// for the end of a transaction of a producer that does not exist, so it touches no
// transaction. A new cluster has no coordinator until it has been asked for one.
func (c *Conn) mayCommit(ctx context.Context, transactionalID string) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := causeOf(ctx, c.admin.FindTxnCoordinators(ctx, transactionalID).Error())
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
