package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// abandonedTransaction watches the feed's transactional id while Resume waits for a
// partition to become stable. A copy that dies within a transaction leaves it open, and
// until its timeout only another copy of the feed can end it.
type abandonedTransaction struct {
	sink *Sink
	next time.Duration // when to look again
	// seen is the open transaction, and since when it was seen open; nil for none.
	seen  *kadm.DescribedTransaction
	since time.Duration
	ended bool // by this sink; once is enough, for a living copy may have gone on with the id
}

func (s *Sink) watchTransaction() *abandonedTransaction {
	return &abandonedTransaction{sink: s, next: s.conn.grace() / 2}
}

// check aborts the feed's transaction once the same one has stayed open for the time of
// grace. It leaves a living copy alone, which has ended it by then or is at another.
func (a *abandonedTransaction) check(ctx context.Context, waited time.Duration) error {
	if waited < a.next {
		return nil
	}
	s := a.sink
	a.next = waited + s.conn.grace()/2
	if s.hung.curing() {
		return s.hung.goOn(ctx)
	}
	now, err := s.conn.transaction(ctx, s.transactionalID)
	switch {
	case err != nil, a.ended:
		// The cluster does not tell, or not now. The transaction that holds the
		// partition back may be another feed's: the cluster ends it in time.
	case now.State != "Ongoing":
		// The open transaction is another feed's, or this feed's hangs.
		a.seen = nil
		return s.hung.find(ctx, now)
	case a.seen == nil || a.seen.StartTimestamp != now.StartTimestamp || a.seen.ProducerEpoch != now.ProducerEpoch:
		a.seen, a.since = now, waited
	case waited-a.since >= s.conn.grace():
		a.ended = true
		s.conn.log.Warn("ending a transaction that was left open", "transactional_id", s.transactionalID)
		s.close()
		return s.conn.endTransaction(ctx, s.transactionalID)
	}
	return nil
}

// transaction returns the state of a transactional id, as its coordinator has it.
func (c *Conn) transaction(ctx context.Context, transactionalID string) (*kadm.DescribedTransaction, error) {
	ctx, cancel := c.within(ctx, c.grace())
	defer cancel()
	all, err := c.admin.DescribeTransactions(ctx, transactionalID)
	if err != nil {
		return nil, err
	}
	t, ok := all[transactionalID]
	if !ok {
		return nil, errors.New("the cluster says nothing about the transactional id")
	}
	if t.Err != nil {
		return nil, t.Err
	}
	return &t, nil
}
