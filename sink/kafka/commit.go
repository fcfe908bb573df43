package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
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
	w, other := &s.writers[s.turn], &s.writers[1-s.turn]
	if err := s.healthy(ctx, w); err != nil {
		return err
	}
	records := append(m.records, s.checkpointRecord(cp))
	err := send(ctx, w.producer, records, func() {
		if next != nil {
			s.stage(next())
		}
	})
	if err != nil {
		return err
	}
	other.over = s.askWhetherOver(ctx, other.last)
	last := lastOf(records)
	if err := commitSent(ctx, w.producer, last); err != nil {
		return err
	}
	newest := records[len(records)-1].Offset
	s.fence, s.own, s.placed = newest, newest, true
	s.seen.checkpoint = newest
	w.last, w.over = last, nil
	s.turn = 1 - s.turn
	for i := range m.records {
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

// lastOf returns where the last record of each partition lies.
func lastOf(records []kgo.Record) []spot {
	var last []spot
	for i := len(records) - 1; i >= 0; i-- {
		r := &records[i]
		if !slices.ContainsFunc(last, func(s spot) bool { return s.partition == r.Partition && s.topic == r.Topic }) {
			last = append(last, spot{r.Topic, r.Partition, r.Offset})
		}
	}
	return last
}

// askWhetherOver asks whether the transaction that wrote last is over in all of its
// partitions, and does not wait for the answer. No may also mean that nobody knows.
func (s *Sink) askWhetherOver(ctx context.Context, last []spot) <-chan bool {
	ctx = context.WithoutCancel(ctx)
	answer := make(chan bool, 1)
	go func() {
		now := slices.Clone(last)
		err := s.conn.locate(ctx, now, stable)
		over := err == nil
		for i := range last {
			over = over && last[i].offset < now[i].offset
		}
		answer <- over
	}()
	return answer
}

// errHangs is a reason to resume, which ends what hangs.
var errHangs = errors.New("the last commit but one is not ended in all partitions, though the cluster takes it for ended")

// healthy returns an error if the transaction hangs that a writer made last, or if
// that cannot be told. If its next one were aborted, that one would be, too, though it
// was committed.
func (s *Sink) healthy(ctx context.Context, w *writer) error {
	if w.last == nil || !s.conn.tells.Load() {
		return nil
	}
	if over := w.over; over != nil {
		w.over = nil
		select {
		case yes := <-over:
			if yes {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for {
		now, err := s.transaction(ctx, w)
		if err != nil {
			return err
		}
		if now.State == "PrepareCommit" {
			// The markers are being written.
			if err := sleep(ctx, time.Millisecond); err != nil {
				return err
			}
			continue
		}
		open, err := s.stillOpen(ctx, now.ProducerID)
		if err == nil && len(open) > 0 {
			err = errHangs
		}
		return err
	}
}

// send writes records in a transaction that it begins. It calls meanwhile, unless it
// is nil, once they are on their way.
func send(ctx context.Context, p *kgo.Client, records []kgo.Record, meanwhile func()) error {
	// Closed, the client answers everything that is still waited for.
	stop := context.AfterFunc(ctx, p.Close)
	defer stop()
	if err := p.BeginTransaction(); err != nil {
		return err
	}
	promise := kgo.AbortingFirstErrPromise(p)
	for i := range records {
		p.Produce(ctx, &records[i], promise.Promise())
	}
	if meanwhile != nil {
		meanwhile()
	}
	if err := p.Flush(ctx); err != nil {
		return causeOf(ctx, err)
	}
	return causeOf(ctx, promise.Err())
}

// commitSent commits what was sent: all of it is in the log now, at and before last. If
// the process ends here, its successor aborts it. From here on the caller's end breaks
// nothing off, only the time does. After an error the commit may have taken place, or may
// yet.
func commitSent(ctx context.Context, p *kgo.Client, last []spot) error {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadlineCause(context.WithoutCancel(ctx), deadline, errNoWord)
	defer cancel()
	if err := known(ctx, p, last); err != nil {
		return err
	}
	return causeOf(ctx, p.EndTransaction(ctx, kgo.TryCommit))
}

// known waits until the client has noted the partitions that it has written to. When it
// learns of a topic it sends what has waited for that first, and all may be written and
// answered before it has made the note. EndTransaction sees what is noted alone: if that
// is nothing it aborts and returns no error, and a partition that it does not see goes on
// with its sequence numbers, which the cluster refuses in the next transaction.
func known(ctx context.Context, p *kgo.Client, partitions []spot) error {
	for _, at := range partitions {
		for {
			if leader, _, _ := p.PartitionLeader(at.topic, at.partition); leader >= 0 {
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
		fields = message.AppendHeader(fields[:0], s.topic.Feed, *e)
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
