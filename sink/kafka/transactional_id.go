package kafka

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/internal/retry"
)

// transactionalID is the transactional id of a feed, which its sinks in all processes have in
// common.
type transactionalID struct {
	client *client
	name   string
}

func newTransactionalID(c *client, topic, feedName string) transactionalID {
	return transactionalID{c, c.cfg.ClientID + "." + topic + "/" + feedName}
}

// describeTransaction returns the state of the newest transaction, as its coordinator has it.
func (id transactionalID) describeTransaction(ctx context.Context) (*kadm.DescribedTransaction, error) {
	ctx, cancel := id.client.withTimeout(ctx, id.client.graceTime())
	defer cancel()
	all, err := id.client.admin.DescribeTransactions(ctx, id.name)
	if err != nil {
		return nil, err
	}
	t, err := all.On(id.name, nil)
	return &t, cmp.Or(err, t.Err)
}

// sameTransaction reports whether two states of a transactional id are of one transaction.
func sameTransaction(a, b *kadm.DescribedTransaction) bool {
	return a.State == b.State && a.StartTimestamp == b.StartTimestamp && a.ProducerEpoch == b.ProducerEpoch
}

// abortTransaction aborts the transaction that is open.
func (id transactionalID) abortTransaction(ctx context.Context) error {
	p, err := id.client.newProducer(id.name, defaultBatch)
	if err != nil {
		return err
	}
	defer id.client.closeProducer(p)
	return id.client.initProducerID(ctx, p)
}

// initProducerID initializes the transactional id of p. The coordinator answers when the
// transaction that was open under the id is aborted, or ended as its producer has asked. From
// then on no other producer can commit with the id.
func (c *client) initProducerID(ctx context.Context, p *kgo.Client) error {
	ctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	id, _, err := p.ProducerID(ctx)
	if err != nil {
		return causeOf(ctx, err)
	}
	if id < 0 {
		// kgo continues without one if the brokers do not support the request.
		return errors.New("the cluster gave no producer id")
	}
	return nil
}

// checkPermission returns an error if this user may not use the transactional id. It asks
// for the end of a transaction of a producer that does not exist, so it touches no
// transaction. A new cluster has no coordinator until it has been asked for one.
func (id transactionalID) checkPermission(ctx context.Context) error {
	c := id.client
	ctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	backoff := retry.Backoff{Min: 50 * time.Millisecond, Max: time.Second}
	for {
		err := causeOf(ctx, c.admin.FindTxnCoordinators(ctx, id.name).Error())
		if err == nil {
			break
		}
		if !isTransient(err) || backoff.Wait(ctx) != nil {
			return err
		}
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = id.name, -1, -1
	resp, err := req.RequestWith(ctx, c.kgo)
	if err != nil {
		return causeOf(ctx, err)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		return err
	}
	return nil
}
