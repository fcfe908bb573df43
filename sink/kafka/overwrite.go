package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/checkpoint"
)

// Overwrite replaces the checkpoint with the one that next returns. next gets the checkpoint
// that [Sink.Checkpoint] would return, or the zero one if the topic has none or it cannot be
// read. The checkpoints of other feeds are deleted unless the topic is shared. Overwrite first
// fences every copy that writes to the topic. If another copy takes over at the same moment and
// commits first, the error is [checkpoint.ErrConflict]. It is for a person who moves a feed's
// position; the sink must Resume afterwards.
func (s *Sink) Overwrite(ctx context.Context, next func(old checkpoint.Checkpoint) checkpoint.Checkpoint) error {
	s.ready = false
	s.transactions.closeProducer()
	err := s.withExplainedErrors(ctx, func(ctx context.Context) error {
		err := s.overwrite(ctx, next)
		if err != nil {
			s.transactions.abandon(ctx, err)
		}
		s.transactions.closeProducer()
		return err
	})
	if err != nil {
		return fmt.Errorf("overwrite: %w", err)
	}
	return nil
}

func (s *Sink) overwrite(ctx context.Context, next func(old checkpoint.Checkpoint) checkpoint.Checkpoint) error {
	c, store := s.client, &s.checkpoints
	feeds, err := store.findCheckpoints(ctx, s.topic.Create, c.cfg.Timeout, s.watchTransaction())
	if err != nil {
		return err
	}
	d, err := c.describeTopic(ctx, s.topic.Name)
	if err != nil && !isMissingTopic(err) {
		return err
	}
	dead, err := s.dead.describeTopic(ctx)
	if err != nil {
		return err
	}
	for _, d := range []kadm.TopicDetail{d, dead} {
		// A transaction that hangs there is ended before the id is initialized.
		if _, err := s.check.waitStable(ctx, d, topicEnds{}, s.watchTransaction()); err != nil {
			return err
		}
	}
	var records []kgo.Record
	others := store.otherFeeds(feeds)
	for _, name := range others {
		if err := newTransactionalID(c, s.topic.Name, name).abortTransaction(ctx); err != nil {
			return err
		}
		records = append(records, kgo.Record{Topic: c.cfg.Checkpoints, Partition: store.location.partition, Key: store.checkpointKey(name)})
	}
	if err := s.fenceOthers(ctx, defaultBatch); err != nil {
		return err
	}
	// From here on only a copy that initializes its id after this can commit.
	if feeds, err = store.readCheckpoints(ctx, c.cfg.Timeout, nil); err != nil {
		return err
	}
	replaced := store.newestOf(feeds)
	moved := storedCheckpoint{dead: replaced.dead, sequence: replaced.sequence}
	if moved.topic, err = s.confirmEnds(ctx, d, replaced.topic); err != nil {
		return err
	}
	if s.dead != nil {
		if moved.dead, err = s.confirmEnds(ctx, dead, replaced.dead); err != nil {
			return err
		}
	}
	old, _ := checkpoint.Decode(replaced.data) // the caller has reported it if it cannot be read
	records = append(records, store.checkpointRecord(next(old), moved))
	ctx, cancel := c.withTimeout(ctx, 3*c.cfg.Timeout)
	defer cancel()
	if err := s.transactions.producer.BeginTransaction(); err != nil {
		return err
	}
	if err := s.transactions.sendRecords(ctx, records, nil); err != nil {
		return store.explainWriteError(err)
	}
	if feeds, err = store.readBelow(ctx, records[0].Offset); err != nil {
		return err
	}
	if now := store.newestOf(feeds); !now.equals(replaced) {
		return fmt.Errorf("%w: the newest checkpoint has offset %d, not %d", checkpoint.ErrConflict, now.offset, replaced.offset)
	}
	for _, name := range store.otherFeeds(feeds) {
		if !slices.Contains(others, name) {
			return fmt.Errorf("%w: feed %q", checkpoint.ErrConflict, name)
		}
	}
	return s.transactions.commit(ctx, kadm.OffsetsFromRecords(records...))
}

// confirmEnds returns the ends of a topic, which are the lower bound of what the next Resume reads. A
// deposed leader answers with lower ones than the replaced checkpoint has, for a while. If they stay
// lower, the topic has lost messages, which a person accepts by moving the position.
func (s *Sink) confirmEnds(ctx context.Context, d kadm.TopicDetail, replaced topicEnds) (topicEnds, error) {
	ends, err := s.check.confirmEnds(ctx, d, replaced)
	if errors.Is(err, checkpoint.ErrLost) {
		err = nil
	}
	return topicEnds{idText(d.ID), ends}, err
}
