package kafka

import (
	"cmp"
	"context"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/internal/retry"
)

// transactions makes the transactions of one sink, one after the other. They are fenced: once
// another sink of the feed has initialized the transactional id, they can no longer be
// committed.
type transactions struct {
	client *client
	id     transactionalID
	// Its producer has initialized the transactional id; nil before the first transaction, after any
	// error, and after it was idle for long. Another copy may have initialized the id since.
	idleProducer
	batch       int32 // the largest batch of the producer
	connections *connections
}

// connections counts how often a producer has got or lost a connection to a broker. A broker
// that comes back without its newest records was restarted, or is another one.
type connections struct{ changes atomic.Int64 }

func (c *connections) OnBrokerConnect(kgo.BrokerMetadata, time.Duration, net.Conn, error) {
	c.changes.Add(1)
}

func (c *connections) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) { c.changes.Add(1) }

// initialize opens the producer and initializes the transactional id, which fences every other
// copy. From then on no other copy can commit, unless it initializes the id after this one.
func (t *transactions) initialize(ctx context.Context, batch int32) error {
	connections := new(connections)
	p, err := t.client.newProducer(t.id.name, batch, connections)
	if err != nil {
		return err
	}
	t.producer, t.batch, t.connections = p, batch, connections
	return t.client.initProducerID(ctx, p)
}

// spareEpochs is the number of epochs at the end of a producer id that no transaction is made with.
// To abort a transaction of another copy takes two, and to end one that hangs takes two.
const spareEpochs = 16

// isNearLastEpoch reports whether the producer has one of the last epochs of its producer id. When
// these are used up, the coordinator assigns another producer id. It could no longer end a
// transaction of the old one that hangs (see hungTransaction). So the next transaction waits for the
// new id.
func (t *transactions) isNearLastEpoch(ctx context.Context) bool {
	if t.producer == nil {
		return false
	}
	_, epoch, err := t.producer.ProducerID(ctx)
	return err == nil && epoch > math.MaxInt16-spareEpochs
}

// sendRecords writes records in the transaction that is open, and waits until they are
// acknowledged. stored may be nil. It is called for each that is, up to the first that fails, with the
// number of those before it, and no longer when sendRecords has returned. kgo makes these calls one after
// the other.
func (t *transactions) sendRecords(ctx context.Context, records []kgo.Record, stored func(n int)) error {
	p := t.producer
	// Closing the client fails all pending records.
	stop := context.AfterFunc(ctx, p.Close)
	defer stop()
	var pending sync.WaitGroup
	pending.Add(len(records))
	acknowledged, failed := 0, error(nil)
	promise := func(_ *kgo.Record, err error) {
		defer pending.Done()
		switch {
		case failed != nil: // whether the records behind it are stored does not matter
		case err != nil:
			failed = err
			pending.Go(func() { _ = p.AbortBufferedRecords(context.Background()) })
		case stored != nil:
			stored(acknowledged)
			acknowledged++
		}
	}
	now := time.Now() // kgo would read the clock for each record
	for i := range records {
		records[i].Timestamp = now
		p.Produce(ctx, &records[i], promise)
	}
	err := p.Flush(ctx)
	pending.Wait() // if ctx has ended, the client is closed
	return causeOf(ctx, cmp.Or(err, failed))
}

// commit commits the sent records: all of them are in the log now, before the offsets written.
// If the process dies here, its successor aborts them. From here on the caller's cancellation
// has no effect, only its deadline. After an error the commit may have taken place, or may
// still do so.
func (t *transactions) commit(ctx context.Context, written kadm.Offsets) error {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadlineCause(context.WithoutCancel(ctx), deadline, errNotConfirmed)
	defer cancel()
	if err := waitForMetadata(ctx, t.producer, written); err != nil {
		return err
	}
	return causeOf(ctx, t.producer.EndTransaction(ctx, kgo.TryCommit))
}

// waitForMetadata waits until kgo has stored the metadata of the partitions that it has written
// to. When kgo learns of a topic, it first sends the waiting records, and they may be
// acknowledged before it has stored the metadata. EndTransaction uses only stored metadata.
// Without any it aborts and returns nil; and it does not reset the sequence numbers of a
// partition that is missing there, so the cluster refuses the next transaction.
func waitForMetadata(ctx context.Context, p *kgo.Client, written kadm.Offsets) error {
	for _, at := range written.Sorted() {
		for {
			if leader, _, _ := p.PartitionLeader(at.Topic, at.Partition); leader >= 0 {
				break
			}
			if err := retry.Sleep(ctx, time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// closeProducer closes the producer. The next commit initializes the id again.
func (t *transactions) closeProducer() {
	t.claim()
	if t.producer != nil {
		t.client.closeProducer(t.producer)
		t.producer = nil
	}
}

// abandon closes the producer after an error, and first aborts its transaction if it
// still can: an open one hides what all others write to the same partitions, until its
// timeout.
//
// It does not decide whether a commit took place: if it did, this changes nothing; if the
// request is still under way, the cluster refuses it.
func (t *transactions) abandon(ctx context.Context, why error) {
	if t.producer == nil {
		return
	}
	if !isFenced(why) {
		t.abort(ctx)
	}
	t.closeProducer()
}

// abort aborts the transaction by initializing the transactional id, in all versions of
// transactions. In version 1 the markers of a transaction that its producer aborts have the
// producer's epoch. A broker before 3.6 takes records of that epoch which arrive later, and the
// next commit with the id would publish them. Initializing the id aborts with the next epoch,
// so late records are refused.
//
// It does nothing if the transaction has ended, for it may hang (see hungTransaction), or if
// another copy has the id, where the cluster reports that. The next Resume reads the outcome.
func (t *transactions) abort(ctx context.Context) {
	ctx, cancel := t.client.withTimeout(context.WithoutCancel(ctx), t.client.graceTime())
	defer cancel()
	t.producer.Close()
	if t.client.reportsState.Load() {
		now, err := t.id.describeTransaction(ctx)
		if _, epoch, _ := t.producer.ProducerID(ctx); err != nil || now.State != "Ongoing" || now.ProducerEpoch != epoch {
			return
		}
	}
	_ = t.id.abortTransaction(ctx)
}
