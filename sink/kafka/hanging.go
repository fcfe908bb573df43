package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A transaction hangs in a partition if it is open there while the cluster takes
// it for ended. Readers do not get past it, and no timeout ends it. Kafka 4 leaves
// such behind where a partition has no leader at the moment at which it should get
// the marker of the end, as after brokers have crashed (KAFKA-20734). It is
// ended by another transaction of the same producer, one without records, that
// ends in the same way. That takes no rights but those of any commit.

// outcome is how a transaction ended that hangs.
type outcome bool

const (
	aborted   outcome = false
	committed outcome = true
)

func (o outcome) String() string {
	if o {
		return "commit"
	}
	return "abort"
}

// outcomeOf returns how what hangs with an epoch has ended, as far as can be told
// from how the transactional id stands now. In version 2 each transaction has an
// epoch of its own, and its end raises it by one. Before, a client's transactions
// have one epoch, and whoever takes the id raises it.
//
// If its checkpoint stands it was committed, whoever has taken the id since. As long
// as its end is under way it does not hang.
func outcomeOf(now *kadm.DescribedTransaction, epoch int16, version2, stands bool) (_ outcome, known bool) {
	if stands && (now.State == "CompleteCommit" || now.State == "CompleteAbort" || now.State == "Empty") {
		return committed, true
	}
	last := version2 && epoch == now.ProducerEpoch-1
	switch now.State {
	case "CompleteCommit":
		// This sink's clients make no transaction after one that they have
		// aborted, so all of one epoch were committed if the last one was.
		return committed, last || epoch == now.ProducerEpoch
	case "CompleteAbort":
		return aborted, last
	case "Empty":
		// Someone has taken the id since, which aborts what was under way. What
		// had been committed is ended before anyone takes the id, but for a copy
		// that takes it at the moment of the commit, or that died between the two
		// steps of a cure; its checkpoint may tell.
		return aborted, epoch < now.ProducerEpoch
	}
	return aborted, false
}

// A cure is under way from when the transactional id has been taken for it: from
// then on the cluster no longer says how the transaction had ended.
type cure struct {
	transactionalID string
	producer        *kgo.Client
	where           kadm.TopicsSet
	how             outcome
}

// opened is where a transaction is open, and its epoch.
type opened struct {
	topic     string
	partition int32
	epoch     int16
}

// stillOpen returns where a producer has a transaction open, among the partitions of
// the sink's topic and the one for checkpoints.
func (s *Sink) stillOpen(ctx context.Context, producer int64) ([]opened, error) {
	ctx, cancel := s.conn.within(ctx, s.conn.grace())
	defer cancel()
	var asked kadm.TopicsSet
	asked.Add(s.conn.cfg.Checkpoints, s.place.partition)
	d, err := s.conn.describe(ctx, s.topic.Name)
	switch {
	case err == nil:
		asked.Add(s.topic.Name, d.partitions()...)
	case !missing(err):
		return nil, err
	}
	producers, err := s.conn.admin.DescribeProducers(ctx, asked)
	if err != nil {
		return nil, err
	}
	var open []opened
	for topic, partitions := range asked {
		for partition := range partitions {
			described := producers[topic].Partitions[partition]
			if described.Err != nil {
				return nil, described.Err
			}
			for _, p := range described.ActiveProducers {
				if p.ProducerID == producer && p.CurrentTxnStartOffset >= 0 {
					open = append(open, opened{topic, partition, p.ProducerEpoch})
				}
			}
		}
	}
	return open, nil
}

