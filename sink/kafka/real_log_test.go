//go:build integration

package kafka_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// Transactions of several batches are committed and aborted in turn, and read back
// in pages that end anywhere.
func TestRealLogHasWhatIsCommittedAlone(t *testing.T) {
	t.Parallel()
	b := kafkatest.Shared(t)
	name := kafkatest.Name(t)
	createTopic(t, b.Addr(), name, 1, nil)
	cl := kafkaClient(t, b.Addr(), kgo.TransactionalID(name), kgo.ProducerBatchMaxBytes(4096))
	var want []string
	for n := range 8 {
		must.Succeed(t, cl.BeginTransaction())
		var all []*kgo.Record
		for i := range 60 {
			body := fmt.Sprintf("%d/%d %0200d", n, i, i)
			all = append(all, &kgo.Record{Topic: name, Value: []byte(body)})
			if n%2 == 0 {
				want = append(want, body)
			}
		}
		must.Succeed(t, cl.ProduceSync(t.Context(), all...).FirstErr())
		must.Succeed(t, cl.EndTransaction(t.Context(), n%2 == 0))
	}
	conn := connect(t, atReal(b.Addr()))
	for _, size := range []uint64{1000, 100, 37, 7} {
		log := settled{conn.Log(name, 0)}
		span := spanOf(t, log)
		var got []feed.Record
		for from := span.First; from < span.End; from += size {
			got = append(got, records(t, log.Log, from, min(from+size, span.End))...)
		}
		var bodies []string
		for _, r := range got {
			bodies = append(bodies, string(r.Body))
		}
		if diff := cmp.Diff(want, bodies); diff != "" {
			t.Errorf("in pages of %d (-want +got):\n%s", size, diff)
		}
	}
}
