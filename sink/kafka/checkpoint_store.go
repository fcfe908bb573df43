package kafka

import (
	"context"
	"fmt"

	"github.com/feedbridge/feedbridge/checkpoint"
)

// takeOver makes the producer and initializes the transactional id, which fences off every
// other copy. From then on no other copy can commit, unless it initializes the id after
// this sink. What others have committed before, confirmNewest finds out.
func (s *Sink) takeOver(ctx context.Context) error {
	// A stale copy mostly finds out here, without disturbing anybody. It waits for a commit
	// that is under way, which would make this one stale. One that does not end is left to
	// Resume, which sees whether it hangs.
	if err := s.compare(ctx); err != nil {
		return err
	}
	return s.initialize(ctx, s.largestBatch())
}

// initialize opens the producer and initializes its transactional id.
func (s *Sink) initialize(ctx context.Context, batch int32) error {
	connections := new(connections)
	p, err := s.conn.newProducer(s.transactionalID, batch, connections)
	if err != nil {
		return err
	}
	s.producer, s.batch, s.connections, s.confirmed = p, batch, connections, -1
	bounded, cancel := s.conn.bounded(ctx)
	defer cancel()
	if err := initProducerID(bounded, p); err != nil {
		return causeOf(bounded, err)
	}
	return s.hung.beforeReuse(ctx)
}

// compare returns [checkpoint.ErrConflict] unless the newest checkpoint is the one that
// this sink has resumed from, as far as the broker knows that answers.
func (s *Sink) compare(ctx context.Context) error {
	was := s.place
	at, feeds, err := s.findCheckpoint(ctx, false, s.conn.grace(), nil)
	if err != nil {
		return err
	}
	if at != was {
		return fmt.Errorf("topic %q for checkpoints is another one since the sink resumed", s.conn.cfg.Checkpoints)
	}
	return s.mayFollow(feeds)
}

// confirmNewest returns [checkpoint.ErrConflict] if somebody has committed a checkpoint of
// this feed since the one that this sink has resumed from. It is called within the
// transaction, once the checkpoint of that is acknowledged: own is its offset.
func (s *Sink) confirmNewest(ctx context.Context, own int64) error {
	feeds, err := s.readBelow(ctx, own)
	if err != nil {
		return err
	}
	return s.mayFollow(feeds)
}

// readBelow returns the newest checkpoints of the topic below own, which is the offset of
// the first record of the open transaction in the partition. It is a linearizable read.
//
// A broker that was deposed as the leader of the partition answers with old offsets, and
// nothing fences such a read. But the true leader has appended the record at own, so it
// had every record below, and none can be added there. The last stable offset cannot pass
// own while this transaction is open, and it reaches own when every transaction below has
// ended. So a broker that says it has reached own knows everything below own, and how it
// ended. Anybody who commits a checkpoint of this feed above own has initialized the
// transactional id after this sink. Then this transaction can not be committed any more; or it
// was before, and they find its checkpoint when they read below theirs.
func (s *Sink) readBelow(ctx context.Context, own int64) (checkpoints, error) {
	c := s.conn
	if _, err := c.waitStableUpTo(ctx, c.cfg.Checkpoints, []int32{s.place.partition}, []int64{own}, c.cfg.Timeout, nil); err != nil {
		return nil, err
	}
	return c.checkpoints.readUnless(ctx, s.place, own, own, s.topic.Name)
}

// mayFollow returns an error unless the feed's checkpoint among feeds is the one that this
// sink has seen last, and there is no other feed's in a topic that is not shared. It compares
// the content, too: a cluster that has lost its newest records gives their offsets to others.
func (s *Sink) mayFollow(feeds checkpoints) error {
	if now := feeds.of(s.topic.Feed); !now.is(s.newest) {
		return fmt.Errorf("%w: the newest checkpoint has offset %d, not %d", checkpoint.ErrConflict, now.offset, s.newest.offset)
	}
	return s.foreign(feeds)
}
