package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/internal/retry"
)

// This file has everything that feedbridge does about KAFKA-20734. It can be deleted, with its
// callers, when no supported broker has that bug any more.
//
// When a transaction ends while some of its partitions have no leader, as when brokers crash,
// the coordinator of Kafka 4 may report it as ended and leave it open in those partitions. Such
// a transaction hangs: read_committed consumers do not get past it, no timeout ends it, and the
// next transaction of its producer in that partition joins it, so that both are committed, or
// both aborted. An empty transaction of the same producer, on the same partitions and with the
// same outcome, ends it properly. It needs only the permissions of a commit.
//
// As soon as the transactional id is initialized, its coordinator forgets the outcome of the
// hung transaction. So:
//
//   - before an id is reused: a sink initializes its id only while no transaction is open in
//     the feed's partitions, and waits for that again after it (beforeReuse);
//   - after a commit: the next commit of the same sink waits until the markers of
//     the last one are written (afterCommit, awaitEnd), also if its producer was closed
//     meanwhile, and it is about to initialize the id again;
//   - while Resume waits for a partition: a hung transaction of the feed is ended with the
//     outcome that the coordinator reports (endIfHung);
//   - before the epochs are used up: no transaction has one of the last epochs of its producer id,
//     because only a transaction of the same producer id ends a hung one (isNearLastEpoch).

// hungTransaction finds and ends hung transactions of a feed's transactional id.
type hungTransaction struct {
	client       *client
	id           transactionalID
	topics       []string // that the feed's entities and dead letters are published to
	checkpoints  *checkpointStore
	transactions *transactions
	// last has the offsets of the last commit of this sink, as long as it may hang.
	last kadm.Offsets
	cure *cure // nil unless one is under way
}

// cure is an empty transaction that ends a hung one. It begins when the transactional id is
// initialized for it: from then on the coordinator no longer reports the outcome of the hung
// transaction.
type cure struct {
	producer *kgo.Client
	where    kadm.TopicsSet
	how      outcome
}

// outcome is how a hung transaction ended.
type outcome string

const (
	aborted   outcome = "abort"
	committed outcome = "commit"
)

// possible reports whether the cluster may have the bug: Kafka 4.0 and newer, which know
// transactions of version 2, whether or not they are turned on. No fixed version is known.
func (h *hungTransaction) possible() bool { return h.client.mayHang.Load() }