// hanging returns the partitions in which a transaction hangs of the producer whose
// transactional id stands as now says, if all of them ended in the same way.
func (s *Sink) hanging(ctx context.Context, now *kadm.DescribedTransaction) (where kadm.TopicsSet, how outcome, err error) {
	open, err := s.stillOpen(ctx, now.ProducerID)
	if err != nil || len(open) == 0 {
		return nil, aborted, err
	}
	by, err := s.committers(ctx)
	if err != nil {
		return nil, aborted, err
	}
	version2 := s.conn.transactions2.Load()
	for i, o := range open {
		ended, known := outcomeOf(now, o.epoch, version2, version2 && stands(by, committer{now.ProducerID, o.epoch}))
		if !known || i > 0 && ended != how {
			return nil, aborted, nil
		}
		how = ended
		where.Add(o.topic, o.partition)
	}
	return where, how, nil
}

// stands says whether a transaction is one of those that committed a checkpoint. Of an
// epoch that committed several it cannot be told: they are of version 1.
func stands(by []committer, c committer) bool {
	n := 0
	for _, one := range by {
		if one == c {
			n++
		}
	}
	return n == 1
}

// committers are the transactions that committed the feed's newest checkpoints, as
// far as they can be seen.
func (s *Sink) committers(ctx context.Context) ([]committer, error) {
	ends, err := s.conn.offsets(ctx, s.conn.cfg.Checkpoints, []int32{s.place.partition}, stable)
	if err != nil {
		return nil, err
	}
	feeds, err := s.conn.store.read(ctx, s.place, ends[0], s.topic.Name)
	return feeds[s.topic.Feed].by, err
}

// finish ends what hangs of a writer's transaction, if anything does. Now is how
// its transactional id stands. It leaves alone what it cannot tell, as on clusters
// that do not say.
//
// If the process dies between the two steps of the cure, how the transaction had
// ended is forgotten, and the next Resume aborts it where it hangs. After an error
// the sink's next Resume goes on with the cure.
func (s *Sink) finish(ctx context.Context, w *writer, now *kadm.DescribedTransaction) error {
	where, how, err := s.hanging(ctx, now)
	if err != nil || len(where) == 0 {
		return nil
	}
	// If it still stands so, no transaction was under way meanwhile, and what
	// was open was none of a living copy's.
	again, err := s.transaction(ctx, w)
	if err != nil || again.State != now.State || again.StartTimestamp != now.StartTimestamp || again.ProducerEpoch != now.ProducerEpoch {
		return nil
	}
	s.conn.log.Warn("ending a transaction that the cluster has left open in some partitions",
		"transactional_id", w.id, "partitions", fmt.Sprint(where), "outcome", how)
	s.close()
	p, err := s.conn.newProducer(w.id, defaultBatch)
	if err != nil {
		return err
	}
	s.cure = &cure{w.id, p, where, how}
	return s.goOnCuring(ctx)
}

// goOnCuring does what is left of the cure that is under way.
func (s *Sink) goOnCuring(ctx context.Context) error {
	// The caller's end does not come between the two steps.
	ctx, cancel := s.conn.within(context.WithoutCancel(ctx), 3*s.conn.cfg.Timeout)
	defer cancel()
	err := begin(ctx, s.cure.producer)
	if err == nil {
		err = s.cure.end(ctx)
	}
	switch {
	case err == nil:
	case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.InvalidProducerIDMapping):
		// Somebody else has taken the id, and it is theirs to end.
	default:
		return causeOf(ctx, err)
	}
	s.conn.closeProducer(s.cure.producer)
	s.cure = nil
	return nil
}

// end makes a transaction of the partitions without any record, and ends it.
func (c *cure) end(ctx context.Context) error {
	id, epoch, err := c.producer.ProducerID(ctx)
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = c.transactionalID, id, epoch
	c.where.EachPartitions(func(topic string, partitions []int32) {
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		add.Topics = append(add.Topics, t)
	})
	added, err := add.RequestWith(ctx, c.producer)
	if err != nil {
		return err
	}
	var failed []error
	for _, t := range added.Topics {
		for _, partition := range t.Partitions {
			failed = append(failed, kerr.ErrorForCode(partition.ErrorCode))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = c.transactionalID, id, epoch, bool(c.how)
	ended, err := end.RequestWith(ctx, c.producer)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(ended.ErrorCode)
}
