package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink"
)

// How large a commit may get. A transaction costs a few milliseconds, whatever is
// in it, and is held in memory until it is committed. Transactions of 500 and of
// 1,400 entities of 1 KiB were about as fast on a broker of Kafka 4.3, so the
// memory decides: what is read ahead makes most commits smaller than this.
const (
	MaxEntities = 5_000
	MaxBytes    = 4 << 20
)

// Commit appends entities and stores cp in one transaction. It takes at most
// three times the configured timeout.
func (s *Sink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	return s.CommitStaging(ctx, entities, cp, nil)
}

// CommitStaging is Commit. While the cluster takes the records it asks next, unless
// that is nil, what the following commit will have, and makes its records. Nothing
// of them is sent before that commit.
func (s *Sink) CommitStaging(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint, next func() []feed.Entity) error {
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
	if err := s.commit(ctx, entities, cp, next); err != nil {
		err = s.explain(ctx, err)
		s.abandon(ctx, err)
		return fmt.Errorf("commit: topic %q: %w", s.topic.Name, err)
	}
	// All of it is stored now. If the process ends here, Resume finds it so.
	s.ids.Commit(entities)
	s.ready = true
	return nil
}

func (s *Sink) commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint, next func() []feed.Entity) error {
	m := s.ahead
	s.ahead = made{}
	if !m.serves(entities) {
		var err error
		if m, err = s.makeRecords(entities); err != nil {
			return err
		}
	}
	if !s.open {
		if err := s.takeOver(ctx); err != nil {
			return err
		}
	}
	w := &s.writers[s.turn]
	if err := s.healthy(ctx, w); err != nil {
		return err
	}
	records := append(m.records, s.checkpointRecord(cp))
	last, err := transact(ctx, w.producer, records, func() {
		if next != nil {
			s.stage(next())
		}
	})
	if err != nil {
		return err
	}
	s.fence, s.own, s.placed = last, last, true
	s.seen.checkpoint, w.ended = last, time.Now()
	s.turn = (s.turn + 1) % len(s.writers)
	clear(w.last)
	for i := range m.records {
		w.last[records[i].Partition] = records[i].Offset
		// Nobody else writes for this feed, so the IDs in between are known.
		if r := &records[i]; int(r.Partition) < len(s.seen.next) {
			s.seen.next[r.Partition] = max(s.seen.next[r.Partition], r.Offset+1)
		}
	}
	// They hold on to the page that the entities were read from.
	clear(records)
	s.spare = records[:0]
	return nil
}

// markersFor is how long the cluster takes to write the markers of a transaction,
// unless there is something the matter with it.
const markersFor = 100 * time.Millisecond

// errHangs is a reason to resume, which ends what hangs.
var errHangs = errors.New("the last commit but one is not ended in all partitions, though the cluster takes it for ended")

// healthy returns an error if the transaction hangs that a writer made last. If its
// next one were aborted, that one would be, too, though it was committed. The
// cluster is asked if something took so long that this may be.
func (s *Sink) healthy(ctx context.Context, w *writer) error {
	if !s.conn.tells.Load() || w.ended.IsZero() || time.Since(w.ended) < markersFor {
		return nil
	}
	now, err := s.transaction(ctx, w)
	if err != nil {
		return nil // the commit itself will find out what the matter is
	}
	if where, _, err := s.hanging(ctx, now); err == nil && len(where) > 0 {
		return errHangs
	}
	return nil
}

// transact commits records, all or nothing, and returns the offset of the last.
// If it fails, the commit may have taken place, or may yet. It calls meanwhile,
// unless it is nil, once the records are on their way.
func transact(ctx context.Context, p *kgo.Client, records []kgo.Record, meanwhile func()) (int64, error) {
	// Closed, the client answers everything that is still waited for.
	stop := context.AfterFunc(ctx, p.Close)
	defer stop()
	if err := p.BeginTransaction(); err != nil {
		return 0, err
	}
	promise := kgo.AbortingFirstErrPromise(p)
	for i := range records {
		p.Produce(ctx, &records[i], promise.Promise())
	}
	if meanwhile != nil {
		meanwhile()
	}
	if err := p.Flush(ctx); err != nil {
		return 0, causeOf(ctx, err)
	}
	if err := promise.Err(); err != nil {
		return 0, causeOf(ctx, err)
	}
	// All of the records are in the log now. If the process ends here, its
	// successor aborts them. From here on the caller's end breaks nothing off,
	// only the time does.
	stop()
	deadline, _ := ctx.Deadline()
	ending, cancel := context.WithDeadlineCause(context.WithoutCancel(ctx), deadline, errNoWord)
	defer cancel()
	if err := p.EndTransaction(ending, kgo.TryCommit); err != nil {
		return 0, causeOf(ending, err)
	}
	return records[len(records)-1].Offset, nil
}

var errNoWord = errors.New("the cluster has not said in time whether the transaction is committed")

// makeRecords returns the records of entities. It takes the spare memory for them.
func (s *Sink) makeRecords(entities []feed.Entity) (made, error) {
	records := s.spare
	s.spare = nil
	if n := len(entities) + 1; cap(records) < n {
		records = make([]kgo.Record, 0, n)
	}
	var fields feed.Header
	for i := range entities {
		e := &entities[i]
		fields = sink.AppendHeader(fields[:0], s.topic.Feed, *e)
		key, err := s.keyOf(*e)
		if err == nil {
			err = s.fits(fields, len(key), len(e.Body))
		}
		if err != nil {
			// The gate has asked already, but the topic may take less since.
			return made{}, feed.Permanent(fmt.Errorf("entity %q: %w", e.ID, err))
		}
		r := kgo.Record{Topic: s.topic.Name, Partition: int32(s.topic.Partition), Key: key, Value: s.value(e), Headers: headers(fields)}
		records = append(records, r)
	}
	return made{entities, records}, nil
}

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

// checkpointRecord is the record that has cp.
func (s *Sink) checkpointRecord(cp checkpoint.Checkpoint) kgo.Record {
	r := kgo.Record{Topic: s.conn.cfg.Checkpoints, Partition: s.place.partition, Key: []byte(s.name), Value: checkpoint.Encode(cp)}
	if id := idText(s.id); id != "" {
		r.Headers = []kgo.RecordHeader{{Key: topicID, Value: []byte(id)}}
	}
	return r
}
