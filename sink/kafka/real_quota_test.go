//go:build integration

package kafka_test

import (
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

// The client has a consumer quota, which the messages that a new copy reads exceed many
// times over. It starts all the same.
func TestRealCopyStartsUnderAConsumerQuota(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	topic := ordersIn(t)
	s := connect(t, atReal(b.Addr())).Sink(topic)
	resume(t, s)
	entities := sinktest.Entities(0, 200)
	for i := range entities {
		entities[i].Body = make([]byte, 1000)
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(entities[i].Body) // which never fails, and cannot be compressed
	}
	if err := s.Commit(t.Context(), entities, sinktest.At(200)); err != nil {
		t.Fatal(err)
	}

	cfg := atReal(b.Addr())
	cfg.ClientID = kafkatest.Name(t)
	admin := kadm.NewClient(kafkaClient(t, b.Addr()))
	set, err := admin.AlterClientQuotas(t.Context(), []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &cfg.ClientID}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: "consumer_byte_rate", Value: 20_000}},
	}})
	if err != nil || set[0].Err != nil {
		t.Fatal(err, set)
	}
	// Two copies: the reads of the first have used up the quota when the second starts.
	for range 2 {
		fresh := connect(t, cfg).Sink(topic)
		if cp := resume(t, fresh); cp.Count != 200 || fresh.IDs().Len() != 200 {
			t.Errorf("checkpoint %+v and %d IDs, want 200", cp, fresh.IDs().Len())
		}
	}
}
