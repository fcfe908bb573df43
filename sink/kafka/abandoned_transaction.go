package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// abandonedTransaction watches the feed's transactional id while Resume waits for a
// partition to become stable. A copy that dies within a transaction leaves it open, and
// until its timeout only another copy of the feed can end it.
type abandonedTransaction struct {
	transactions *transactions
	hung         *hungTransaction
	next         time.Duration // when to look again; at first half of the grace time
	// seen is the open transaction, and since when it was seen open; nil for none.
	seen  *kadm.DescribedTransaction
	since time.Duration
	ended bool // by this sink; once is enough, for a living copy may have gone on with the id
}

// abortIfAbandoned aborts the feed's transaction once the same one has been open for the grace
// time. It does not disturb a copy that is alive: such a copy has ended that transaction by
// then, or has begun another one.
func (a *abandonedTransaction) abortIfAbandoned(ctx context.Context, waited time.Duration) error {
	if waited < a.next {
		return nil
	}
	grace := a.transactions.client.graceTime()
	a.next = waited + grace/2
	if a.hung.cure != nil {
		return a.hung.continueCure(ctx)
	}
	id := a.transactions.id
	now, err := id.describeTransaction(ctx)
	switch {
	case err != nil, a.ended:
		// The cluster does not report it, or not now. The transaction that holds the
		// partition back may be another feed's: the cluster ends it in time.
	case now.State != "Ongoing":
		// The open transaction is another feed's, or this feed's hangs.
		a.seen = nil
		return a.hung.endIfHung(ctx, now)
	case a.seen == nil || !sameTransaction(a.seen, now):
		a.seen, a.since = now, waited
	case waited-a.since >= grace:
		a.ended = true
		a.transactions.client.log.Warn("ending a transaction that was left open", "transactional_id", id.name)
		a.transactions.closeProducer()
		return id.abortTransaction(ctx)
	}
	return nil
}