// beforeReuse returns an error unless every transaction has ended in the feed's partitions. The
// sink has just initialized its id, which aborted its open transaction; that one may hang, and
// the next commit would commit it.
func (h *hungTransaction) beforeReuse(ctx context.Context) error {
	if !h.possible() {
		return nil
	}
	if _, err := h.newStableWait(h.client.cfg.Checkpoints, h.checkpoints.location.partition).toEnd(ctx, nil); err != nil {
		return err
	}
	for _, topic := range h.topics {
		d, err := h.client.describeTopic(ctx, topic)
		if isMissingTopic(err) {
			continue // the commit reports it, unless it has no entities
		}
		if err == nil {
			_, err = h.newStableWait(d.Topic, d.Partitions.Numbers()...).toEnd(ctx, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *hungTransaction) newStableWait(topic string, partitions ...int32) stableWait {
	return stableWait{h.client, topic, partitions, h.client.cfg.Timeout, nil}
}

// endsWithin is how long the markers of a commit are expected to take. After that, or if
// another program's transaction holds a partition back, the coordinator is asked.
const endsWithin = 100 * time.Millisecond

// afterCommit records the offsets that a commit of this sink has written.
func (h *hungTransaction) afterCommit(written kadm.Offsets) {
	if h.possible() {
		h.last = written
	}
}

// errHangs reports that the last commit hangs. The next Resume ends it.
var errHangs = errors.New("the last commit is not ended in all partitions, though the cluster reports it as ended")

// awaitEnd waits until the last commit of this sink is ended wherever it wrote. It returns an
// error if it hangs, or if the cluster does not report it for twice the timeout. The wait costs
// no time: a transaction that begins before the markers of the last one are written is made to
// wait 20 ms and more by the broker (add.partitions.to.txn.retry.backoff.ms).
//
// It returns the last stable offsets of the other partitions, too, or nil if it has not asked: that
// saves a request.
func (h *hungTransaction) awaitEnd(ctx context.Context, others kadm.TopicsSet) (stable topicOffsets, err error) {
	if len(h.last) == 0 {
		return nil, nil
	}
	if stable, ended := h.endsSoon(ctx, others); ended {
		h.last = nil
		return stable, nil
	}
	// All feeds wait when the broker is busy, as after a takeover. Asked twenty times a second by
	// each, it takes longer still.
	backoff := retry.Backoff{Min: 20 * time.Millisecond, Max: 500 * time.Millisecond}
	for began := time.Now(); ; {
		ended, err := h.lastEnded(ctx)
		// A connection that is dead is closed after the timeout. Then kgo opens another one.
		switch {
		case ended:
			h.last = nil
			return nil, nil
		case errors.Is(err, errHangs), err != nil && time.Since(began) > 2*h.client.cfg.Timeout:
			return nil, err
		}
		if err := backoff.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// endsSoon reports whether the last commit is ended within endsWithin, as the partitions show. It
// returns the last stable offsets of these partitions and of the others.
func (h *hungTransaction) endsSoon(ctx context.Context, others kadm.TopicsSet) (stable topicOffsets, ended bool) {
	ctx, cancel := h.client.withTimeout(ctx, endsWithin)
	defer cancel()
	asked := h.last.TopicsSet()
	asked.Merge(others)
	backoff := retry.Backoff{Min: 2 * time.Millisecond, Max: endsWithin}
	for {
		stable, err := h.client.listTopicOffsets(ctx, asked, stableOffset)
		if err != nil {
			return nil, false
		}
		ended := true
		h.last.Each(func(behind kadm.Offset) { ended = ended && stable[behind.Topic][behind.Partition] >= behind.At })
		if ended {
			return stable, true
		}
		if backoff.Wait(ctx) != nil {
			return nil, false
		}
	}
}

// lastEnded reports whether the last commit of this sink is ended wherever it wrote. It
// returns errHangs if it never will be.
func (h *hungTransaction) lastEnded(ctx context.Context) (bool, error) {
	now, err := h.id.describeTransaction(ctx)
	if err != nil || now.State == "PrepareCommit" { // then the markers are being written
		return false, err
	}
	open, err := h.stillOpen(ctx, now.ProducerID)
	if err == nil && len(open) > 0 {
		err = errHangs
	}
	return err == nil, err
}

// stillOpen returns where a producer has a transaction open, among the partitions of the feed's
// topics and that of its checkpoint.
func (h *hungTransaction) stillOpen(ctx context.Context, producer int64) ([]kadm.DescribedProducer, error) {
	var asked kadm.TopicsSet
	asked.Add(h.client.cfg.Checkpoints, h.checkpoints.location.partition)
	ctx, cancel := h.client.withTimeout(ctx, h.client.graceTime())
	defer cancel()
	for _, topic := range h.topics {
		switch d, err := h.client.describeTopic(ctx, topic); {
		case err == nil:
			asked.Add(topic, d.Partitions.Numbers()...)
		case !isMissingTopic(err):
			return nil, err
		}
	}
	open, err := h.client.openTransactions(ctx, asked)
	return slices.DeleteFunc(open, func(p kadm.DescribedProducer) bool { return p.ProducerID != producer }), err
}

// endIfHung ends the feed's transaction if it hangs; now is the state of the transactional id.
// It does nothing if the outcome is unknown.
//
// If the process dies between the two requests of the cure, the outcome is lost, and the next
// Resume aborts the transaction where it hangs. After an error the sink's next Resume continues
// the cure.
func (h *hungTransaction) endIfHung(ctx context.Context, now *kadm.DescribedTransaction) error {
	if !h.possible() {
		return nil
	}
	where, how, err := h.findHung(ctx, now)
	if err != nil || len(where) == 0 {
		return nil
	}
	// If the state is unchanged, no transaction was in progress meanwhile, so the open one does
	// not belong to a copy that is alive.
	again, err := h.id.describeTransaction(ctx)
	if err != nil || !sameTransaction(again, now) {
		return nil
	}
	h.client.log.Warn("ending a transaction that the cluster has left open in some partitions",
		"transactional_id", h.id.name, "partitions", fmt.Sprint(where), "outcome", how)
	h.transactions.closeProducer()
	p, err := h.client.newProducer(h.id.name, defaultBatch)
	if err != nil {
		return err
	}
	h.cure = &cure{p, where, how}
	return h.continueCure(ctx)
}

// findHung returns the partitions in which the feed's transaction hangs, if it ended in
// the same way in all of them.
func (h *hungTransaction) findHung(ctx context.Context, now *kadm.DescribedTransaction) (where kadm.TopicsSet, how outcome, err error) {
	open, err := h.stillOpen(ctx, now.ProducerID)
	if err != nil || len(open) == 0 {
		return nil, aborted, err
	}
	newest, err := h.checkpoints.readNewest(ctx)
	if err != nil {
		return nil, aborted, err
	}
	version2 := h.client.transactions2.Load()
	for i, o := range open {
		ended, known := outcomeOf(now, o.ProducerEpoch, version2, version2 && newest.committedBy(committer{now.ProducerID, o.ProducerEpoch}))
		if !known || i > 0 && ended != how {
			return nil, aborted, nil
		}
		how = ended
		where.Add(o.Topic, o.Partition)
	}
	return where, how, nil
}

// outcomeOf returns the outcome of a hung transaction, as far as it follows from the current
// state of its transactional id. In version 2 each transaction has an epoch of its own, and its
// end raises it by one. In version 1 the transactions of a client have one epoch, and
// initializing the id raises it.
//
// A transaction whose checkpoint is committed was committed, even if another copy has
// initialized the id since. While its end is under way it does not hang.
func outcomeOf(now *kadm.DescribedTransaction, epoch int16, version2, hasCheckpoint bool) (_ outcome, known bool) {
	if hasCheckpoint && (now.State == "CompleteCommit" || now.State == "CompleteAbort" || now.State == "Empty") {
		return committed, true
	}
	last := version2 && epoch == now.ProducerEpoch-1
	switch now.State {
	case "CompleteCommit":
		// A sink makes no transaction after one that it has aborted, so all of one epoch
		// were committed if the last one was.
		return committed, last || epoch == now.ProducerEpoch
	case "CompleteAbort":
		return aborted, last
	case "Empty":
		// The id was initialized since, which aborts an open transaction. A copy initializes it
		// only after committed transactions have ended, with two exceptions: it did so at the
		// moment of the commit, or it died between the two requests of a cure. Then the
		// checkpoint may show the outcome.
		return aborted, epoch < now.ProducerEpoch
	}
	return aborted, false
}

// dropCure discards a cure that another copy has completed. To continue it would disturb that
// copy.
func (h *hungTransaction) dropCure() {
	if h.cure != nil {
		h.client.closeProducer(h.cure.producer)
		h.cure = nil
	}
}

// continueCure completes the current cure.
func (h *hungTransaction) continueCure(ctx context.Context) error {
	c := h.client
	// The end of the caller's context must not cancel the second request.
	ctx, cancel := c.withTimeout(context.WithoutCancel(ctx), 3*c.cfg.Timeout)
	defer cancel()
	err := c.initProducerID(ctx, h.cure.producer)
	if err == nil {
		err = h.cure.endHung(ctx, h.id.name)
	}
	switch {
	case err == nil:
	case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.InvalidProducerIDMapping):
		// Another copy has initialized the id, and ends the transaction.
	default:
		return causeOf(ctx, err)
	}
	h.dropCure()
	return nil
}

// endHung makes an empty transaction on the partitions, and ends it with the outcome of the
// hung one.
func (c *cure) endHung(ctx context.Context, transactionalID string) error {
	id, epoch, err := c.producer.ProducerID(ctx)
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = transactionalID, id, epoch
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
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = transactionalID, id, epoch, c.how == committed
	ended, err := end.RequestWith(ctx, c.producer)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(ended.ErrorCode)
}
