package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// MaxEntities and MaxBytes bound a commit. A transaction costs the broker some
// milliseconds, whatever it has, and the next one of the same transactional id waits for
// its end, so large commits are faster. A commit is held in memory until it is confirmed.
const (
	MaxEntities = 5_000
	MaxBytes    = 8 << 20
)

// Commit appends entities and stores cp in one transaction. It takes at most
// three times the configured timeout, and more while a quota makes it wait.
func (s *Sink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	// After an error from here on, it is unknown whether the commit took place until Resume has
	// read the topic.
	ready := s.ready
	s.ready = false
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("commit: %w", context.Cause(ctx))
	case !ready:
		return errors.New("commit: the sink has not resumed since its last error")
	}
	// The entities may have to wait for those of the commit before, and the checkpoint for them.
	ctx, cancel := s.client.withTimeout(ctx, 3*s.client.cfg.Timeout+2*s.client.recentThrottle())
	defer cancel()
	s.transactions.claim()
	if err := s.commitTransaction(ctx, entities, cp); err != nil {
		err = s.explainError(ctx, err)
		s.transactions.abandon(ctx, err)
		return fmt.Errorf("commit: topic %q: %w", s.topic.Name, err)
	}
	s.IDs().Commit(entities)
	s.ready = true
	s.recordWatched(s.watched.Load().consumers)
	s.transactions.park(s.client.idleTime(), s.client.closeProducer) // no transaction is open
	return nil
}

// commitTransaction makes one transaction: the entities, the dead letters, and the checkpoint. The numbers are those of the steps in the package comment,
// which argues why they are enough. The checkpoint goes last, for it names the offsets at
// which the entities end.
func (s *Sink) commitTransaction(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	store, transactions := &s.checkpoints, &s.transactions
	publishedBefore := cp.Count - uint64(len(entities)-feed.CountDead(entities))
	records, err := s.records.makeRecords(entities, s.dedupe.sequence, publishedBefore)
	if err != nil {
		return err
	}
	// Also if the producer was closed since: once the id is initialized again, the cluster no longer
	// knows how the last commit has ended.
	stable, err := s.hung.awaitEnd(ctx, s.dedupe.knownPartitions())
	if err != nil {
		return err
	}
	if transactions.isNearLastEpoch(ctx) {
		transactions.closeProducer() // the last transaction has ended
	}
	if transactions.producer == nil {
		// 1. A stale copy mostly finds out here, without disturbing anybody. It waits for a
		// commit that is under way, which would make this one stale. One that does not end is
		// left to Resume, which sees whether it hangs.
		if err := store.checkUnchanged(ctx); err != nil {
			return err
		}
		// 2. The fence.
		if err := s.fenceOthers(ctx, s.records.largestBatch()); err != nil {
			return err
		}
	}
	if transactions.connections.changes.Load() != s.confirmed {
		// Transactions that wait for the last stable offset end one after the other. Those of
		// this process take turns, instead of finding out by asking again and again. None is
		// open while it waits for its turn: another copy of the feed would take it for abandoned.
		turn, err := store.topic.partitionCache(store.location.partition).turn.Acquire(ctx)
		if err != nil {
			return err
		}
		defer turn.Release()
		stable = nil // the brokers may be others now
	}
	// New records would hide from Resume that the topic has lost messages before them.
	if err := s.dedupe.compareEnds(ctx, stable, records.dead); err != nil {
		return err
	}
	// 3.
	if err := transactions.producer.BeginTransaction(); err != nil {
		return err
	}
	if err := transactions.sendRecords(ctx, records.entities, s.records.freeStored(entities, records)); err != nil {
		return err
	}
	if err := s.dedupe.checkOffsets(ctx, records.entities, s.dedupe.seen.topic); err != nil {
		return err
	}
	if err := transactions.sendRecords(ctx, records.dead, nil); err != nil {
		return fmt.Errorf("dead-letter topic %s: %w", s.dead.name, err)
	}
	if err := s.dedupe.checkOffsets(ctx, records.dead, s.dedupe.seen.dead); err != nil {
		return err
	}
	written := kadm.OffsetsFromRecords(records.entities...)
	if n := len(records.dead); n > 0 { // all in one partition
		written.Add(kadm.NewOffsetFromRecord(&records.dead[n-1]))
	}
	next := storedCheckpoint{sequence: records.sequence}
	next.topic, next.dead = s.dedupe.endsAfter(written)
	record := []kgo.Record{store.checkpointRecord(cp, next)}
	if err := transactions.sendRecords(ctx, record, nil); err != nil {
		return store.explainWriteError(err)
	}
	own := record[0].Offset
	// 4.
	if n := transactions.connections.changes.Load(); n != s.confirmed {
		feeds, err := store.readBelow(ctx, own)
		if err != nil {
			return err
		}
		if err := store.checkNewest(feeds); err != nil {
			return err
		}
		s.confirmed = n
	}
	// 5.
	written.AddOffset(record[0].Topic, record[0].Partition, own+1, -1)
	if err := transactions.commit(ctx, written); err != nil {
		return err
	}
	// All of it is stored now. If the process ends here, Resume finds it so.
	next.offset, next.data = own, record[0].Value
	store.newest = next
	s.hadCheckpoint = true
	s.dedupe.recordCommit(store.newest)
	s.hung.afterCommit(written)
	records.release()
	return nil
}

// fenceOthers initializes the transactional id. From then on no other copy can commit, unless
// it initializes the id after this sink. Commits of other copies before that are found by
// reading below the first record of the transaction.
//
// When the epochs of the producer id are nearly used up, it initializes the id again and again until
// the cluster has assigned another producer id; see [transactions.isNearLastEpoch].
func (s *Sink) fenceOthers(ctx context.Context, batch int32) error {
	s.confirmed = -1
	for {
		if err := s.transactions.initialize(ctx, batch); err != nil {
			return err
		}
		if err := s.hung.beforeReuse(ctx); err != nil || !s.transactions.isNearLastEpoch(ctx) {
			return err
		}
		s.transactions.closeProducer()
	}
}
