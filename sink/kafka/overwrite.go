package kafka

import (
	"context"
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
	exists := err == nil
	if err != nil && !isMissingTopic(err) {
		return err
	}
	s.id = d.ID
	if exists {
		// A transaction that hangs there is ended before the id is initialized.
		if _, err := s.check.waitStable(ctx, d, nil, s.watchTransaction()); err != nil {
			return err
		}
	}
	if _, err := s.dead.waitStable(ctx, s.watchTransaction()); err != nil {
		return err
	}
	ctx, cancel := c.withTimeout(ctx, 3*c.cfg.Timeout)
	defer cancel()
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
	var ends []int64
	if exists {
		if ends, err = c.listOffsets(ctx, d.Topic, d.Partitions.Numbers(), stableOffset); err != nil {
			return err
		}
	}
	replaced := store.newestOf(feeds)
	old, _ := checkpoint.Decode(replaced.data) // the caller has reported it if it cannot be read
	records = append(records, store.checkpointRecord(next(old), s.id, ends))
	if err := s.transactions.producer.BeginTransaction(); err != nil {
		return err
	}
	if err := s.transactions.sendRecords(ctx, records); err != nil {
		return store.explainWriteError(err, &records[len(records)-1])
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
