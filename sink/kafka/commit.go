package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
// three times the configured timeout.
func (s *Sink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	// If anything goes wrong from here on, nobody knows whether the commit took
	// place until Resume has looked.
	ready := s.ready
	s.ready = false
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("commit: %w", context.Cause(ctx))
	case !ready:
		return errors.New("commit: the sink has not resumed since its last error")
	}
	ctx, cancel := s.conn.within(ctx, 3*s.conn.cfg.Timeout)
	defer cancel()
	if err := s.commit(ctx, entities, cp); err != nil {
		err = s.explain(ctx, err)
		s.abandon(ctx, err)
		return fmt.Errorf("commit: topic %q: %w", s.topic.Name, err)
	}
	s.ids.Commit(entities)
	s.ready = true
	return nil
}

// commit makes one transaction. The checkpoint goes last, for it names the offsets at which
// the entities end.
func (s *Sink) commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	records, err := s.records(entities)
	if err != nil {
		return err
	}
	if s.producer == nil {
		if err := s.takeOver(ctx); err != nil {
			return err
		}
	} else if err := s.hung.awaitEnd(ctx); err != nil {
		return err
	}
	if err := s.producer.BeginTransaction(); err != nil {
		return err
	}
	if err := s.send(ctx, records); err != nil {
		return err
	}
	if s.connections.changes.Load() != s.confirmed {
		// Transactions that wait for the last stable offset end one after the other. Those of
		// this process take turns, instead of finding out by asking again and again.
		release, err := s.conn.checkpoints.takeTurn(ctx, s.place.partition)
		if err != nil {
			return err
		}
		defer release()
	}
	written := kadm.OffsetsFromRecords(records...)
	ends := s.endsAfter(written)
	record := []kgo.Record{s.checkpointRecord(cp, ends)}
	if err := s.send(ctx, record); err != nil {
		return s.explainCheckpoint(err, len(record[0].Value))
	}
	if n := s.connections.changes.Load(); n != s.confirmed {
		if err := s.confirmNewest(ctx, record[0].Offset); err != nil {
			return err
		}
		s.confirmed = n
	}
	written.AddOffset(s.conn.cfg.Checkpoints, s.place.partition, record[0].Offset+1, -1)
	if err := commitSent(ctx, s.producer, written); err != nil {
		return err
	}
	// All of it is stored now. If the process ends here, Resume finds it so.
	s.newest = stored{offset: record[0].Offset, data: record[0].Value, ends: ends}
	s.placed = true
	s.seen.checkpoint, s.seen.next = s.newest, ends
	s.hung.afterCommit(ctx, written)
	return nil
}

// endsAfter returns the ends of the topic's partitions, as far as this sink knows them, once
// what it has written is committed: what they were when it resumed, and what it has written
// since. Nobody else writes for this feed, so the IDs up to there are known.
func (s *Sink) endsAfter(written kadm.Offsets) []int64 {
	ends := slices.Clone(s.seen.next)
	for partition, end := range written[s.topic.Name] {
		for int(partition) >= len(ends) {
			ends = append(ends, 0) // of a partition that was added since
		}
		ends[partition] = max(ends[partition], end.At)
	}
	return ends
}

// send writes records in the transaction that is open, and waits until they are
// acknowledged.
func (s *Sink) send(ctx context.Context, records []kgo.Record) error {
	p := s.producer
	// A closed client fails everything that it waits for.
	stop := context.AfterFunc(ctx, p.Close)
	defer stop()
	promise := kgo.AbortingFirstErrPromise(p)
	for i := range records {
		p.Produce(ctx, &records[i], promise.Promise())
	}
	if err := p.Flush(ctx); err != nil {
		return causeOf(ctx, err)
	}
	return causeOf(ctx, promise.Err())
}

// commitSent commits what was sent: all of it is in the log now, before the offsets written. If
// the process ends here, its successor aborts it. From here on the caller's end breaks
// nothing off, only the time does. After an error the commit may have taken place, or may
// yet.
func commitSent(ctx context.Context, p *kgo.Client, written kadm.Offsets) error {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadlineCause(context.WithoutCancel(ctx), deadline, errNoWord)
	defer cancel()
	if err := known(ctx, p, written); err != nil {
		return err
	}
	return causeOf(ctx, p.EndTransaction(ctx, kgo.TryCommit))
}

// known waits until the client has noted the partitions that it has written to. When it
// learns of a topic it sends what has waited for that first, and all may be written and
// answered before it has made the note. EndTransaction sees what is noted alone: if that
// is nothing it aborts and returns no error, and a partition that it does not see goes on
// with its sequence numbers, which the cluster refuses in the next transaction.
func known(ctx context.Context, p *kgo.Client, written kadm.Offsets) error {
	for _, at := range written.Sorted() {
		for {
			if leader, _, _ := p.PartitionLeader(at.Topic, at.Partition); leader >= 0 {
				break
			}
			if err := sleep(ctx, time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

var errNoWord = errors.New("the cluster has not said in time whether the transaction is committed")

// value is what an entity's message has: a null value for a tombstone alone.
func (s *Sink) value(e *feed.Entity) []byte {
	switch {
	case e.Op == feed.Delete && s.topic.Delete == DeleteTombstone:
		return nil
	case e.Body == nil:
		return []byte{}
	}
	return e.Body
}

// headers returns fields as franz-go has them, in two allocations.
func headers(fields feed.Header) []kgo.RecordHeader {
	size := 0
	for _, f := range fields {
		size += len(f.Value)
	}
	values := make([]byte, 0, size)
	list := make([]kgo.RecordHeader, len(fields))
	for i, f := range fields {
		from := len(values)
		values = append(values, f.Value...)
		list[i] = kgo.RecordHeader{Key: f.Name, Value: values[from:len(values):len(values)]}
	}
	return list
}
